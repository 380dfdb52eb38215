"""Laws of the forms of a graph: JSON and columns are the same graph, and no message of columns does more than be refused."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from typing import Any

import msgpack
import numpy as np
import pytest
from examples_of_laws import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dag.errors import SpecError
from dag.run.machine import RunMachine
from dag.run.node_facts import KeptCheckpoint
from dag.run.node_table import NodeTable
from dag.run.run_status import Edges
from dag.run.runs import RunRecord, StageRecord
from dag.run.stage_dispatch import spec_of
from dag.spec.columns import KEYS
from dag.spec.forms import used_params
from dag.spec.plans import Plans, nodes_by_kind, plans_of
from dag.spec.spec import DagSpec, digest, kept_form, load, outputs_of, parse, parse_columns
from mesh.core.ids import MeshId, NodeId, RunId, StageId, TenantPath
from mesh.core.values import Encoding, StoredValue
from mesh.core.wire import decode, encode
from mesh.stages.spec import StageSpec, StageTasks

CODE = b"pickled code"
SHA = hashlib.sha256(CODE).hexdigest()

plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5)
literals = st.recursive(
    plain, lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=3), below, max_size=2), max_leaves=4
)
keys = st.text(max_size=3).map(lambda key: f"${key}" if key.startswith("$") else key)
options = st.fixed_dictionaries(
    {},
    optional={
        "num_cpus": st.sampled_from([0.5, 1, 2]),
        "priority": st.integers(0, 3),
        "labels": st.fixed_dictionaries({}, optional={"zone": st.sampled_from(["eu", "!us"]), "disk": st.just("ssd")}),
        "gang": st.fixed_dictionaries({"size": st.integers(1, 2)}, optional={"strategy": st.sampled_from(["PACK", "SPREAD"])}),
        "retries": st.integers(0, 2),
    },
)


@dataclass(frozen=True)
class Named:
    """Place of a node or a parameter in a form, until the names are known."""

    kind: str
    number: int
    path: tuple[Any, ...] | None = None


places = st.integers(0, 5)
leaves = (
    plain
    | st.just({"$uri": "s3://a"})
    | st.just({"$blob": SHA})
    | st.builds(Named, st.sampled_from(["$ref", "$ref", "$param"]), places, st.none() | st.just((0, "k")))
    | st.lists(st.builds(Named, st.just("$ref"), places), max_size=4)
)
forms = st.recursive(
    leaves,
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(keys, below, max_size=2)
        | st.lists(below, max_size=2).map(lambda parts: {"$tuple": parts})
    ),
    max_leaves=4,
)
drawn_nodes = st.lists(
    st.fixed_dictionaries(
        {
            "function": st.sampled_from([{"call": "m:f"}, {"call": "m:g"}, {"function": {"$blob": SHA}}]),
            "args": st.lists(forms, max_size=3),
            "kwargs": st.dictionaries(st.text(max_size=2), forms, max_size=2),
            "after": st.lists(places, max_size=2),
            "options": options,
        }
    ),
    min_size=1,
    max_size=5,
)


def with_names(form: Any, earlier: list[str], params: list[str]) -> Any:
    """Return the form with names of nodes and parameters; null where there is none."""
    if isinstance(form, Named):
        known = earlier if form.kind == "$ref" else params
        path = {"path": list(form.path)} if form.path is not None and form.kind == "$ref" else {}
        return {form.kind: known[form.number % len(known)], **path} if known else None
    if isinstance(form, dict):
        return {key: with_names(part, earlier, params) for key, part in form.items()}
    return [with_names(part, earlier, params) for part in form] if isinstance(form, list) else form


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a valid graph as JSON; its nodes stand in the order of their needs, or turned round."""
    drawn = draw(drawn_nodes)
    ids = [f"n{place}{draw(st.sampled_from(['', '.x', ':[1]']))}" for place in range(len(drawn))]
    params = draw(st.dictionaries(st.sampled_from(["p", "q"]), literals, max_size=2))
    nodes: dict[str, Any] = {}
    for place, fields in enumerate(drawn):
        earlier = ids[:place]
        nodes[ids[place]] = {
            **fields["function"],
            "args": [with_names(form, earlier, list(params)) for form in fields["args"]],
            "kwargs": {name: with_names(form, earlier, list(params)) for name, form in fields["kwargs"].items()},
            "after": [earlier[number % place] for number in fields["after"]] if place else [],
            "options": fields["options"],
        }
    if draw(st.booleans()):
        nodes = dict(reversed(nodes.items()))
    taken = set(used_params(nodes))
    params = {name: value for name, value in params.items() if name in taken}
    document = {"spec": "dag/1", "params": params, "nodes": nodes, "outputs": {"r": {"$ref": draw(st.sampled_from(ids)), "path": [0]}}}
    if draw(st.booleans()):
        document["defaults"] = {"retries": 1, "labels": {"zone": "eu"}}
    if SHA in json.dumps(nodes):
        document["blobs"] = {SHA: base64.b64encode(CODE).decode()}
    return document


