"""Counting calls, with references that end when the test says so."""

import threading

import pytest

from mesh.actors.members import Member
from mesh.actors.selection import least_busy
from mesh.ids import AgentId, TaskId
from mesh.runtime.supervision.chosen import Chooser
from mesh.runtime.supervision.in_flight import InFlight, Line


class Reference:
    """As Ray's, as far as its end is concerned."""

    def __init__(self):
        self.told = []
        self.is_there = False

    def _on_ready(self, tell):
        if self.is_there:
            tell(None)
        else:
            self.told.append(tell)

    def end(self):
        self.is_there = True
        for tell in self.told:
            tell(None)


class OldReference:
    """As an older Ray's: the callback gets the value."""

    def __init__(self):
        self.told = []

    def _on_completed(self, tell):
        self.told.append(tell)


class Method:
    """Of an actor's handle; its name is what was called last."""

    def __init__(self, name=""):
        self.name = name

    def options(self, *, name):
        return Method(name)

    def remote(self, *args):
        return (self.name, *args)


class Handle:
    def __init__(self, **methods):
        vars(self).update(methods)


def line(place=0, **more):
    return Line(Member(agent=AgentId(f"a-{place}"), handle=more.pop("handle", Handle()), rank=place, **more))


def test_a_call_counts_until_its_result_is_there():
    calls, way, reference = InFlight(), line(), Reference()
    calls.send(reference, way)
    assert way.load.in_flight == 1
    reference.end()
    assert way.load.in_flight == 0


def test_a_result_that_is_there_at_once_is_counted_back():
    calls, way, reference = InFlight(), line(), Reference()
    reference.end()
    calls.send(reference, way)
    assert way.load.in_flight == 0


def test_an_older_ray_tells_the_end_with_the_value():
    calls, way, reference = InFlight(), line(), OldReference()
    calls.send(reference, way)
    reference.told[0]("the value")
    assert way.load.in_flight == 0


def test_the_end_of_a_call_to_the_one_before_is_not_the_successors():
    calls, way, reference = InFlight(), line(), Reference()
    calls.send(reference, way)
    calls.replace(way, way.member)
    reference.end()
    assert way.load.in_flight == 0


def test_who_died_before_the_refresh_does_not_take_the_successor_out():
    calls, way = InFlight(), line()
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
    way = line(handle=Handle(call_named=Method()), **member)
    assert way.sender("step")(7) == sent
    assert way.sender("step") is way.sender("step")
    assert line(handle=Handle(call=Method("call"))).sender("step")(7) == ("call", "step", 7)


def test_a_dead_agent_is_passed_over_before_it_is_called():
    dead, well = line(0, handle=Handle(_get_local_state=lambda: 4)), line(1)
    chooser = Chooser(InFlight(), (dead, well), least_busy, "the group")
    assert [chooser.choose()[0] for _ in range(3)] == [well] * 3
    assert dead.load.is_out
    assert (dead.load.in_flight, well.load.in_flight) == (0, 3)


def test_s3_many_threads_lose_no_count():
    calls, ways = InFlight(), (line(0), line(1), line(2))
    chooser = Chooser(calls, ways, least_busy, "the group")
    per_thread = 200

    def call():
        for _ in range(per_thread):
            _, load = chooser.choose()
            reference = Reference()
            calls.follow(reference, load)
            reference.end()

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [way.load.in_flight for way in ways] == [0, 0, 0]
