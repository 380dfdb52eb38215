"""Format `dag/1`: valid specs, and every reason for a refusal."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import pytest

from dag.errors import CycleError, SpecError
from dag.spec.plans import empty_gangs, plans_of
from dag.spec.spec import PROBLEMS_MAX, DagSpec, digest, kept_form, load, parse

CODE = b"pickled code"
SHA = hashlib.sha256(CODE).hexdigest()
OTHER_SHA = hashlib.sha256(b"other").hexdigest()


def graph(**changes: Any) -> dict[str, Any]:
    """Return a small valid graph with changes at its top level."""
    document = {
        "spec": "dag/1",
        "nodes": {
            "split": {"call": "ads.etl:split", "args": [1, {"$uri": "s3://in/a"}]},
            "score": {"call": "ads.ml:Model.score", "args": [{"$ref": "split", "path": ["w", 0]}], "options": {"num_gpus": 1}},
        },
        "outputs": {"scores": {"$ref": "score"}},
    }
    return {**document, **changes}


def with_node(**node: Any) -> dict[str, Any]:
    return graph(nodes={**graph()["nodes"], "more": node})


def with_param(day: Any) -> dict[str, Any]:
    return graph(params={"day": day}, nodes={**graph()["nodes"], "split": {"call": "ads.etl:split", "args": [{"$param": "day"}]}})


def body_of(document: Any) -> bytes:
    return json.dumps(document).encode()


def problems_of(document: Any) -> tuple[tuple[str, str], ...]:
    with pytest.raises(SpecError) as wrong:
        parse(document if isinstance(document, bytes) else body_of(document))
    return wrong.value.problems


def test_a_right_graph_is_read():
    spec = parse(body_of(graph(id="night-7", tenant="acme/nlp", on_error="continue", code={"runtime_env": {"env_vars": {"A": "b"}}})))
    assert isinstance(spec, DagSpec)
    assert (spec.id, spec.tenant, spec.on_error, spec.code.runtime_env) == ("night-7", "acme/nlp", "continue", {"env_vars": {"A": "b"}})
    assert spec.needs_of("score") == (("split",), ())
    assert spec.outputs["scores"].node == "score"


def test_inputs_are_in_reading_order_and_order_edges_apart():
    node = {
        "call": "a:b",
        "args": [[{"$ref": "c"}, {"k": {"$tuple": [{"$ref": "a"}]}}]],
        "kwargs": {"x": {"$ref": "b"}, "y": {"$ref": "a"}},
        "after": ["b", "d", "d"],
    }
    leaves = {name: {"call": "a:b"} for name in "abcd"}
    spec = parse(body_of(graph(nodes={**leaves, "n": node}, outputs={"r": {"$ref": "n"}})))
    assert spec.needs_of("n") == (("c", "a", "b"), ("d",))


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        pytest.param(b'{"spec": "dag/1",}', "", "not JSON: .*line 1, column 1[78]", id="broken JSON is reported with line and column"),
        pytest.param(b"\xff{}", "", "not UTF-8: byte 0", id="bytes that are no text"),
        pytest.param(b'{"spec": NaN}', "", "NaN is not a JSON number", id="a number that JSON does not have"),
        pytest.param(b'{"params": {"x": 1e999}}', "/params/x", "larger than a float", id="a number beyond floats"),
        pytest.param(b"1" * 5000, "", "not JSON", id="a number of 5000 digits"),
        pytest.param(b'{"params": {"x": "\\ud800"}}', "/params/x", "half of a surrogate pair", id="half a character"),
        pytest.param(b'{"params": {"\\udc00": 1}}', "/params", "a key holds half", id="half a character in a key"),
        pytest.param(b'{"nodes": {"a": {}, "a": {}}}', "/nodes/a", "occurs twice", id="a key that is there twice"),
        pytest.param(b"[]", "", "must be an object", id="a list instead of a graph"),
        pytest.param(b"[" * 100_000, "", "nested deeper than 64", id="brackets without end"),
        pytest.param(
            b'{"params": ' + b"[" * 70 + b"]" * 70 + b"}", "/params" + "/0" * 63, "nested deeper than 64", id="a value that is too deep"
        ),
    ],
)
def test_text_that_is_not_one_clear_value_is_refused(text, place, words):
    with pytest.raises(SpecError, match=words) as wrong:
        parse(text)
    assert wrong.value.problems[0][0] == place


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        pytest.param(graph(frob=1), ("/frob", "unknown key"), id="an unknown key"),
        pytest.param(graph(node={}), ("/node", "unknown key; did you mean nodes?"), id="a misspelt key"),
        pytest.param(graph(spec="dag/2"), ("/spec", "must be 'dag/1'"), id="another format"),
        pytest.param(graph(on_error="explode"), ("/on_error", "must be 'fail_fast' or 'continue'"), id="an unknown way out"),
        pytest.param(graph(id="a:b"), ("/id", "'a:b' is not a valid id"), id="a run id with a colon"),
        pytest.param(graph(id=".."), ("/id", "'..' is not a valid id"), id="a run id that is a folder"),
        pytest.param(graph(tenant="/acme"), ("/tenant", "'/acme' is not a tenant"), id="a tenant without its first name"),
        pytest.param(graph(nodes={}), ("/nodes", "is empty"), id="no nodes"),
        pytest.param(graph(outputs={}), ("/outputs", "is empty"), id="no outputs"),
        pytest.param(
            graph(outputs={"r": {"$ref": "scor"}}),
            ("/outputs/r/$ref", "there is no node scor; did you mean score?"),
            id="an output of no node",
        ),
        pytest.param(graph(outputs={"r": 3}), ("/outputs/r", "must be a valid dictionary"), id="an output that is a value"),
        pytest.param(
            graph(outputs={"r": {"$ref": "score", "path": [1.5]}}),
            ("/outputs/r/path", "`path` must be a list"),
            id="a path with half an index",
        ),
        pytest.param(graph(nodes={"a/b": {"call": "a:b"}}), ("/nodes/a~1b", "is not a valid name"), id="a node id with a slash"),
        pytest.param(
            graph(nodes={"x" * 201: {"call": "a:b"}}), (f"/nodes/{'x' * 200}", "is not a valid name"), id="a node id of 201 characters"
        ),
        pytest.param(graph(defaults={"retry": 1}), ("/defaults/retry", "unknown option; did you mean retry_on?"), id="a misspelt default"),
        pytest.param(with_node(), ("/nodes/more", "needs one of `call`, `function`"), id="a node without a function"),
        pytest.param(with_node(call="ads"), ("/nodes/more/call", "'ads' is not a function"), id="a module alone"),
        pytest.param(with_node(call="a:<lambda>"), ("/nodes/more/call", "is not a function"), id="a lambda by name"),
        pytest.param(with_node(call="a:f.__globals__"), ("/nodes/more/call", "leads to Python's internals"), id="the inside of a function"),
        pytest.param(
            with_node(call="a:b", map={}), ("/nodes/more/map", "a node is an array by an argument"), id="a map beside the arguments"
        ),
        pytest.param(
            graph(nodes={"gang": {"call": "a:b", "map": {}}}),
            ("/nodes/gang/map", "a node is an array by an argument"),
            id="a map beside the arguments, of a node with the name gang",
        ),
        pytest.param(
            graph(defaults={"gang": {"size": 2, "stategy": "PACK"}}),
            ("/defaults/gang/stategy", "unknown key; did you mean strategy?"),
            id="a misspelt key of a default gang",
        ),
        pytest.param(
            with_node(call="a:b", options={"gang": {"size": 2, "stategy": "PACK"}}),
            ("/nodes/more/options/gang/stategy", "unknown key; did you mean strategy?"),
            id="a misspelt key of a gang",
        ),
        pytest.param(
            with_node(call="a:b", options={"gang": {"size": 2, "strategy": "STRICTPACK"}}),
            (
                "/nodes/more/options/gang/strategy",
                "must be one of PACK, SPREAD, STRICT_PACK, STRICT_SPREAD, not 'STRICTPACK'; did you mean STRICT_PACK?",
            ),
            id="a misspelt strategy of a gang",
        ),
        pytest.param(
            with_node(call="a:b", options={"gang": {"size": 0}}),
            ("/nodes/more/options/gang/size", "must be greater than or equal to 1"),
            id="a gang of none",
        ),
        pytest.param(with_node(call="a:b", arg=[]), ("/nodes/more/arg", "unknown key; did you mean args?"), id="a misspelt key of a node"),
        pytest.param(
            with_node(call="a:b", options={"num_gpu": 1}),
            ("/nodes/more/options/num_gpu", "unknown option; did you mean num_gpus?"),
            id="a misspelt option",
        ),
        pytest.param(
            with_node(call="a:b", options={"num_cpus": True}), ("/nodes/more/options/num_cpus", "must be a valid number"), id="CPUs: true"
        ),
        *(
            pytest.param(
                with_node(call="a:b", options={"resources": {name: 1}}),
                ("/nodes/more/options/resources", "not a resource name"),
                id=f"resource {name!a}",
            )
            for name in ("gpu|1|gpu", "x\ny", "x\u2028y", "x\x7f")
        ),
        pytest.param(
            with_node(call="a:b", options={"num_cpus": 1e-9}), ("/nodes/more/options/num_cpus", "finer than"), id="a trace of a CPU"
        ),
        pytest.param(
            with_node(call="a:b", args=[{"$ref": "splat"}]),
            ("/nodes/more/args/0", "there is no node splat; did you mean split?"),
            id="a reference to no node",
        ),
        pytest.param(with_node(call="a:b", args=[{"$ref": 1}]), ("/nodes/more/args/0/$ref", "must be text"), id="a reference by number"),
        pytest.param(
            with_node(call="a:b", args=[{"$ref": "split", "x": 1}]),
            ("/nodes/more/args/0", "has to be alone"),
            id="a reference with company",
        ),
        pytest.param(
            with_node(call="a:b", args=[[{"k": {"$rof": 1}}]]),
            ("/nodes/more/args/0/0/k/$rof", "unknown form"),
            id="an unknown form, deep inside",
        ),
        pytest.param(
            with_node(call="a:b", args=[{"$item": True}]),
            ("/nodes/more/args/0/$item", "`$item` is not a form"),
            id="a form of other systems",
        ),
        pytest.param(with_node(call="a:b", args=[{"$tuple": 1}]), ("/nodes/more/args/0/$tuple", "must be a list"), id="a tuple of no list"),
        pytest.param(
            with_node(call="a:b", kwargs={"d": {"$param": "day"}}),
            ("/nodes/more/kwargs/d", "there is no parameter day"),
            id="a parameter that is not given",
        ),
        pytest.param(
            with_node(call="a:b", after=["nobody"]), ("/nodes/more/after/0", "there is no node nobody"), id="an order behind no node"
        ),
        pytest.param(
            with_node(call="a:b", args=["x" * 300_000]), ("/nodes/more/args/0", "293 KiB of literal data"), id="a literal of 300 KB"
        ),
        pytest.param(
            with_node(function={"$blob": SHA}), ("/nodes/more/function", f"`blobs` has no {SHA}"), id="a function that was not sent"
        ),
        pytest.param(
            with_node(function={"$blob": "abc"}), ("/nodes/more/function/$blob", "must be a SHA-256"), id="a function without a right name"
        ),
        pytest.param(
            with_node(call="a:b", args=[{"$blob": SHA}]),
            ("/nodes/more/args/0", f"`blobs` has no {SHA}"),
            id="an argument that was not sent",
        ),
        pytest.param(
            graph(blobs={SHA: base64.b64encode(CODE).decode()}), (f"/blobs/{SHA}", "no node names this blob"), id="a blob for nobody"
        ),
        pytest.param(
            graph(blobs={OTHER_SHA: base64.b64encode(CODE).decode()}),
            (f"/blobs/{OTHER_SHA}", f"have the SHA-256 {SHA}"),
            id="a damaged blob",
        ),
        pytest.param(graph(blobs={SHA: "***"}), (f"/blobs/{SHA}", "is not base64"), id="a blob that is no base64"),
    ],
)
def test_every_problem_is_reported_with_its_path(document, problem):
    place, words = problem
    found = problems_of(document)
    assert [text for where, text in found if where == place and words in text], found


def test_all_problems_are_reported_at_once_each_once():
    document = with_node(call="x", args=[{"$ref": "nobody"}], options={"num_gpu": 1}, mup=1)
    document["outputs"] = {"r": {"$ref": "noone"}}
    assert {place for place, _ in problems_of(document)} == {
        "/nodes/more/call",
        "/nodes/more/options/num_gpu",
        "/nodes/more/mup",
        "/nodes/more/args/0",
        "/outputs/r/$ref",
    }


def test_very_many_problems_are_counted():
    found = problems_of(graph(nodes={f"n{index}": {"call": "x"} for index in range(1_000)}, outputs={"r": {"$ref": "n1"}}))
    assert len(found) == PROBLEMS_MAX + 1
    assert found[-1] == ("", "and 800 more problems")


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        pytest.param(
            {
                "a": {"call": "m:f", "args": [{"$ref": "c"}]},
                "b": {"call": "m:f", "args": [{"$ref": "a"}]},
                "c": {"call": "m:f", "after": ["b"]},
            },
            "a -> b -> c -> a",
            id="through values and orders",
        ),
        pytest.param({"a": {"call": "m:f", "after": ["a"]}}, "a -> a", id="of one node"),
    ],
)
def test_a_circle_is_named_node_by_node(nodes, words):
    with pytest.raises(CycleError, match=words) as wrong:
        parse(body_of(graph(nodes=nodes, outputs={"r": {"$ref": "a"}})))
    assert wrong.value.problems[0][0] == "/nodes/a"


def test_parameters_may_not_make_a_small_body_a_large_graph():
    nodes = {f"n{index}": {"call": "a:b", "args": [{"$param": "p"}]} for index in range(200)}
    found = problems_of(graph(params={"p": "x" * 100_000}, nodes=nodes, outputs={"r": {"$ref": "n0"}}))
    assert [place for place, _ in found] == ["/params"]


def test_references_and_escapes_are_no_literal_data():
    ids = [f"a-rather-long-name-of-a-node-{index}" for index in range(9_000)]
    nodes = {name: {"call": "a:b"} for name in ids}
    nodes["all"] = {"call": "a:b", "args": [[{"$ref": name} for name in ids], {"$$ref": 1, "plain": 2}]}
    spec = parse(body_of(graph(nodes=nodes, outputs={"r": {"$ref": "all"}})))
    assert len(spec.needs_of("all")[0]) == 9_000


@pytest.mark.parametrize("labels", [{"zone": "!in(eu, us)", "spot": "!"}, {"zone": "in(eu)", "tier": "!gold"}])
def test_a_node_may_shun_labels(labels):
    assert parse(body_of(with_node(call="m:f", options={"labels": labels}))).nodes["more"].options.labels == labels


def test_an_invalid_label_selector_is_refused_with_its_path():
    with pytest.raises(SpecError) as refused:
        parse(body_of(with_node(call="m:f", options={"labels": {"zone": "!in(eu"}})))
    ((place, problem),) = refused.value.problems
    assert place == "/nodes/more/options/labels"
    assert "label zone: '!in(eu', character 7: `)` is missing" in problem


def test_blobs_are_given_back_as_bytes():
    document = with_node(function={"$blob": SHA}, args=[{"$blob": SHA}])
    spec = parse(body_of({**document, "blobs": {SHA: base64.b64encode(CODE).decode()}}))
    assert spec.blob_bytes() == {SHA: CODE}


def test_what_is_kept_has_no_blobs_and_is_the_same_graph():
    document = with_node(
        function={"$blob": SHA}, args=[{"$$ref": [1, 2.5, None, True, "é"]}], options={"labels": {"zone": "!eu"}, "memory": "4GiB"}
    )
    spec = parse(body_of({**document, "id": "r1", "blobs": {SHA: base64.b64encode(CODE).decode()}}))
    kept = kept_form(spec)
    again = load(kept)
    assert b"blobs" not in kept
    assert again.nodes == spec.nodes
    assert list(again.nodes) == list(spec.nodes)
    assert (again.outputs, again.id, digest(again)) == (spec.outputs, "r1", digest(spec))
    assert load(body_of({**document, "blobs": {SHA: base64.b64encode(CODE).decode()}})).nodes == spec.nodes


def test_garbage_in_the_store_is_an_error_of_the_spec():
    with pytest.raises(SpecError):
        load(b'{"spec": "dag/1"}')


OLDER = [
    pytest.param({"resources": {"cpus": 1}}, id="a misspelt resource"),
    pytest.param({"resources": {"a|b": 1}}, id="a separator in a resource"),
    pytest.param({"labels": {"zo\tne": "eu"}}, id="a tab in a label"),
    pytest.param({"label_selector": {"zone": "e\tu"}}, id="a tab in a node label"),
    pytest.param({"mesh": "ea\tst"}, id="a tab in a mesh"),
    pytest.param({"labels": {"zone": "!in(eu"}}, id="a wish that cannot be read"),
]


@pytest.mark.parametrize("options", OLDER)
def test_rules_for_submission_do_not_bind_kept_graphs(options):
    body = body_of({**with_node(call="m:f", options=options), "user": "a\tb"})
    with pytest.raises(SpecError):
        parse(body)
    spec = load(body)
    assert (spec.user, spec.nodes["more"].options.given()) == ("a\tb", options)


SAME = [
    pytest.param(graph(id="other"), id="another run id"),
    pytest.param(graph(nodes=dict(reversed(graph()["nodes"].items()))), id="another order of nodes"),
    pytest.param(graph(params={}, on_error="fail_fast", defaults={"retries": None}), id="defaults spelt out"),
]


@pytest.mark.parametrize("document", SAME)
def test_the_same_graph_has_the_same_digest(document):
    assert digest(parse(body_of(document))) == digest(parse(body_of(graph())))


DIFFERENT = [
    pytest.param(graph(on_error="continue"), id="another way out"),
    pytest.param(with_param(1), id="another parameter"),
    pytest.param(graph(defaults={"retries": 1}), id="another default"),
    pytest.param(graph(outputs={"scores": {"$ref": "split"}}), id="another output"),
    pytest.param(graph(tenant="acme"), id="another tenant"),
]


@pytest.mark.parametrize("document", DIFFERENT)
def test_another_graph_has_another_digest(document):
    assert digest(parse(body_of(document))) != digest(parse(body_of(graph())))


def test_a_gang_of_empty_bundles_is_found():
    spec = parse(body_of({**with_node(call="m:f", options={"num_cpus": 0}), "defaults": {"gang": {"size": 2}}}))
    assert ("/nodes/more/options/gang", "each bundle takes nothing; give num_cpus, num_gpus, memory or resources, above 0") in empty_gangs(
        spec
    )


def test_a_node_is_as_urgent_as_what_waits_for_it():
    def node(priority: int | None, *needs: str, after: tuple[str, ...] = ()) -> dict[str, Any]:
        options = {} if priority is None else {"priority": priority}
        return {"call": "m:f", "args": [{"$ref": need} for need in needs], "after": list(after), "options": options}

    nodes = {
        "shared": node(None),
        "ordered": node(1),
        "middle": node(2, "shared"),
        "urgent": node(9, "middle", after=("ordered",)),
        "patient": node(-3, "urgent"),
        "other": node(5, "shared"),
    }
    nodes["mapped"] = {"call": "m:f", "args": [{"$each": {"$ref": "other"}, "parts": 2}], "options": {"priority": 7}}
    plans = plans_of(parse(body_of({"spec": "dag/1", "nodes": nodes, "outputs": {"a": {"$ref": "patient"}, "b": {"$ref": "mapped"}}})))
    assert {name: plans[name].priority for name in nodes} == {
        "shared": 9,
        "ordered": 9,
        "middle": 9,
        "urgent": 9,
        "patient": -3,
        "other": 7,
        "mapped": 7,
    }
    assert plans.priority_of(["patient", "other"]) == 7
