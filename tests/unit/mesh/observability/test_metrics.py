"""Metrics, computed from events and decisions."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from mesh.core.reasons import Reason
from mesh.core.resources import NOTHING
from mesh.core.task_spec import TaskRequest
from mesh.observability.anomalies import AnomalyWatch
from mesh.observability.metric_targets import AgentReport, MetricsSnapshot, Targets, TargetStatus, check_targets
from mesh.observability.metrics import GONE_MAX, LABELS_MAX, SAMPLES_MAX, MeshMetrics, MinuteCounter, Window, percentile
from mesh.tasks.decisions import EndTask, ExplainWaiting, StartTask, StopTask
from mesh.tasks.events import AgentLost, TaskEnded, TaskRefused, TaskStarted, TaskStopped, TaskSubmitted, Ticked


def submitted(task="t", at_ms=0, **facts):
    return TaskSubmitted(at_ms=at_ms, request=TaskRequest(task=task, pool="p", **facts))


def start(task="t"):
    return StartTask(
        version=1, task=task, attempt=1, agent=f"agent of {task}", node="n", group=None, resources=NOTHING, reason=Reason.PLACED
    )


def started(task="t", at_ms=0):
    return TaskStarted(at_ms=at_ms, task=task, attempt=1, agent=f"agent of {task}")


def ended(task="t", at_ms=0, **more):
    return TaskEnded(at_ms=at_ms, task=task, attempt=1, **more)


def end(task="t"):
    return EndTask(version=1, task=task, reason=Reason.FINISHED)


def waits(task="t", reason=Reason.NODES_BUSY):
    return ExplainWaiting(version=1, task=task, reason=reason, detail="")


def preempt(task="t"):
    return StopTask(version=1, task=task, attempt=1, keep_state=True, grace_ms=0, reason=Reason.PREEMPTED)


@pytest.fixture
def metrics():
    return MeshMetrics()


# -- the six -----------------------------------------------------------------------------------------------------------


def test_s16_latency_is_the_95th_percentile_from_submit_to_bind(metrics: MeshMetrics):
    for place in range(100):
        metrics.fold([submitted(f"t{place}", at_ms=place)], [])
        metrics.fold([Ticked(at_ms=place + place)], [start(f"t{place}")], took_ms=0.5)
    assert metrics.snapshot(198).schedule_latency_p95_ms == 94.5


def test_a_task_waiting_for_capacity_counts_no_latency(metrics: MeshMetrics):
    metrics.fold([submitted(at_ms=0)], [waits()], took_ms=1.0)
    metrics.fold([Ticked(at_ms=30_000)], [start()], took_ms=2.0)
    snapshot = metrics.snapshot(30_000)
    assert snapshot.schedule_latency_p95_ms == 2.0
    assert snapshot.queue_wait_time_p99_ms == {"high": None, "standard": 30_002.0}


def test_s16_waits_are_counted_by_tier(metrics: MeshMetrics):
    metrics.fold([submitted("high", priority=8.0), submitted("standard", priority=7.9), submitted("waits")], [])
    metrics.fold([Ticked(at_ms=200)], [start("high")])
    metrics.fold([Ticked(at_ms=5_000)], [start("standard")])
    snapshot = metrics.snapshot(6_000)
    assert snapshot.queue_wait_time_p99_ms == {"high": 200, "standard": 5_000}
    assert snapshot.waiting == {"high": 0, "standard": 1}
    assert snapshot.waiting_longest_ms == {"high": 0, "standard": 6_000}


def test_a_dependent_task_waits_from_the_end_of_its_dependency(metrics: MeshMetrics):
    metrics.fold([submitted("first"), submitted("second", after=("first",))], [start("first")])
    assert metrics.snapshot(0).waiting["standard"] == 0
    metrics.fold([ended("first", at_ms=50_000)], [end("first"), start("second")])
    snapshot = metrics.snapshot(50_000)
    assert snapshot.queue_wait_time_p99_ms["standard"] == 0
    assert snapshot.schedule_latency_p95_ms == 0


def test_s16_success_is_the_share_of_starts_that_worked_at_once(metrics: MeshMetrics):
    for place in range(99):
        metrics.fold([submitted(f"t{place}")], [start(f"t{place}")])
        metrics.fold([started(f"t{place}")], [])
    metrics.fold([submitted("x")], [start("x")])
    metrics.fold([TaskRefused(at_ms=10, task="x", attempt=1, reason=Reason.START_FAILED, detail="")], [])
    assert metrics.snapshot(10).placement_success_rate == 0.99
    assert metrics.snapshot(70_000).placement_success_rate is None


def test_a_refused_start_waits_again(metrics: MeshMetrics):
    metrics.fold([submitted("x")], [start("x")])
    metrics.fold([TaskRefused(at_ms=10, task="x", attempt=1, reason=Reason.START_FAILED, detail="")], [])
    assert metrics.snapshot(30).waiting_longest_ms["standard"] == 20


def test_s16_preemptions_are_counted_by_the_label_that_gave_way(metrics: MeshMetrics):
    for place in range(3):
        metrics.fold([submitted(f"t{place}", label="tier:batch", at_ms=place)], [start(f"t{place}")])
        metrics.fold([Ticked(at_ms=place * 20_000)], [preempt(f"t{place}")])
    stop = StopTask(version=1, task="t0", attempt=1, keep_state=True, grace_ms=0, reason=Reason.CANCELLED_BY_USER)
    metrics.fold([Ticked(at_ms=40_000)], [stop])
    assert metrics.snapshot(40_000).preemption_count == {"tier:batch": 3}
    assert metrics.snapshot(65_000).preemption_count == {"tier:batch": 2}
    assert metrics.snapshot(200_000).preemption_count == {"tier:batch": 0}


def test_s16_the_gap_is_the_longest_silence_of_a_live_agent(metrics: MeshMetrics):
    metrics.fold([submitted("a"), submitted("b")], [start("a"), start("b")])
    metrics.fold([started("a"), started("b")], [])
    metrics.hear(AgentReport(agent="agent of a", at_ms=5_000))
    assert metrics.snapshot(20_000).agent_heartbeat_gap_ms == 20_000
    metrics.fold([ended("b", at_ms=20_000)], [end("b")])
    assert metrics.snapshot(20_000).gaps_ms == {"agent of a": 15_000}
    metrics.fold([AgentLost(at_ms=20_001, task="a", attempt=1, detail="")], [])
    assert metrics.snapshot(20_001).agent_heartbeat_gap_ms is None


def test_an_agent_kept_for_reuse_must_still_report(metrics: MeshMetrics):
    metrics.fold([submitted("a")], [start("a")])
    metrics.fold([started("a")], [])
    metrics.fold([ended("a", at_ms=1_000, keep_agent=True)], [end("a")])
    assert metrics.snapshot(9_000).agent_heartbeat_gap_ms == 9_000


def test_fragmentation_and_use_are_passed_through(metrics: MeshMetrics):
    snapshot = metrics.snapshot(0, fragmentation=0.25, use={"p": 0.5})
    assert (snapshot.resource_fragmentation, snapshot.use) == (0.25, {"p": 0.5})


def test_of_nothing_nothing_is_known(metrics: MeshMetrics):
    assert list(metrics.snapshot(1_000).numbers()) == []


def test_nothing_stays_of_tasks_that_are_over(metrics: MeshMetrics):
    for place in range(50):
        task = f"t{place}"
        metrics.fold([submitted(task, after=(f"t{place - 1}",))], [start(task)])
        metrics.fold([started(task)], [preempt(task)])
        metrics.fold([TaskStopped(at_ms=1, task=task, attempt=1)], [])
        metrics.fold([ended(task, at_ms=2)], [end(task)])
    values = metrics.snapshot(3)
    assert (values.running, values.gaps_ms) == (0, {})
    assert not any(values.waiting.values())


# -- reports of agents -------------------------------------------------------------------------------------------------


def test_s15_reports_are_added_up_over_agents(metrics: MeshMetrics):
    metrics.hear(AgentReport(agent="a", at_ms=0, cpu=1.5, rss_bytes=100, queue_length=2, failures=3, retries=1, queue_ms_max=7.0))
    metrics.hear(AgentReport(agent="b", at_ms=0, cpu=0.5, rss_bytes=50, queue_length=1, queue_ms_max=9.0))
    metrics.hear(AgentReport(agent="a", at_ms=5_000, cpu=2.0, rss_bytes=100, failures=4, retries=1))
    snapshot = metrics.snapshot(5_000)
    assert (snapshot.agents, snapshot.cpu, snapshot.rss_bytes, snapshot.queue_length) == (2, 2.5, 150, 1)
    assert (snapshot.failures_per_min, snapshot.retries_per_min, snapshot.queue_ms_max) == (4, 1, 9.0)


def test_an_agent_that_was_started_again_counts_from_zero(metrics: MeshMetrics):
    metrics.hear(AgentReport(agent="a", at_ms=0, failures=10))
    metrics.hear(AgentReport(agent="a", at_ms=5_000, failures=2))
    assert metrics.snapshot(5_000).failures_per_min == 12


def test_a_report_that_comes_late_does_not_bring_an_agent_back(metrics: MeshMetrics):
    metrics.hear(AgentReport(agent="a", at_ms=0))
    metrics.forget("a")
    metrics.hear(AgentReport(agent="a", at_ms=1))
    assert metrics.snapshot(60_000).agent_heartbeat_gap_ms is None
    metrics.fold([TaskStarted(at_ms=60_000, task="t", attempt=2, agent="a")], [])
    metrics.hear(AgentReport(agent="a", at_ms=61_000))
    assert metrics.snapshot(62_000).gaps_ms == {"a": 1_000}


def test_agents_and_labels_that_are_gone_take_bounded_room(metrics: MeshMetrics):
    for place in range(GONE_MAX + 10):
        metrics.forget(f"a{place}")
    for place in range(9, 11):
        metrics.hear(AgentReport(agent=f"a{place}", at_ms=1))
    assert list(metrics.snapshot(1).gaps_ms) == ["a9"], "only the last ended agents are remembered"
    for place in range(LABELS_MAX + 1):
        metrics.fold([submitted(f"t{place}", label=f"l{place}")], [start(f"t{place}"), preempt(f"t{place}")])
    metrics.snapshot(100_000)
    assert metrics.snapshot(100_000).preemption_count == {}


# -- windows -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        pytest.param([], 95, None, id="of nothing nothing"),
        pytest.param([7.0], 1, 7.0, id="of one that one"),
        pytest.param(range(1, 101), 95, 95, id="a hundred"),
        pytest.param(range(1, 101), 99, 99, id="its tail"),
        pytest.param(range(1, 11), 99, 10, id="of ten the largest"),
        pytest.param([3, 1, 2], 50, 2, id="in any order"),
    ],
)
def test_percentiles_are_numbers_that_were_seen(values, percent, expected):
    assert percentile(values, percent) == expected


def test_a_window_forgets_by_time_and_is_bounded():
    window = Window(width_ms=100)
    for at_ms in range(SAMPLES_MAX + 10):
        window.add(at_ms // 1_000, at_ms)
    assert len(window.values(5)) == SAMPLES_MAX
    assert window.values(5)[0] == 10
    assert window.values(104) == [float(value) for value in range(5_000, SAMPLES_MAX + 10)]


def test_a_counter_of_a_minute_keeps_one_number_per_second():
    counter = MinuteCounter()
    for at_ms in range(0, 60_000, 10):
        counter.add(at_ms)
    assert counter.total(59_999) == 6_000
    assert len(pickle.dumps(counter)) < 1_000
    assert counter.total(60_000) == 5_900
    assert counter.total(500_000) == 0


# -- targets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "name", "status"),
    [
        pytest.param({"schedule_latency_p95_ms": 200.0}, "schedule_latency_p95", TargetStatus.MET, id="latency at its bound"),
        pytest.param({"schedule_latency_p95_ms": 201.0}, "schedule_latency_p95", TargetStatus.MISSED, id="latency beyond it"),
        pytest.param(
            {"queue_wait_time_p99_ms": {"high": 1_001.0}}, "queue_wait_time_p99", TargetStatus.MISSED, id="a high tier that waits"
        ),
        pytest.param(
            {"queue_wait_time_p99_ms": {"standard": 9_999.0}}, "queue_wait_time_p99", TargetStatus.MET, id="a standard tier in time"
        ),
        pytest.param({"placement_success_rate": 0.99}, "placement_success_rate", TargetStatus.MET, id="success at its bound"),
        pytest.param({"placement_success_rate": 0.98}, "placement_success_rate", TargetStatus.MISSED, id="success below it"),
        pytest.param({"preemption_count": {"a": 9}}, "preemption_count", TargetStatus.NO_TARGET, id="preemptions without a limit"),
        pytest.param(
            {"resource_fragmentation": 0.9}, "resource_fragmentation", TargetStatus.NO_TARGET, id="fragmentation without a baseline"
        ),
        pytest.param({"agent_heartbeat_gap_ms": 15_001}, "agent_heartbeat_gap", TargetStatus.MISSED, id="an agent that is silent"),
    ],
)
def test_s16_each_figure_is_met_or_missed(facts: dict, name: str, status: TargetStatus):
    checks = check_targets(MetricsSnapshot(at_ms=0, **facts), Targets())
    assert [(one.name, one.status) for one in checks] == [(name, status)]


def test_s16_fragmentation_must_be_a_quarter_below_its_baseline():
    targets = Targets(fragmentation_baseline=0.4, preemptions_per_min=2)
    snapshot = MetricsSnapshot(at_ms=0, resource_fragmentation=0.3, preemption_count={"a": 2, "b": 3})
    assert {(one.name, one.tag): one.status for one in check_targets(snapshot, targets)} == {
        ("resource_fragmentation", ""): TargetStatus.MET,
        ("preemption_count", "a"): TargetStatus.MET,
        ("preemption_count", "b"): TargetStatus.MISSED,
    }
    worse = check_targets(replace(snapshot, resource_fragmentation=0.31), targets)
    assert worse[0].status is TargetStatus.MISSED


# -- anomalies ---------------------------------------------------------------------------------------------------------


def look_at(watch, values):
    return [watch.look(MetricsSnapshot(at_ms=at * 5_000, schedule_latency_p95_ms=value)) for at, value in enumerate(values)]


def test_s15_two_values_out_of_band_in_a_row_raise_an_alarm():
    found = look_at(AnomalyWatch(Targets()), [10.0, 12.0] * 10 + [150.0, 160.0, 11.0])
    assert not any(found[:20])
    assert not found[22]
    first, second = found[20][0], found[21][0]
    assert (first.name, first.value, first.is_alarm, second.is_alarm) == ("schedule_latency_p95", 150.0, False, True)
    assert first.words == "schedule_latency_p95 is 150; its recent values say up to 31"


def test_noise_as_wide_as_ever_is_not_unusual():
    assert not any(look_at(AnomalyWatch(Targets()), [10.0, 90.0, 50.0, 70.0, 30.0] * 10))


def test_better_than_ever_is_not_unusual():
    watch = AnomalyWatch(Targets())
    assert not any(look_at(watch, [100.0] * 20 + [1.0]))
    rates = [watch.look(MetricsSnapshot(at_ms=at, placement_success_rate=rate)) for at, rate in enumerate([0.9] * 20 + [1.0, 0.7])]
    assert [bool(found) for found in rates[-2:]] == [False, True]


def test_a_level_that_lasts_becomes_the_usual_one():
    found = look_at(AnomalyWatch(Targets()), [10.0] * 60 + [100.0] * 60)
    assert found[60]
    assert not found[-1]


def test_s16_a_silent_agent_is_an_anomaly_and_then_an_alarm():
    watch = AnomalyWatch(Targets())
    snapshot = MetricsSnapshot(at_ms=0, agent_heartbeat_gap_ms=16_000, gaps_ms={"a": 16_000, "b": 100})
    assert [(one.tag, one.is_alarm, one.words) for one in watch.look(snapshot)] == [("a", False, "agent a has not reported for 16000 ms")]
    assert [one.is_alarm for one in watch.look(snapshot)] == [True]
    assert watch.look(MetricsSnapshot(at_ms=9, gaps_ms={"a": 0})) == ()
    assert [one.is_alarm for one in watch.look(snapshot)] == [False]
