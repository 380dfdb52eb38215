"""Outbox of a runner: numbered messages until they are acked."""

from __future__ import annotations

import threading

from mesh.core.wire import encode
from mesh.ray.stage_runner.outbox import OUTPUT_BYTES_MAX, Outbox
from mesh.stages.messages import NodeOutput, NodeStarted, StageEnded


def started(stage, node):
    return NodeStarted(stage=stage, node=node, attempt=1, started_ms=0)


def numbers(batches):
    return [(stage, number) for stage, number, *_ in batches]


def test_messages_come_out_once_by_stage_and_in_order():
    box = Outbox()
    first, other, last = started("s1", "a"), started("s2", "b"), StageEnded(stage="s1")
    for message in (first, other, last):
        box.put(message)
    assert box.take(0) == [("s1", 1, [encode(first), encode(last)], {}, []), ("s2", 1, [encode(other)], {}, [])]
    assert box.take(0) == []


def test_values_come_with_the_messages_that_name_them():
    box = Outbox()
    box.put(started("s", "a"), {"00": b"x"})
    box.put(started("s", "b"), {"11": b"y"})
    assert box.take(0)[0][3] == {"00": b"x", "11": b"y"}


def test_finished_nodes_come_with_their_messages():
    box = Outbox()
    box.put(started("s", "a"), finished=[("r", "a", b"x")])
    box.put(started("s", "b"), finished=[("r", "b", None)])
    assert box.take(0)[0][4] == [("r", "a", b"x"), ("r", "b", None)]


def test_no_task_begins_while_too_much_is_unconfirmed():
    box, resumed = Outbox(bytes_max=1_000), []
    box.put(started("s", "a"), {"00": b"x" * 500}, finished=[("r", "a", b"y" * 500)])
    assert not box.has_room(lambda: resumed.append("now"))
    box.take(0)
    assert not box.has_room(lambda: resumed.append("once"))
    assert box.confirm({"s": 0}) == []
    assert resumed == []
    box.confirm({"s": 1})
    box.confirm({"s": 1})
    assert resumed == ["once"]
    assert box.has_room(resumed.clear)


def test_nothing_comes_of_nothing():
    assert Outbox().take(0) == []


def test_batches_are_counted_for_each_stage():
    box = Outbox()
    box.put(started("s1", "a"))
    first = box.take(0)
    box.put(started("s1", "b"))
    box.put(started("s2", "c"))
    assert [numbers(first), numbers(box.take(0))] == [[("s1", 1)], [("s1", 2), ("s2", 1)]]


def test_a_new_listener_gets_all_unacked_messages():
    box = Outbox()
    taken = []
    for node in ("a", "b", "c"):
        box.put(started("s", node))
        taken += box.take(0, 1)
    box.put(started("s", "d"))
    box.confirm({"s": 1})
    again = box.take(0, 2)
    assert again[:2] == taken[1:]
    assert numbers(again) == [("s", 2), ("s", 3), ("s", 4)]
    assert box.take(0, 2) == []


def test_an_earlier_listener_gets_and_acks_nothing():
    box = Outbox()
    box.take(0, 2)
    box.put(started("s", "a"))
    assert box.take(0, 1) == []
    assert numbers(box.take(0, 2)) == [("s", 1)]


def test_a_waiting_listener_leaves_messages_to_a_new_one():
    box = Outbox()
    box.take(0, 1)
    heard = []
    waiting = threading.Thread(target=lambda: heard.extend(box.take(0.3, 1)))
    waiting.start()
    box.take(0, 2)
    box.put(started("s", "a"))
    assert numbers(box.take(1, 2)) == [("s", 1)]
    waiting.join()
    assert heard == []


def test_an_acked_end_closes_a_stage_and_restarts_its_count():
    box = Outbox()
    box.put(started("s", "a"))
    box.take(0)
    box.put(StageEnded(stage="s"))
    assert box.confirm({"s": 1}) == []
    box.take(0)
    assert box.has_ended("s")
    assert box.confirm({"s": 2}) == ["s"]
    assert not box.has_ended("s")
    box.put(started("s", "a"))
    assert numbers(box.take(0)) == [("s", 1)]


def test_unconfirmed_output_is_bounded_and_stops_nothing_else():
    box = Outbox()
    output = NodeOutput(stage="s", node="a", attempt=1, number=1, at_ms=0, stream="stdout", lines=("x" * 1_000,) * 100)
    for _ in range(2 * OUTPUT_BYTES_MAX // 100_000):
        box.put(output)
        box.take(0)
    box.put(started("s", "a"))
    ((_, number, messages, *_),) = box.take(0)
    assert messages == [encode(started("s", "a"))]
    box.confirm({"s": number})
    box.put(output)
    assert box.take(0)[0][2] == [encode(output)]
