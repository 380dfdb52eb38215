"""The product uses the words of its field."""

from __future__ import annotations

from source_tree import expect_none

from tools.words import files_of, findings_in

#: Names, comments, strings, docstrings and documents there are all in plain words.
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
    "tests",
)


def test_finished_folders_hold_no_private_words():
    expect_none([str(found) for file in files_of(FINISHED) for found in findings_in(file)])
