from __future__ import annotations

from mesh.messages import NodeStarted, StageEnded
from mesh.runtime.outbox import Outbox
from mesh.wire import encode


def started(stage, node):
    return NodeStarted(stage=stage, node=node, attempt=1, started_ms=0)


def test_messages_come_out_once_by_stage_and_in_order():
    box = Outbox()
    first, other, last = started("s1", "a"), started("s2", "b"), StageEnded(stage="s1")
    for message in (first, other, last):
        box.put(message)
    assert box.take(0) == [("s1", [encode(first), encode(last)], {}), ("s2", [encode(other)], {})]
    assert box.take(0) == []


def test_the_bytes_of_values_come_with_the_messages_that_name_them():
    box = Outbox()
    box.put(started("s", "a"), {"00": b"x"})
    box.put(started("s", "b"), {"11": b"y"})
    assert box.take(0)[0][2] == {"00": b"x", "11": b"y"}


def test_nothing_comes_of_nothing():
    assert Outbox().take(0) == []
