"""Counts in words, and nobody who words them otherwise."""

import ast
from pathlib import Path

import pytest

from mesh.counting import counted, times

ROOT = Path(__file__).parents[3]
PACKAGES = ("mesh", "federation", "dag", "serve_apps", "simulator", "examples")
#: What is counted in the words of this project.
COUNTED = [
    "agents",
    "attempts",
    "bundles",
    "bytes",
    "calls",
    "characters",
    "clusters",
    "edges",
    "flavors",
    "leases",
    "levels",
    "lines",
    "members",
    "meshes",
    "nodes",
    "outputs",
    "parts",
    "pools",
    "problems",
    "ranks",
    "rows",
    "slots",
    "stages",
    "tasks",
    "tenants",
    "values",
    "workers",
]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((1, "slot"), "1 slot"),
        ((0, "slot"), "0 slots"),
        ((2, "mesh"), "2 meshes"),
        ((1, "worker is", "workers are"), "1 worker is"),
        ((3, "worker is", "workers are"), "3 workers are"),
        ((12_345, "byte"), "12,345 bytes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_count_has_its_word_in_the_number_that_goes_with_it(words, told):
    assert counted(*words) == told


def test_what_happens_once_is_told_so():
    assert [times(count) for count in (1, 2)] == ["once", "2 times"]


def bare_counts(text: ast.JoinedStr) -> list[str]:
    """Values of an f-string with a word for several right behind them; constants of a module are never 1."""
    return [
        f"{{{ast.unparse(value.value)}}}{words.value[:12]}"
        for value, words in zip(text.values, text.values[1:], strict=False)
        if isinstance(value, ast.FormattedValue) and isinstance(words, ast.Constant) and words.value.startswith(" ")
        if words.value.replace(",", " ").replace(";", " ").split(" ")[1] in COUNTED
        if not any(isinstance(part, (ast.Name, ast.Attribute)) and name_of(part).isupper() for part in ast.walk(value.value))
    ]


def name_of(part: ast.Name | ast.Attribute) -> str:
    return (part.id if isinstance(part, ast.Name) else part.attr).replace("_", "")


def test_a_word_for_several_behind_one_is_found():
    assert bare_counts(ast.parse("f'{len(x)} slots, {NODES_MAX} nodes, {name} goes'").body[0].value) == ["{len(x)} slots, "]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_count_that_is_told_goes_through_the_one_function(package):
    found = [
        f"{file.relative_to(ROOT)}:{node.lineno}: {told}"
        for file in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.JoinedStr)
        for told in bare_counts(node)
    ]
    assert found == []