def body_of(document: dict[str, Any]) -> bytes:
    return json.dumps(document).encode()


def without_order(value: Any) -> Any:
    """Return the value with the order of keys reversed everywhere but in the arguments by name."""
    return {key: without_order(value[key]) for key in reversed(value)} if isinstance(value, dict) else value


def seen(spec: DagSpec) -> Any:
    """Return what the rest of the root sees of a graph."""
    return (
        [(node, plan) for node, plan in plans_of(spec).items()],
        nodes_by_kind(spec),
        {node: spec.needs_of(node) for node in spec.nodes},
        list(spec.nodes.items()),
        dict(spec.outputs),
    )


@settings(max_examples=examples(120))
@given(documents())
def test_json_and_columns_are_the_same_graph(document):
    spec = parse(body_of(document))
    sent = parse_columns(spec.columns.packed())
    written = parse(body_of(spec.columns.as_json()))
    kept = load(kept_form(spec))
    assert seen(sent) == seen(written) == seen(kept) == seen(spec)
    assert digest(sent) == digest(written) == digest(kept) == digest(spec)
    assert sent.blob_bytes() == written.blob_bytes() == spec.blob_bytes()
    assert (kept_form(sent), dict(outputs_of(kept_form(sent)))) == (kept_form(spec), dict(spec.outputs))


@settings(max_examples=examples(120))
@given(documents())
def test_the_order_of_keys_does_not_change_a_graph(document):
    turned = without_order(document)
    assert digest(parse(body_of(turned))) == digest(parse(body_of(document)))


@settings(max_examples=examples(120))
@given(documents())
def test_another_argument_is_another_graph(document):
    node = next(iter(document["nodes"]))
    changed = {**document["nodes"], node: {**document["nodes"][node], "args": [*document["nodes"][node]["args"], "one more"]}}
    assert digest(parse(body_of({**document, "nodes": changed}))) != digest(parse(body_of(document)))


@settings(max_examples=examples(120))
@given(documents(), st.data())
def test_a_stage_has_the_same_tasks_as_columns_and_as_rows(document, data):
    plans = plans_of(parse(body_of(document)))
    nodes = tuple(node for node in plans if data.draw(st.booleans())) or (next(iter(plans)),)
    records = NodeTable(plans)
    for node in records.values():
        node.attempt, node.exported = data.draw(st.integers(1, 2)), data.draw(st.booleans())
    stored = StoredValue(sha256=SHA, size_bytes=3, encoding=Encoding.PICKLE)
    records[nodes[0]].checkpoint = KeptCheckpoint(attempt=1, number=1, saved_ms=1, stored=stored)
    stage = StageRecord(stage=StageId("r.1"), mesh=MeshId("east"), level=0, nodes=nodes)
    record = RunRecord(run=RunId("r"), tenant=TenantPath("acme"), digest="", spec=b"", nodes=records)
    columns, rows = spec_of(record, stage, plans, {}), spec_of(record, stage, dict(plans), {})
    again = decode(StageSpec, encode(columns))
    assert again == columns == rows == decode(StageSpec, encode(rows))
    assert encode(again) == encode(columns) == encode(decode(StageSpec, encode(again)))
    assert (again.blobs(), again.gang, again.external_inputs()) == (rows.blobs(), rows.gang, rows.external_inputs())
    assert (again.nodes, list(again.needs())) == (rows.nodes, list(rows.needs()))
    assert [task.node for task in again.tasks[:2]] == list(nodes[:2])
    assert again.tasks[-1] == rows.tasks[-1]


# -- untrusted messages ------------------------------------------------------------------------------------------------


def refused_or_right(message: bytes) -> None:
    """Read a message: it is refused with its problems, or it is a graph that comes back from its own columns."""
    try:
        spec = parse_columns(message)
    except SpecError:
        return
    again = parse_columns(spec.columns.packed())
    assert digest(again) == digest(spec)
    assert seen(again) == seen(spec)


