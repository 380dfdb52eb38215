"""Conds that would wait for themselves: refused when a graph is read, as JSON."""

from __future__ import annotations

import json

import pytest

from dag.errors import SpecError
from dag.spec.spec import parse


def graph(outputs, **nodes):
    """Return a graph of calls that read others (`f="a b"`) and of conds (`c="? test then else"`)."""
    described = {}
    for name, words in nodes.items():
        first, *needs = words.split() or [""]
        if first == "?":
            described[name] = {"cond": {key: {"$ref": need} for key, need in zip(("if", "then", "else"), needs, strict=False)}}
        else:
            described[name] = {"call": "work:do", "args": [{"$ref": need} for need in words.split()]}
    return json.dumps({"spec": "dag/1", "nodes": described, "outputs": {name: {"$ref": name} for name in outputs.split()}}).encode()


@pytest.mark.parametrize(
    ("outputs", "nodes", "circle"),
    [
        pytest.param(
            "outer",
            {"a": "", "b": "", "inner": "? a b", "f": "inner", "outer": "? b f"},
            "[inner decides]",
            id="a branch reads a cond that decides about its own condition",
        ),
        pytest.param(
            "outer",
            {"a": "", "b": "", "inner": "? a b", "g": "inner", "f": "g", "outer": "? b f"},
            "[inner decides]",
            id="through another node",
        ),
        pytest.param(
            "outer",
            {"a": "", "b": "", "x": "b", "inner": "? a b", "f": "inner", "outer": "? x f"},
            "[inner decides]",
            id="the condition reads the branch",
        ),
        pytest.param(
            "outer",
            {"a": "", "b": "", "c": "", "inner": "? a c", "middle": "? b inner", "f": "middle", "outer": "? c f"},
            "[middle decides]",
            id="through three conds",
        ),
        pytest.param("outer inner", {"a": "", "b": "", "inner": "? a b", "f": "inner", "outer": "? b f"}, "", id="somebody reads the cond"),
        pytest.param("outer", {"a": "", "b": "", "inner": "? a b", "f": "inner", "outer": "? a f"}, "", id="one condition of both"),
        pytest.param("outer", {"a": "", "b": "", "c": "", "inner": "? a c", "f": "inner", "outer": "? b f"}, "", id="two conditions"),
        pytest.param("outer f", {"a": "", "b": "", "c": "", "inner": "? a c", "f": "inner", "outer": "? b f"}, "", id="the branch is read"),
    ],
)
def test_conds_that_wait_for_themselves_are_refused(outputs, nodes, circle):
    text = graph(outputs, **nodes)
    if not circle:
        parse(text)
        return
    with pytest.raises(SpecError) as refused:
        parse(text)
    ((place, words),) = refused.value.problems
    assert place.startswith("/nodes/")
    assert "runs in a circle" in words
    assert circle in words
