"""Graphs as columns: every problem of a message, at the place and in the words of the same graph as JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgpack
import numpy as np
import pytest

from dag.errors import CycleError, SpecError
from dag.spec.columns import GraphColumns
from dag.spec.forms import sha256_of
from dag.spec.spec import digest, parse, parse_columns

DOCUMENT = {
    "spec": "dag/1",
    "params": {"day": 1},
    "nodes": {
        "a": {"call": "m:f", "args": [1, {"$param": "day"}]},
        "b": {"call": "m:g", "args": [[{"$ref": "a"}], "x"], "options": {"num_cpus": 2}},
        "c": {"call": "m:h", "args": [[{"$ref": "a"}, {"$ref": "b"}]], "options": {"priority": 1}},
        "d": {"call": "m:i", "kwargs": {"k": {"$ref": "c", "path": [0]}}, "after": ["b"], "options": {"retries": 1}},
    },
    "outputs": {"r": {"$ref": "d"}},
}


def columns() -> GraphColumns:
    return parse(json.dumps(DOCUMENT).encode()).columns


def problems_of(message: bytes, kind: type[SpecError] = SpecError) -> tuple[tuple[str, str], ...]:
    with pytest.raises(kind) as wrong:
        parse_columns(message)
    return wrong.value.problems


def with_head(**head: Any) -> GraphColumns:
    return replace(columns(), head={**columns().head, **head})


def with_options(options: dict[str, Any]) -> GraphColumns:
    return replace(columns(), options=(*columns().options[:-1], options))


def with_calls(**changes: Any) -> GraphColumns:
    return replace(columns(), calls=replace(columns().calls, **changes))


def with_argument(form: Any) -> GraphColumns:
    shapes = columns().calls.shapes
    return with_calls(shapes=(*shapes[:-1], replace(shapes[-1], kwargs={**shapes[-1].kwargs, "more": form})))


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(with_head(id="a:b"), id="a run id with a colon"),
        pytest.param(with_head(tenant="/acme"), id="a tenant without its first name"),
        pytest.param(with_head(frob=1), id="an unknown key"),
        pytest.param(with_head(spec="dag/2"), id="another format"),
        pytest.param(with_head(outputs={"r": {"$ref": "e"}}), id="an output of no node"),
        pytest.param(with_head(outputs={}), id="no outputs"),
        pytest.param(with_head(params={}), id="a parameter that is not given"),
        pytest.param(with_head(params={"day": "x" * 300_000}), id="a parameter that is too large"),
        pytest.param(with_head(defaults={"retry": 1}), id="a misspelt default"),
        pytest.param(with_options({"num_gpu": 1}), id="a misspelt option"),
        pytest.param(with_options({"gang": {"size": 2, "stategy": "PACK"}}), id="a misspelt key of a gang"),
        pytest.param(with_options({"num_cpus": True}), id="CPUs: true"),
        pytest.param(with_calls(functions=("call:m:f", "call:m:g", "call:m:h", "call:a:<lambda>")), id="a lambda by name"),
        pytest.param(with_calls(functions=("call:m:f", "call:m:g", "call:m:h", f"blob:{'a' * 64}")), id="code that was not sent"),
        pytest.param(with_calls(ids=("a", "b", "c", "d/e")), id="an id with a slash"),
        pytest.param(with_argument({"$rof": 1}), id="an unknown form"),
        pytest.param(with_argument({"$item": True}), id="a form of other systems"),
        pytest.param(with_argument({"$ref": 0, "x": 1}), id="a reference with company"),
        pytest.param(with_argument({"$ref": 0, "path": [1.5]}), id="a path with half an index"),
        pytest.param(with_argument({"k": ["x" * 300_000]}), id="a literal that is too large"),
        pytest.param(with_argument({"$blob": "a" * 64}), id="an argument that was not sent"),
        pytest.param(replace(columns(), blobs={sha256_of(b"code"): b"code"}), id="code for nobody"),
    ],
)
def test_a_wrong_graph_has_the_same_problems_in_both_forms(wrong):
    with pytest.raises(SpecError) as as_json:
        parse(json.dumps(wrong.as_json()).encode())
    assert sorted(problems_of(wrong.packed())) == sorted(as_json.value.problems)


def test_a_cond_needs_no_else_in_either_form():
    nodes = {**{name: {"call": "m:f"} for name in "ab"}, "c": {"cond": {"if": {"$ref": "a"}, "then": {"$ref": "b"}}}}
    spec = parse(json.dumps({"spec": "dag/1", "nodes": nodes, "outputs": {"c": {"$ref": "c"}}}).encode())
    assert digest(parse_columns(spec.columns.packed())) == digest(spec)


def test_a_circle_is_named_node_by_node():
    inputs = columns().calls.inputs.copy()
    inputs[0] = 3  # b reads d
    ((place, words),) = problems_of(with_calls(inputs=inputs).packed(), CycleError)
    assert (place, words) == ("/nodes/b", "the graph runs in a circle: b -> c -> d -> b")


def test_a_node_behind_its_reader_is_put_in_order():
    document = {**DOCUMENT, "nodes": dict(reversed(DOCUMENT["nodes"].items()))}
    spec = parse_columns(parse(json.dumps(document).encode()).columns.packed())
    assert list(spec.nodes) == ["d", "c", "b", "a"]
    assert [spec.calls.ids[place] for place in spec.order] == ["a", "b", "c", "d"]


def u32(*numbers: int) -> bytes:
    return np.array(numbers, "<u4").tobytes()


def tables(**changes: Any) -> bytes:
    return json.dumps({**json.loads(msgpack.unpackb(columns().packed())["tables"]), **changes}).encode()


@pytest.mark.parametrize(
    ("changes", "place", "words"),
    [
        pytest.param({"graph": b"{"}, "/graph", "not JSON", id="a graph that is no JSON"),
        pytest.param({"graph": b"[]"}, "/graph", "must be a JSON object", id="a graph that is a list"),
        pytest.param({"graph": b'{"nodes": {}}'}, "/graph", "holds `nodes`", id="nodes in two forms"),
        pytest.param({"graph": "{}"}, "/graph", "must be bytes", id="text for bytes"),
        pytest.param({"graph": None}, "/graph", "must be bytes", id="nothing for bytes"),
        pytest.param({"frob": b""}, "/frob", "unknown key; known are graph", id="an unknown key"),
        pytest.param({"ids": ""}, "/nodes", "is empty", id="no nodes"),
        pytest.param({"ids": "a\nb\na\nd"}, "/nodes/a", "two nodes have this id", id="two nodes with one id"),
        pytest.param({"ids": "a\nb\nc"}, "/function", "has 4 numbers; it must have 3", id="a node too few"),
        pytest.param({"ids": "\n" * 100_000}, "/nodes", "a graph has 100000 at most", id="too many nodes"),
        pytest.param({"function": b"123"}, "/function", "3 bytes are no array", id="three bytes"),
        pytest.param({"function": u32(0, 1, 2, 4)}, "/function", "4 is no place in a table of 4", id="a function that is not there"),
        pytest.param({"function": u32(0, 1, 2, 2)}, "/tables/functions/3", "no node uses this entry", id="a function for nobody"),
        pytest.param({"inputs": u32(0, 0, 1)}, "/inputs", "has 3 numbers; it must have 4", id="an input too few"),
        pytest.param({"inputs": u32(0, 0, 1, 4)}, "/inputs", "4 is no place of a node; there are 4 nodes", id="an input of no node"),
        pytest.param({"inputs": u32(0, 0, 0, 2)}, "/inputs", "names another node twice", id="an input twice"),
        pytest.param({"after": u32(3)}, "/after", "must have pairs", id="half a pair"),
        pytest.param({"after": u32(3, 1, 2, 1)}, "/after", "in the order of their first", id="pairs without order"),
        pytest.param({"after": u32(3, 2)}, "/inputs", "names another node twice", id="an order behind an input"),
        pytest.param({"values": b"[1]"}, "/values", "has 1 value; it must have 2", id="a value too few"),
        pytest.param({"values": b"[1,[]]"}, "/values/1", "must be text, a number", id="a value that is a list"),
        pytest.param({"values": b"[1,NaN]"}, "/values", "NaN is not a JSON number", id="a value that JSON does not have"),
        pytest.param({"values": b"[1,1e999]"}, "/values/1", "larger than a float", id="a number beyond floats"),
        pytest.param({"values": b'[1,"\\ud800"]'}, "/values/1", "half of a surrogate pair", id="half a character"),
        pytest.param({"blob_sizes": u32(7)}, "/blob_sizes", "add up to 7 bytes", id="code that is not there"),
        pytest.param({"tables": tables(frob=1)}, "/tables/frob", "unknown key", id="an unknown table"),
        pytest.param({"tables": tables(options=[])}, "/tables/options", "an entry or more", id="an empty table"),
        pytest.param({"tables": tables(functions=[1])}, "/tables/functions/0", "must be text", id="a function that is a number"),
        pytest.param({"tables": tables(shapes=[[[]]])}, "/tables/shapes/0", "must be a list of args", id="a shape without kwargs"),
        pytest.param({"tables": tables(shapes=[[[5], {}]])}, "/tables/shapes/0/args/0", "is a plain value", id="a plain value in a shape"),
        pytest.param(
            {"tables": tables(shapes=[[[{"$ref": 1}], {}]])}, "/tables/shapes/0/args/0", "a number from 0 to 0", id="a second input first"
        ),
        pytest.param(
            {"tables": tables(shapes=[[[[{"$ref": 0}, {"$ref": 1}]], {}]])},
            "/tables/shapes/0/args/0",
            'must be {"$list": [0, 2]}',
            id="a list that has a simpler form",
        ),
        pytest.param(
            {"tables": tables(shapes=[[[{"$list": [0, 1]}], {}]])}, "/tables/shapes/0/args/0", "new inputs, 2 or more", id="a list of one"
        ),
        pytest.param(
            {"tables": tables(shapes=[[[], {"k": [{"$value": 0}]}]])},
            "/tables/shapes/0/kwargs/k/0",
            "a whole argument only",
            id="a value inside an argument",
        ),
        pytest.param(
            {"tables": tables(shapes=[[[{"$list": [0, 300_000]}], {}]]), "shape": u32(0, 0, 0, 0)},
            "/nodes",
            "edges; a graph has 1000000 at most",
            id="a small list of very many inputs",
        ),
        *(
            pytest.param(
                {"tables": tables(shapes=[[[{"$list": [0, count]}], {}]]), "shape": u32(0, 0, 0, 0)},
                "/tables/shapes/0/args/0",
                "a call has 1000000 inputs at most",
                id=f"a list of {count} inputs",
            )
            for count in (2**62, 2**63)
        ),
        pytest.param(
            {"tables": tables(shapes=[[[{"$list": [0, 999_999]}, {"$list": [999_999, 2]}], {}]]), "shape": u32(0, 0, 0, 0)},
            "/tables/shapes/0/args/1",
            "a call has 1000000 inputs at most",
            id="two lists of too many inputs together",
        ),
    ],
)
def test_columns_of_a_wrong_form_are_refused_with_their_place(changes, place, words):
    found = problems_of(msgpack.packb({**msgpack.unpackb(columns().packed()), **changes}))
    assert [where for where, text in found if where == place and words in text], found


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\xc1", id="a byte that msgpack does not have"),
        pytest.param(b"\x91" * 100_000, id="lists without end"),
        pytest.param(b"\x81\xa5graph" * 10_000, id="maps without end"),
        pytest.param(b"\xdd\xff\xff\xff\xff", id="a list that is said to be very long"),
        pytest.param(b"\x82\xa3ids\xa1a\xa3ids\xa1b", id="a key that is there twice"),
        pytest.param(msgpack.packb({1: b""}), id="a key that is a number"),
        pytest.param(msgpack.packb(msgpack.ExtType(5, b"x")), id="an extension"),
        pytest.param(msgpack.packb({"ids": "a"})[:-1], id="a message that was cut off"),
        pytest.param(msgpack.packb({}) * 2, id="two messages"),
    ],
)
def test_bytes_that_are_no_columns_are_refused(message):
    assert problems_of(message)


def test_a_text_that_is_too_large_is_named_with_its_node():
    ((place, words),) = problems_of(with_calls(values=[1, "x" * 300_000]).packed())
    assert (place, "293 KiB of literal data" in words) == ("/nodes/b", True)


def test_few_bytes_may_not_become_a_large_graph():
    nodes = {f"n{index}": {"call": "m:f", "args": [["x" * 100_000]]} for index in range(200)}
    spec = {"spec": "dag/1", "nodes": {}, "outputs": {"r": {"$ref": "n0"}}}
    small = parse(json.dumps({**spec, "nodes": dict(list(nodes.items())[:2])}).encode()).columns
    many = replace(
        small.calls,
        ids=tuple(nodes),
        function=np.zeros(200, np.uint32),
        shape=np.zeros(200, np.uint32),
        kind=np.zeros(200, np.uint32),
    )
    ((place, words),) = problems_of(replace(small, calls=many).packed())
    assert (place, "19 MiB where they are used, 16 MiB at most" in words) == ("/nodes", True)


@pytest.mark.parametrize("part", [pytest.param({"$ref": 0}, id="a node"), pytest.param({"$uri": "s3://a"}, id="an address")])
def test_a_shared_shape_may_not_become_a_large_graph(part):
    nodes = {f"n{index}": {"call": "m:f", "args": [{"$ref": f"n{max(0, index - 1)}"}] if index else []} for index in range(401)}
    small = parse(json.dumps({**DOCUMENT, "params": {}, "nodes": nodes, "outputs": {"r": {"$ref": "n1"}}}).encode()).columns
    shapes = tuple(replace(shape, args=([{"$ref": 0}, *[part] * 20_000],)) if shape.inputs else shape for shape in small.calls.shapes)
    ((place, words),) = problems_of(replace(small, calls=replace(small.calls, shapes=shapes)).packed())
    assert (place, "without plain values where nodes use them, 64 MiB at most; let one node" in words) == ("/nodes", True)
