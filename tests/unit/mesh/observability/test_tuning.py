"""Closed loop of tuning: the setting that each missed target moves, its steps and its return."""

from __future__ import annotations

from itertools import pairwise

import pytest

from mesh.core.task_spec import Weights
from mesh.observability.metric_targets import MetricsSnapshot, Targets
from mesh.observability.tuning import CALM_BEFORE, MISSED_BEFORE, REPLICAS, REST_MS, Tuner, settings_of
from mesh.tasks.settings import SchedulerSettings

PERIOD_MS = 5_000
START = SchedulerSettings(weights=Weights(availability=1.0), aging_per_s=0.01)
TARGETS = Targets(preemptions_per_min=5, fragmentation_baseline=0.4)


class Loop:
    """Tuner whose proposals are applied."""

    def __init__(self, settings=None):
        self.settings = settings or START
        self.tuner = Tuner(TARGETS)
        self.now_ms = 0
        self.replicas = 1
        self.changes = []

    def run(self, periods, **facts):
        """Feed so many equal metrics and return the changed settings."""
        before = len(self.changes)
        for _ in range(periods):
            self.now_ms += PERIOD_MS
            metrics = MetricsSnapshot(at_ms=self.now_ms, **facts)
            changes = self.tuner.propose(metrics, self.settings, self.now_ms, replicas=self.replicas)
            self.settings = self.settings.changed(settings_of(changes))
            self.replicas = next((int(change.new) for change in changes if change.name == REPLICAS), self.replicas)
            self.changes += changes
        return self.changes[before:]


SLOW = {"schedule_latency_p95_ms": 300.0}
FAST = {"schedule_latency_p95_ms": 5.0}


def test_s15_a_missed_target_changes_a_setting():
    loop = Loop()
    assert loop.run(MISSED_BEFORE - 1, **SLOW) == []
    (change,) = loop.run(1, **SLOW)
    assert (change.name, change.old, change.new) == ("weights.availability", 1.0, 1.25)
    assert change.reason == "schedule_latency_p95 is 300, its target 200"
    assert loop.settings.weights.availability == 1.25


@pytest.mark.parametrize(
    ("facts", "name", "is_up"),
    [
        pytest.param(SLOW, "weights.availability", True, id="latency moves alpha"),
        pytest.param({"queue_wait_time_p99_ms": {"standard": 11_000.0}}, "aging_per_s", True, id="waits of the standard tier move aging"),
        pytest.param({"resource_fragmentation": 0.35}, "weights.fragmentation", True, id="fragmentation moves beta"),
        pytest.param({"preemption_count": {"a": 1, "b": 9}}, "rules.cross_label_weight", False, id="preemptions move the weight of labels"),
    ],
)
def test_s16_each_target_that_is_missed_moves_its_own_setting(facts: dict, name: str, is_up: bool):
    (change,) = Loop().run(MISSED_BEFORE, **facts)
    assert change.name == name
    assert (change.new > change.old) == is_up


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param({}, id="nothing is known"),
        pytest.param(FAST, id="all is well"),
        pytest.param({"queue_wait_time_p99_ms": {"high": 5_000.0}}, id="a miss of the high tier, which aging would make worse"),
        pytest.param({"placement_success_rate": 0.5, "agent_heartbeat_gap_ms": 99_999}, id="a miss that no setting cures"),
    ],
)
def test_else_nothing_moves(facts: dict):
    assert Loop().run(100, **facts) == []


def test_s16_replicas_come_once_the_weight_can_do_no_more():
    loop = Loop()
    changes = loop.run(200, **SLOW)
    names = [change.name for change in changes]
    assert names == ["weights.availability"] * 7 + [REPLICAS] * 3
    assert (loop.settings.weights.availability, loop.replicas) == (4.0, 4)


def test_a_change_has_time_to_show_before_the_next():
    loop = Loop()
    times_ms = [loop.now_ms for _ in range(60) if any(change.name == "weights.availability" for change in loop.run(1, **SLOW))]
    assert min(later - earlier for earlier, later in pairwise(times_ms)) >= REST_MS


def test_settings_return_to_the_users_values_after_a_good_time():
    loop = Loop()
    loop.run(30, **SLOW)
    assert loop.settings.weights.availability > 1.5
    loop.run(CALM_BEFORE - 1, **FAST)
    assert loop.settings.weights.availability > 1.5
    loop.run(10 * CALM_BEFORE, **FAST)
    assert loop.settings == START


def test_just_within_the_target_nothing_moves_either_way():
    loop = Loop()
    loop.run(30, **SLOW)
    assert loop.run(500, schedule_latency_p95_ms=180.0) == []


def test_what_proved_too_early_is_tried_ever_more_rarely():
    loop = Loop()
    moves = 0
    for _ in range(2_000):  # Slow exactly while alpha is below 1.5.
        moves += len(loop.run(1, **(SLOW if loop.settings.weights.availability < 1.5 else FAST)))
    assert moves <= 30


def test_what_its_user_changes_is_the_new_place_to_go_back_to():
    loop = Loop()
    loop.run(30, **SLOW)
    loop.settings = loop.settings.changed({"weights.availability": 2.0})
    assert loop.run(20 * CALM_BEFORE, **FAST) == []
    assert loop.settings.weights.availability == 2.0


def test_a_setting_that_its_user_put_beyond_the_bound_stays():
    loop = Loop(START.changed({"aging_per_s": 5.0}))
    assert loop.run(50, queue_wait_time_p99_ms={"standard": 99_000.0}) == []


def test_a_weight_keeps_its_place_among_the_others():
    loop = Loop(START.changed({"weights.availability": 0.1}))
    loop.run(200, **SLOW)
    assert loop.settings.weights.availability == 0.4


def test_a_setting_at_zero_can_leave_it():
    loop = Loop(START.changed({"aging_per_s": 0.0}))
    loop.run(MISSED_BEFORE, queue_wait_time_p99_ms={"standard": 99_000.0})
    assert loop.settings.aging_per_s == 0.001


def test_the_number_of_replicas_is_no_setting_of_the_scheduler():
    changes = Loop().run(200, **SLOW)
    assert REPLICAS not in settings_of(changes)
    assert "weights.availability" in settings_of(changes)
