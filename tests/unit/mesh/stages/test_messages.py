"""Reports of many tasks in one message."""

import pytest

from federation.dispatch import STAGE_MESSAGES
from federation.store.report_parts import PART_BYTES, PART_TASKS, parts_of
from mesh.core.values import Encoding, StoredValue
from mesh.core.wire import decode, encode
from mesh.errors import RuntimeAdapterError
from mesh.stages.messages import NodesSucceeded, NodeSucceeded

VALUE = StoredValue(sha256="0" * 64, size_bytes=1, encoding=Encoding.JSON)


def ends(count, **columns):
    fields = {"tasks": tuple(range(count)), "since_ms": 100, "started": (1,) * count, "took": (2,) * count, "workers": ("a:1", "b:2")}
    return NodesSucceeded(stage="s", **{**fields, **columns})


def test_ends_expand_to_one_message_each():
    message = ends(2, tasks=(2, 0), attempts=(1, 3), worker=(1, 0), stored={1: VALUE})
    assert list(message.single(("x", "y", "z"))) == [
        NodeSucceeded(stage="s", node="z", attempt=1, started_ms=101, finished_ms=103, worker="b:2"),
        NodeSucceeded(stage="s", node="x", attempt=3, started_ms=101, finished_ms=103, worker="a:1", stored=VALUE),
    ]


def test_ends_of_unknown_tasks_are_left_out():
    assert [one.node for one in ends(3).single(("x",))] == ["x"]


def test_ends_are_the_same_after_the_wire():
    message = ends(2, stored={1: VALUE})
    assert decode(STAGE_MESSAGES, encode([message], STAGE_MESSAGES)) == [message]


@pytest.mark.parametrize(
    "columns",
    [
        pytest.param({"took": (1,)}, id="a duration is missing"),
        pytest.param({"attempts": (1,)}, id="an attempt is missing"),
        pytest.param({"worker": (0, 2)}, id="a worker is unknown"),
        pytest.param({"workers": ()}, id="no worker is named"),
        pytest.param({"tasks": (-1, 0)}, id="a position is negative"),
    ],
)
def test_columns_that_do_not_fit_are_refused(columns):
    with pytest.raises(ValueError, match="nodes_succeeded"):
        ends(2, **columns)
    body = encode([ends(2)], STAGE_MESSAGES)
    for name, column in columns.items():
        body = body.replace(encode({name: getattr(ends(2), name)})[1:-1], encode({name: column})[1:-1])
    with pytest.raises(RuntimeAdapterError, match="nodes_succeeded"):
        decode(STAGE_MESSAGES, body)


def test_long_report_is_split_into_calls_of_the_link():
    stored = {entry: StoredValue(sha256="0" * 64, size_bytes=1, encoding=Encoding.PICKLE, uri="u" * 4_000) for entry in range(500, 1_500)}
    message = ends(2 * PART_TASKS + 1, stored=stored)
    parts = [part for _, part in parts_of(1, (message,))]
    assert all(len(encode(list(part), STAGE_MESSAGES)) < 2 * PART_BYTES for part in parts)
    assert all(len(one.tasks) <= PART_TASKS for part in parts for one in part)
    nodes = [str(task) for task in message.tasks]
    assert [one for part in parts for each in part for one in each.single(nodes)] == list(message.single(nodes))
