"""Laws of the journal: every event and decision is read back exactly, and damage to a line is detected."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.core.json_codec import dataclasses_of
from mesh.core.pools import PoolSpec
from mesh.core.resources import AMOUNT_MAX, ResourceSet
from mesh.core.task_spec import TaskRequest
from mesh.tasks import decisions as decisions_module
from mesh.tasks import events as events_module
from mesh.tasks.decisions import Decision, StartTask, StopTask
from mesh.tasks.events import (
    Event,
    NodeJoined,
    NodeLeft,
    PoolConfigured,
    TaskCancelled,
    TaskStarted,
    TaskStopped,
    TaskSubmitted,
    Ticked,
)
from mesh.tasks.journal import Batch, JournalError, decode, encode, read
from mesh.tasks.scheduler import MeshScheduler

st.register_type_strategy(ResourceSet, st.dictionaries(st.text(max_size=6), st.integers(0, AMOUNT_MAX), max_size=3).map(ResourceSet))
st.register_type_strategy(float, st.floats(allow_nan=False))

EVENTS = dataclasses_of(events_module, Event)
DECISIONS = dataclasses_of(decisions_module, Decision)

batches = st.builds(
    Batch,
    st.integers(0, 2**53),
    st.lists(st.one_of(*map(st.from_type, EVENTS)), max_size=3).map(tuple),
    st.lists(st.one_of(*map(st.from_type, DECISIONS)), max_size=3).map(tuple),
)


@pytest.mark.parametrize("cls", [*EVENTS, *DECISIONS], ids=lambda cls: cls.__name__)
def test_every_kind_comes_back_as_it_was(cls):
    @given(st.from_type(cls))
    @settings(max_examples=15)
    def check(value):
        batch = Batch(7, (value,), ()) if isinstance(value, Event) else Batch(7, (), (value,))
        line = encode(batch.version, batch.events, batch.decisions)
        again = decode(line)
        assert again == batch
        assert encode(again.version, again.events, again.decisions) == line  # 1 and 1.0 are equal, but differ in type.

    check()


@given(st.lists(batches, max_size=4))
@settings(max_examples=40)
def test_a_journal_comes_back_in_its_order(kept):
    lines = [encode(batch.version, batch.events, batch.decisions) for batch in kept]
    assert all(line.count(b"\n") == 1 for line in lines)
    assert list(read(lines)) == kept


@given(batches, st.data())
@settings(max_examples=40)
def test_a_line_that_is_cut_anywhere_is_left_out_at_the_end(batch, data):
    line = encode(batch.version, batch.events, batch.decisions)
    cut = data.draw(st.integers(0, len(line) - 1))
    assert list(read([line, line[:cut]])) == [batch]


@given(batches, st.data())
@settings(max_examples=60)
def test_a_byte_that_turned_is_seen_wherever_it_is(batch, data):
    line = bytearray(encode(batch.version, batch.events, batch.decisions))
    place = data.draw(st.integers(0, len(line) - 2))
    line[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(JournalError, match=r"^line 1: "):
        list(read([bytes(line), encode(1, (), ())]))


histories = st.lists(
    st.one_of(
        st.builds(
            lambda number, cpu, priority, policy: TaskSubmitted(
                at_ms=0,
                request=TaskRequest(
                    task=f"t{number}", pool="p", resources=ResourceSet.of({"cpu": cpu}), priority=priority, policy=policy, estimated_ms=9
                ),
            ),
            st.integers(0, 9),
            st.sampled_from([0.5, 1, 2]),
            st.floats(0, 10),
            st.sampled_from(["", "random", "binpack"]),
        ),
        st.builds(lambda number: TaskCancelled(at_ms=0, task=f"t{number}"), st.integers(0, 9)),
        st.builds(lambda node: NodeJoined(at_ms=0, node=f"n{node}", total=ResourceSet.of({"cpu": 2})), st.integers(0, 2)),
        st.builds(lambda node: NodeLeft(at_ms=0, node=f"n{node}"), st.integers(0, 2)),
        st.just(Ticked(at_ms=0)),
    ),
    max_size=25,
)


@given(histories, st.integers(0, 3))
@settings(max_examples=40)
def test_s14_a_replayed_journal_gives_the_same_decisions(history, seed):
    """Random picks included: the generator is seeded."""
    scheduler, lines, at_ms = MeshScheduler(seed=seed), [], 0
    waiting = [PoolConfigured(at_ms=0, spec=PoolSpec(pool="p", capacity=ResourceSet.of({"cpu": 4}))), *history]
    while waiting:
        at_ms += 500
        event = replace(waiting.pop(0), at_ms=at_ms)
        decisions = scheduler.handle(event)
        lines.append(encode(scheduler.state.version, [event], decisions))
        for decision in decisions:
            if isinstance(decision, StartTask):
                waiting.insert(0, TaskStarted(at_ms=0, task=decision.task, attempt=decision.attempt, agent=decision.agent))
            elif isinstance(decision, StopTask):
                waiting.insert(0, TaskStopped(at_ms=0, task=decision.task, attempt=decision.attempt))
    again = MeshScheduler(seed=seed)
    for batch in read(lines):
        assert tuple(again.handle(*batch.events)) == batch.decisions
    assert again.state.version == scheduler.state.version
    assert again.to_snapshot() == scheduler.to_snapshot()
