"""Laws of actors in graphs: a graph computes what the same program computes without it, whatever its calls read."""

from __future__ import annotations

import json
import pickle
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dag
from dag.client.compiling import compile_columns, compile_graph
from dag.errors import CycleError
from dag.spec.spec import digest, parse, parse_columns
from mesh.core.functions import ActorCalls, selected
from mesh.ray.worker.plain_calls import make_calls
from mesh.stages.arguments import resolve

ACTORS = 3


class Journal:
    """Remembers all calls."""

    def __init__(self, first: Any) -> None:
        self.said = [first]

    def say(self, value: Any, *, twice: Any = None) -> list[Any]:
        self.said.append((value, twice))
        return self.said


def pair(*values: Any) -> list[Any]:
    return list(values)


@st.composite
def programs(draw: st.DrawFn) -> list[tuple[int, list[int]]]:
    """Return steps: a function (-1) or an actor, and the earlier steps that it reads."""
    steps: list[tuple[int, list[int]]] = []
    for number in range(draw(st.integers(1, 8))):
        reads = draw(st.lists(st.integers(0, number - 1), max_size=2)) if number else []
        steps.append((draw(st.integers(-1, ACTORS - 1)), reads))
    return steps


def built(steps: list[tuple[int, list[int]]]) -> list[dag.Node]:
    actors = [dag.actor(Journal).bind(dag.bind(pair, number)) for number in range(ACTORS)]
    nodes: list[dag.Node] = []
    for which, reads in steps:
        values = [nodes[each] for each in reads]
        nodes.append(dag.bind(pair, *values) if which < 0 else actors[which].say.bind(values, twice=(values or [None])[-1]))
    return nodes


def computed(steps: list[tuple[int, list[int]]]) -> list[Any]:
    actors = [Journal([number]) for number in range(ACTORS)]
    values: list[Any] = []
    for which, reads in steps:
        read = [values[each] for each in reads]
        values.append(pair(*read) if which < 0 else deepcopy(actors[which].say(read, twice=(read or [None])[-1])))
    return values


def has_circle(steps: list[tuple[int, list[int]]]) -> bool:
    """Return whether actors, each as one whole, and functions need each other in a circle."""
    of = [("function", number) if which < 0 else ("actor", which) for number, (which, _) in enumerate(steps)]
    needs: dict[Any, set[Any]] = {each: set() for each in of}
    for number, (_, reads) in enumerate(steps):
        needs[of[number]] |= {("value", each) for each in reads}
        needs["value", number] = {of[number]}
    while ready := [each for each, left in needs.items() if not left]:
        for each in ready:
            del needs[each]
        for left in needs.values():
            left.difference_update(ready)
    return bool(needs)


def ran(spec: Any, blobs: dict[str, bytes]) -> dict[str, Any]:
    """Run the graph as workers do, each node alone."""
    values: dict[str, Any] = {}
    loaded = {name: pickle.loads(data) for name, data in blobs.items()}  # noqa: S301  this test's own functions
    for place in spec.order.tolist():
        call = spec.calls.call(place)
        function = selected if call.function.startswith("call:") else loaded[call.function.removeprefix("blob:")]
        args = [resolve(form, value_of=values.__getitem__, blob_of=loaded.__getitem__) for form in call.args]
        is_actor = any(type(each) is ActorCalls for each in args)
        values[spec.calls.ids[place]] = make_calls(function, args, {}, lambda *_: None) if is_actor else function(*args)
    return values


@given(programs())
def test_a_graph_computes_what_its_program_computes(steps):
    nodes = built(steps)
    outputs = {f"step-{number}": node for number, node in enumerate(nodes)}
    if has_circle(steps):
        with pytest.raises(CycleError, match="a call of the actor"):
            compile_columns(outputs)
        return
    columns = compile_columns(outputs)
    spec = parse_columns(columns.packed())
    values = ran(spec, dict(columns.blobs))
    assert [values[spec.outputs[name].node] for name in outputs] == computed(steps)


@given(programs().filter(lambda steps: not has_circle(steps)))
def test_both_forms_of_a_graph_with_actors_are_one(steps):
    outputs = {f"step-{number}": node for number, node in enumerate(built(steps))}
    assert digest(parse_columns(compile_columns(outputs).packed())) == digest(parse(json.dumps(compile_graph(outputs)).encode()))
