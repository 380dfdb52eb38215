"""Estimate of the end of a run."""

from __future__ import annotations

import numpy as np
import pytest

import dag
from dag.client.compiling import compile_columns
from dag.function_times import FunctionTimes
from dag.progress.estimate import WorkLeft, ends_at_ms, estimated_end_ms, work_left
from dag.run.node_facts import CacheState, CacheUse, TimerKind
from dag.run.node_table import NodeTable
from dag.run.runs import RunRecord, StageRecord
from dag.run.states import NodeState, RunState, StageState
from dag.spec.plans import plans_of
from dag.spec.spec import parse_columns

NOW_MS = 1_000_000


def load(number):
    return number


def train(number):
    return number


def total(*numbers):
    return sum(numbers)


class Started:
    """A run that holds slots, and the calls of its plans."""

    def __init__(self, outputs, slots=2, **expected_s):
        self.calls = plans_of(parse_columns(compile_columns(outputs, by_name=True).packed())).calls
        stage = StageRecord(stage="r.1", mesh="east", level=0, nodes=(), slots=slots, state=StageState.RUNNING)
        expected = {f"call:{__name__}:{name}": round(1000 * took_s) for name, took_s in expected_s.items()}
        self.record = RunRecord(run="r", tenant="acme", digest="", spec=b"", state=RunState.RUNNING, nodes=NodeTable(self.calls.ids))
        self.record.stages = {"r.1": stage} if slots else {}
        self.record.expected_ms = expected

    def done(self, *nodes, took_s=1.0):
        for node in nodes:
            kept = self.record.nodes[node]
            kept.state, kept.started_ms, kept.finished_ms = NodeState.SUCCEEDED, 1, 1 + round(1000 * took_s)
        return self

    def running(self, node, since_s=0.0, progress=None):
        kept = self.record.nodes[node]
        kept.state, kept.started_ms, kept.progress = NodeState.RUNNING, NOW_MS - round(1000 * since_s), progress
        return self

    def ends_in_s(self):
        found = estimated_end_ms(self.record, self.calls, NOW_MS)
        return None if found is None else (found - NOW_MS) / 1000


def fan(count=10):
    return total.bind(*[train.bind(number) for number in range(count)])


train, load, total = dag.task(train), dag.task(load), dag.task(total)


def test_a_fan_takes_its_work_over_the_slots():
    assert Started([train.bind(number) for number in range(10)], slots=2, train=4).ends_in_s() == 20


def test_more_slots_than_work_leave_the_longest_chain():
    assert Started(train.bind(load.bind(1)), slots=100, train=4, load=3).ends_in_s() == 7


def test_the_runs_own_times_replace_the_expected_ones():
    assert Started([train.bind(number) for number in range(10)], slots=1, train=4).done("train", took_s=1).ends_in_s() == 9


def test_a_cache_hit_says_nothing_of_run_times():
    run = Started([train.bind(number) for number in range(3)], slots=1, train=4).done("train", took_s=0)
    run.record.nodes["train"].cache = CacheUse(state=CacheState.HIT, key="k")
    assert run.ends_in_s() == 8


def test_a_running_node_needs_the_rest_of_its_time():
    assert Started(train.bind(1), slots=1, train=4).running("train", since_s=1).ends_in_s() == 3


def test_a_nodes_own_progress_says_how_long_it_needs():
    assert Started(train.bind(1), slots=1, train=4).running("train", since_s=3, progress=0.25).ends_in_s() == 9


def test_an_overdue_node_never_ends_in_the_past():
    assert Started(train.bind(1), slots=1, train=4).running("train", since_s=400).ends_in_s() == 0.4


def test_nothing_is_known_before_any_node_has_ended():
    assert Started(train.bind(1)).ends_in_s() is None


def test_few_nodes_of_an_unknown_function_take_the_mean():
    assert Started(fan(), slots=1).done("train", took_s=2).ends_in_s() == 20


def test_many_nodes_of_unknown_functions_have_no_end():
    assert Started([train.bind(load.bind(number)) for number in range(3)], train=1).done("load", "load-2").ends_in_s() is not None
    assert Started([*[load.bind(number) for number in range(3)], train.bind(0)], train=1).ends_in_s() is None


def test_a_run_without_slots_has_no_end():
    assert Started(train.bind(1), slots=0, train=1).ends_in_s() is None


def test_a_blocked_node_leaves_the_end_unknown():
    run = Started([train.bind(1), train.bind(2)], train=1)
    run.record.nodes["train"].state = NodeState.BLOCKED
    assert run.ends_in_s() is None


@pytest.mark.parametrize("state", [RunState.PENDING, RunState.CANCELLING, RunState.SUCCEEDED, RunState.FAILED])
def test_only_a_running_run_has_an_estimate(state):
    run = Started(train.bind(1), train=1)
    run.record.state = state
    assert run.ends_in_s() is None


def test_a_wait_for_a_signal_has_no_known_end():
    assert Started(train.bind(dag.wait_signal("go")), train=1).ends_in_s() is None


def test_a_sleep_takes_time_and_no_slot():
    waits = dag.after(train.bind(1), dag.sleep(30))
    run = Started(waits, slots=1, train=4)
    assert run.ends_in_s() == 34
    sleep = next(node for node in run.calls.ids if node != "train")
    run.record.nodes[sleep].timers = {TimerKind.WAKE: NOW_MS + 5_000}
    assert run.ends_in_s() == 9


def test_a_wait_before_the_next_attempt_counts():
    run = Started(train.bind(1), slots=1, train=4)
    run.record.nodes["train"].timers = {TimerKind.RETRY: NOW_MS + 60_000}
    assert run.ends_in_s() == 64


def test_an_array_takes_the_time_of_its_parts():
    assert Started(dag.map(train, range(10), parts=5), slots=1, train=3).ends_in_s() == 15


def test_an_ended_chain_costs_nothing():
    left = work_left(np.array([0.0, 5.0]), np.array([0.0, 5.0]), np.array([0]), np.array([1]))
    assert left == WorkLeft(slot_ms=5, way_ms=5)


def test_the_end_is_now_when_nothing_is_left():
    assert ends_at_ms(NOW_MS, WorkLeft(slot_ms=0, way_ms=0), 0) == NOW_MS


def test_a_function_is_known_once_a_node_of_it_has_ended():
    times = FunctionTimes()
    assert times.known_ms("acme", "call:m:f") is None
    times.note("acme", "call:m:f", "east", 100)
    assert times.known_ms("acme", "call:m:f") == pytest.approx(100.5)
    assert times.known_ms("acme", "call:m:g") is None