@given(
    st.binary(max_size=200)
    | st.builds(
        msgpack.packb, st.dictionaries(st.sampled_from(list(KEYS)), st.binary(max_size=40) | st.none() | places | st.text(max_size=5))
    )
)
def test_any_bytes_are_refused_with_their_problems(message):
    refused_or_right(message)


@settings(max_examples=examples(120))
@given(documents(), st.data())
def test_a_message_with_changed_bytes_does_no_harm(document, data):
    message = bytearray(parse(body_of(document)).columns.packed())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(message) - 1))
        message[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    refused_or_right(bytes(message))


@settings(max_examples=examples(120))
@given(documents(), st.data())
def test_a_message_with_a_changed_column_does_no_harm(document, data):
    parts = msgpack.unpackb(parse(body_of(document)).columns.packed())
    name = data.draw(st.sampled_from(list(KEYS)))
    numbers = st.lists(st.integers(0, 8) | st.just(2**32 - 1), max_size=8).map(
        lambda found: b"".join(n.to_bytes(4, "little") for n in found)
    )
    texts = st.recursive(
        plain | st.sampled_from([{"$ref": 0}, {"$ref": 1}, {"$list": [0, 2]}, {"$value": 0}]), lambda part: st.lists(part, max_size=3)
    )
    if name == "ids":
        parts[name] = data.draw(st.lists(st.sampled_from(["n0", "n1", "a/b"]) | st.text(max_size=3), max_size=4).map("\n".join))
    elif name == "tables":
        tables = json.loads(parts[name])
        tables["shapes"] = data.draw(st.lists(st.tuples(st.lists(texts, max_size=2), st.dictionaries(keys, texts, max_size=2)), max_size=3))
        parts[name] = json.dumps(tables).encode()
    else:
        parts[name] = data.draw(numbers | texts.map(lambda value: json.dumps(value).encode()))
    refused_or_right(msgpack.packb(parts))


@settings(max_examples=examples(120))
@given(literals, st.booleans())
@example(1, True)
@example({"$ref": [None, {"$value": 0}]}, True)
def test_a_stage_with_a_parameter_can_be_read(value, is_whole):
    form = {"$param": "p"} if is_whole else [{"$param": "p"}, {"k": {"$param": "p"}}]
    nodes = {"a": {"call": "m:f", "args": [form, 7], "kwargs": {"k": form}}}
    plans = plans_of(parse(body_of({"spec": "dag/1", "params": {"p": value}, "nodes": nodes, "outputs": {"r": {"$ref": "a"}}})))
    tasks = plans.tasks_of((NodeId("a"),), attempts={}, exported=(), checkpoints={})
    assert StageTasks.of_text(tasks.as_text()) == tasks
    assert StageTasks.of(tuple(tasks)) == tasks


@settings(max_examples=examples(120))
@given(documents())
def test_columns_and_rows_have_the_same_edges(document):
    plans = plans_of(parse(body_of(document)))
    table = NodeTable(parse(body_of(document)).nodes)
    columns, rows = Edges(plans, table), Edges(dict(plans), table)
    assert (columns.order.tolist(), columns.needs, columns.followers, columns.readers) == (
        rows.order.tolist(),
        *(rows.needs, rows.followers, rows.readers),
    )
    every = np.arange(len(table))
    for mine, other in ((columns.to(every), rows.to(every)), (columns.of(every), rows.of(every))):
        assert [part.tolist() for part in mine] == [part.tolist() for part in other]
    assert columns.needs == {node: (*plan.task.inputs, *plan.task.after) for node, plan in plans.items()}
    tasks = plans.tasks_of(tuple(plans), attempts={}, exported=(), checkpoints={})
    assert StageTasks.of(tuple(tasks)) == tasks


def test_a_run_begins_without_a_plan_per_node(monkeypatch):
    nodes = {"a": {"call": "m:f"}, "b": {"call": "m:f", "args": [{"$ref": "a"}]}}
    plans = plans_of(parse(body_of({"spec": "dag/1", "nodes": nodes, "outputs": {"r": {"$ref": "b"}}})))
    monkeypatch.setattr(Plans, "__getitem__", lambda *_: pytest.fail("a plan was made"))
    record = RunRecord(run=RunId("r"), tenant=TenantPath("acme"), digest="", spec=b"")
    machine = RunMachine(record, plans, runtime_env={}, on_error="continue")
    assert machine.unplaced(0)
