"""The product uses the words of its field."""

from __future__ import annotations

from source_tree import expect_none

from tools.words import files_of, findings_in

#: Names, comments, strings and docstrings there are all in plain words.
FINISHED = (
    "federation",
    "mesh/tasks",
    "mesh/policies",
    "mesh/jobs",
    "mesh/actors",
    "mesh/conformance",
    "serve_apps",
    "simulator",
    "benchmarks/*.py",
    "tests/unit/mesh",
    "tests/unit/dag",
    "tests/property",
    "tests/simulation",
    "tests/integration",
)
#: Names there are; their prose is not yet.
NAMES_FINISHED = ("mesh", "dag", "tools")


def test_finished_folders_hold_no_private_words():
    expect_none([str(found) for file in files_of(FINISHED) for found in findings_in(file)])


def test_names_hold_no_private_words():
    names = [found for file in files_of(NAMES_FINISHED) for found in findings_in(file) if found.text.isidentifier()]
    expect_none([str(found) for found in names])
