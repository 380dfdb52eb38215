"""The product uses the words of its field."""

from __future__ import annotations

from source_tree import expect_none

from tools.words import files_of, findings_in

#: Names, comments, strings, docstrings and documents there are all in plain words; the tests' own prose is not yet.
FINISHED = (
    "mesh",
    "federation",
    "dag",
    "simulator",
    "serve_apps",
    "tools",
    "benchmarks",
    "examples",
    "configs",
    "docs",
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "pyproject.toml",
    "tests/unit/mesh",
    "tests/unit/dag",
    "tests/property",
    "tests/simulation",
    "tests/integration",
)


def test_finished_folders_hold_no_private_words():
    expect_none([str(found) for file in files_of(FINISHED) for found in findings_in(file)])
