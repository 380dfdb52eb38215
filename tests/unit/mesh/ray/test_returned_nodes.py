"""Functions that return nodes, as a worker runs them: what is stored, and what is refused."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import cloudpickle
import pytest

import dag
from dag.spec.growth import graph_returned
from mesh.core.reasons import Reason
from mesh.core.values import Encoding
from mesh.ray.worker.execution import TaskCall, arguments_of, call_function, function_of, guarded


def task_call(folder: Path, *args: object, num_returns: int = 1, inline_limit_bytes: int = 100_000) -> TaskCall:
    return TaskCall(
        run="r",
        stage="r.1",
        node="f",
        attempt=2,
        args=args,
        kwargs={},
        values=(),
        blobs={},
        export=False,
        storage_url=folder.as_uri(),
        inline_limit_bytes=inline_limit_bytes,
        num_returns=num_returns,
    )


def run(function, call):
    key = f"blob:{id(function)}:{call.node}"
    loaded, given = function_of(key, cloudpickle.dumps(function)), arguments_of(call, {}, is_program=False)
    return guarded(call.node, 0, lambda: call_function(loaded, call, *given))


def countdown(number):
    return dag.bind(countdown, number - 1) if number else 0


def test_returned_nodes_name_their_attempt(tmp_path):
    fault = run(countdown, task_call(tmp_path, 3))
    stored, data = fault.grew
    assert (fault.reason, fault.pickled, stored.encoding, stored.uri) == (Reason.GRAPH_GREW, None, Encoding.GRAPH, None)
    spec = graph_returned(data, "f", 2)
    assert (spec.calls.ids, spec.calls.call(0).args) == (("countdown",), (2,))
    (code,) = spec.columns.blobs.values()
    assert pickle.loads(code)(0) == 0  # noqa: S301  just made
    assert pickle.loads(pickle.dumps(fault)).grew == fault.grew  # noqa: S301  just made


def test_a_value_is_a_value(tmp_path):
    assert run(countdown, task_call(tmp_path, 0)) == 0


def test_many_bytes_go_to_a_file(tmp_path):
    stored, data = run(countdown, task_call(tmp_path, 3, inline_limit_bytes=10)).grew
    assert (data, stored.uri.startswith(f"{tmp_path.as_uri()}/r/f-")) == (None, True)


@pytest.mark.parametrize(
    ("function", "num_returns", "type_name", "words"),
    [
        (lambda: [1, dag.bind(countdown, 1)], 1, "builtins.TypeError", r"the value of f holds <node countdown>, which has no value yet"),
        (lambda: dag.bind(countdown, 1), 2, "builtins.TypeError", "num_returns=2, but the function returned nodes: leave num_returns out"),
        (lambda: dag.bind(countdown, dag.param("day")), 1, "dag.errors.SpecError", "day"),
        (lambda: dag.continuation(7), 1, "dag.errors.GraphTypeError", r"continuation\(\) takes a node"),
        (lambda: dag.bind(countdown, (each for each in ())), 1, "dag.errors.NotSerializable", "argument number of countdown"),
    ],
    ids=["nodes in a list", "several outputs", "a parameter without a value", "no node", "an argument that cannot be sent"],
)
def test_what_is_wrong_is_an_error_of_the_function(tmp_path, function, num_returns, type_name, words):
    fault = run(function, task_call(tmp_path, num_returns=num_returns))
    assert (fault.type_name, fault.grew) == (type_name, None)
    assert re.search(words, fault.message)


def test_an_element_of_an_array_returns_no_nodes(tmp_path):
    fault = run(countdown, task_call(tmp_path, {"$each": [1, 2], "span": [0, 2]})._replace(attempt=1))
    assert (fault.reason, fault.grew) == (Reason.RESULT_UNSERIALIZABLE, None)
    assert "elements of arrays and calls of actors cannot return nodes" in fault.message
