"""Counts of open calls, with references that end when the test says so."""

import gc
import threading
import weakref
from collections import deque
from itertools import repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.actors.members import GroupMember
from mesh.actors.selection import least_busy
from mesh.core.ids import AgentId, TaskId
from mesh.ray.local.client.chosen import Chooser
from mesh.ray.local.client.in_flight import SENT_TOGETHER, AgentChannel, InFlight


class Reference:
    """Fake of Ray's reference, with its end only."""

    def __init__(self):
        self.callbacks = []
        self.is_there = False

    def _on_ready(self, send):
        if self.is_there:
            send(None)
        else:
            self.callbacks.append(send)

    def end(self):
        self.is_there = True
        for send in self.callbacks:
            send(None)


class OldReference:
    """Reference of an older Ray, whose callback gets the value."""

    def __init__(self):
        self.callbacks = []

    def _on_completed(self, send):
        self.callbacks.append(send)


class Method:
    """Method of an actor's handle, named by the last call."""

    def __init__(self, name=""):
        self.name = name

    def options(self, *, name):
        return Method(name)

    def remote(self, *args):
        return (self.name, *args)


class Handle:
    def __init__(self, **methods):
        vars(self).update(methods)


def channel(place=0, **more):
    return AgentChannel(GroupMember(agent=AgentId(f"a-{place}"), handle=more.pop("handle", Handle()), rank=place, **more))


def test_a_call_counts_until_its_result_is_there():
    calls, way, reference = InFlight(), channel(), Reference()
    calls.send(reference, way)
    assert way.load.in_flight == 1
    reference.end()
    assert way.load.in_flight == 0


def test_a_result_that_is_there_at_once_is_counted_back():
    calls, way, reference = InFlight(), channel(), Reference()
    reference.end()
    calls.send(reference, way)
    assert way.load.in_flight == 0


def test_an_older_ray_tells_the_end_with_the_value():
    calls, way, reference = InFlight(), channel(), OldReference()
    calls.send(reference, way)
    reference.callbacks[0]("the value")
    assert way.load.in_flight == 0


def test_the_end_of_an_earlier_call_is_not_the_successors():
    calls, way, reference = InFlight(), channel(), Reference()
    calls.send(reference, way)
    calls.replace(way, way.member)
    reference.end()
    assert way.load.in_flight == 0


def test_a_death_before_a_refresh_keeps_the_successor():
    calls, way = InFlight(), channel()
    load = way.load
    calls.replace(way, way.member)
    calls.mark_out(way, load)
    assert not way.load.is_out
    calls.mark_out(way, way.load)
    assert way.load.is_out


@pytest.mark.parametrize(
    ("member", "sent"),
    [
        pytest.param({"task": TaskId("t"), "attempt": 2}, ("t#2.step", 7), id="the task's attempt is named with the method"),
        pytest.param({}, ("step", 7), id="without a task the method is all"),
    ],
)
def test_a_call_names_its_method_and_the_attempt_that_it_is_for(member, sent):
    way = channel(handle=Handle(call_named=Method()), **member)
    assert way.sender("step")(7) == sent
    assert way.sender("step") is way.sender("step")
    assert channel(handle=Handle(call=Method("call"))).sender("step")(7) == ("call", "step", 7)


def test_a_dead_agent_is_passed_over_before_it_is_called():
    dead, well = channel(0, handle=Handle(_get_local_state=lambda: 4)), channel(1)
    chooser = Chooser(InFlight(), (dead, well), least_busy, "the group")
    assert [chooser.choose()[0] for _ in range(3)] == [well] * 3
    assert dead.load.is_out
    assert (dead.load.in_flight, well.load.in_flight) == (0, 3)


def agent_line():
    """Return a channel to an agent that takes one call after the other."""
    return channel(handle=Handle(call_named=Method()))


@given(st.lists(st.booleans(), max_size=120))
def test_calls_to_an_agent_are_counted_back_a_few_together(sends):
    calls, way, under_way, most = InFlight(), agent_line(), deque(), 0
    for is_sent in sends:
        if is_sent:
            under_way.append(Reference())
            calls.send(under_way[-1], way)
        elif under_way:
            under_way.popleft().end()
        most = max(most, way.load.in_flight) if under_way else 0
        assert len(under_way) <= way.load.in_flight <= len(under_way) + most // SENT_TOGETHER
    while under_way:
        under_way.popleft().end()
    assert way.load.in_flight == 0


def test_a_burst_of_calls_is_sampled_and_leaves_nothing():
    calls, way = InFlight(), agent_line()
    burst = [Reference() for _ in range(100)]
    list(map(calls.send, burst, repeat(way)))
    assert sum(len(reference.callbacks) for reference in burst) < 25
    held = [weakref.ref(reference) for reference in burst]
    while burst:
        burst.pop(0).end()
    gc.collect()
    assert [reference() for reference in held] == [None] * 100


def test_calls_that_may_overtake_each_other_are_all_followed():
    calls, way, burst = InFlight(), channel(), [Reference() for _ in range(9)]
    for reference in burst:
        calls.send(reference, way)
    burst[-1].end()
    assert way.load.in_flight == 8


@pytest.mark.parametrize("handle", [Handle(), Handle(call_named=Method())])
def test_s3_many_threads_lose_no_count(handle):
    calls, ways = InFlight(), (channel(0, handle=handle), channel(1, handle=handle), channel(2, handle=handle))
    chooser = Chooser(calls, ways, least_busy, "the group")
    per_thread = 200

    def call():
        for _ in range(per_thread):
            way, load = chooser.choose()
            reference = Reference()
            calls.follow(reference, way, load)
            reference.end()

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [way.load.in_flight for way in ways] == [0, 0, 0]
