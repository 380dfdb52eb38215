"""Telemetry of a mesh: Prometheus metrics, a trace of each task, and alarms in the log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from mesh.core.reasons import Reason
from mesh.core.resources import NOTHING
from mesh.core.task_spec import TaskRequest
from mesh.observability.anomalies import Anomaly
from mesh.observability.metric_targets import MetricsSnapshot, Targets, check_targets
from mesh.observability.task_history import ATTEMPTS_MAX, WAITS_MAX, TaskHistories
from mesh.ray.local.supervisor.telemetry import MeshTelemetry
from mesh.tasks.decisions import EndTask, ExplainWaiting, StartTask, StopTask
from mesh.tasks.events import AgentLost, TaskEnded, TaskRefused, TaskStarted, TaskStopped, TaskSubmitted, Ticked

EPOCH_MS = 1_700_000_000_000


@pytest.fixture
def telemetry():
    made = MeshTelemetry("east")
    yield made
    made.close()


def scraped(telemetry):
    """Return the value of each series."""
    lines = telemetry.scrape().decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


METRICS = MetricsSnapshot(
    at_ms=0,
    schedule_latency_p95_ms=250.0,
    queue_wait_time_p99_ms={"high": 500.0, "standard": None},
    placement_success_rate=0.995,
    preemption_count={"tier:batch": 3},
    resource_fragmentation=0.25,
    agent_heartbeat_gap_ms=4_000,
    use={"gold": 0.75},
    rss_bytes=2**30,
)


# -- metrics -----------------------------------------------------------------------------------------------------------


def test_s16_the_six_metrics_have_prometheus_names(telemetry: MeshTelemetry):
    telemetry.show(METRICS, check_targets(METRICS, Targets()))
    series = scraped(telemetry)
    assert (
        series.items()
        >= {
            'schedulemesh_schedule_latency_p95_seconds{mesh="east"}': 0.25,
            'schedulemesh_queue_wait_time_p99_seconds{mesh="east",tier="high"}': 0.5,
            'schedulemesh_placement_success_rate{mesh="east"}': 0.995,
            'schedulemesh_preemption_count{label="tier:batch",mesh="east"}': 3.0,
            'schedulemesh_resource_fragmentation{mesh="east"}': 0.25,
            'schedulemesh_agent_heartbeat_gap_seconds{mesh="east"}': 4.0,
            'schedulemesh_pool_quota_share{mesh="east",pool="gold"}': 0.75,
            'schedulemesh_agents_memory_bytes{mesh="east"}': 2.0**30,
        }.items()
    )


def test_what_is_not_known_is_no_series(telemetry: MeshTelemetry):
    telemetry.show(METRICS)
    assert not any("standard" in series for series in scraped(telemetry))


def test_a_target_that_is_missed_can_alert(telemetry: MeshTelemetry):
    telemetry.show(METRICS, check_targets(METRICS, Targets()))
    missed = {name: value for name, value in scraped(telemetry).items() if name.startswith("schedulemesh_target_missed")}
    assert missed['schedulemesh_target_missed{mesh="east",metric="schedule_latency_p95",of=""}'] == 1.0
    assert missed['schedulemesh_target_missed{mesh="east",metric="queue_wait_time_p99",of="high"}'] == 0.0
    assert not any("preemption_count" in name for name in missed)


def test_before_anything_is_known_the_scrape_is_empty(telemetry: MeshTelemetry):
    assert scraped(telemetry) == {}


def test_s16_an_alarm_is_logged_at_its_begin_and_end(telemetry: MeshTelemetry):
    silent = {"name": "agent_heartbeat_gap", "tag": "a1", "value": 16_000.0, "bound": 15_000.0, "words": "agent a1 has said nothing"}
    with capture_logs() as lines:
        for times in (1, 2, 3):
            telemetry.show(METRICS, anomalies=[Anomaly(times=times, **silent)])
        assert len(lines) == 1
        telemetry.show(METRICS)
    assert [(line["event"], line["log_level"], line["metric"], line["of"]) for line in lines] == [
        ("alarm", "warning", "agent_heartbeat_gap", "a1"),
        ("alarm_over", "info", "agent_heartbeat_gap", "a1"),
    ]


# -- stories -----------------------------------------------------------------------------------------------------------


def submitted(task="t", at_ms=0):
    return TaskSubmitted(at_ms=at_ms, request=TaskRequest(task=task, pool="p", label="tier:batch", priority=3.0))


def start(task="t", attempt=1):
    return StartTask(
        version=1, task=task, attempt=attempt, agent=f"a{attempt}", node="n", group=None, resources=NOTHING, reason=Reason.PLACED
    )


def a_history():
    """Return the history of a task: waited, ran, was preempted, waited, ran to its end."""
    histories = TaskHistories()
    stop = StopTask(version=1, task="t", attempt=1, keep_state=True, grace_ms=9, reason=Reason.PREEMPTED, by="urgent")
    assert not histories.fold([submitted()], [ExplainWaiting(version=1, task="t", reason=Reason.NODES_BUSY, detail="")])
    assert not histories.fold([Ticked(at_ms=100)], [start()])
    assert not histories.fold([TaskStarted(at_ms=150, task="t", attempt=1, agent="a1")], [])
    assert not histories.fold([Ticked(at_ms=500)], [stop])
    assert not histories.fold([TaskStopped(at_ms=600, task="t", attempt=1)], [])
    assert not histories.fold([Ticked(at_ms=700)], [start(attempt=2)])
    assert not histories.fold([TaskStarted(at_ms=720, task="t", attempt=2, agent="a2")], [])
    (task_history,) = histories.fold([TaskEnded(at_ms=900, task="t", attempt=2)], [EndTask(version=1, task="t", reason=Reason.FINISHED)])
    assert len(histories) == 0
    return task_history


def test_a_history_lists_attempts_waits_and_preemptors():
    task_history = a_history()
    assert (task_history.submitted_ms, task_history.ended_ms, task_history.reason) == (0, 900, Reason.FINISHED)
    assert task_history.waits == ((0, Reason.NODES_BUSY),)
    first, second = task_history.attempts
    assert (first.placed_ms, first.started_ms, first.stop_asked_ms, first.ended_ms) == (100, 150, 500, 600)
    assert (first.stop_reason, first.stopped_for) == (Reason.PREEMPTED, "urgent")
    assert (second.placed_ms, second.started_ms, second.ended_ms, second.how) == (700, 720, 900, "")


def test_a_failed_start_and_a_lost_agent_are_in_the_history():
    histories = TaskHistories()
    histories.fold([submitted()], [start()])
    refused = TaskRefused(at_ms=10, task="t", attempt=1, reason=Reason.START_FAILED, detail="no such class")
    histories.fold([refused], [start(attempt=2)])
    lost = AgentLost(at_ms=20, task="t", attempt=2, detail="SIGKILL")
    (task_history,) = histories.fold([lost], [EndTask(version=1, task="t", reason=Reason.AGENT_LOST)])
    assert [(one.how, one.started_ms) for one in task_history.attempts] == [("START_FAILED: no such class", None), ("SIGKILL", None)]


def test_an_endless_history_stays_small():
    histories = TaskHistories()
    histories.fold([submitted()], [])
    for attempt in range(1, 200):
        waits = [ExplainWaiting(version=1, task="t", reason=reason, detail="") for reason in (Reason.NODES_BUSY, Reason.POOL_BUSY)]
        histories.fold([Ticked(at_ms=attempt)], [*waits, start(attempt=attempt)])
    (task_history,) = histories.fold([Ticked(at_ms=999)], [EndTask(version=1, task="t", reason=Reason.FINISHED)])
    assert len(task_history.waits) == WAITS_MAX
    assert [one.attempt for one in task_history.attempts] == list(range(200 - ATTEMPTS_MAX, 200))


def test_events_of_unknown_tasks_make_no_history():
    histories = TaskHistories()
    ended = TaskEnded(at_ms=1, task="x", attempt=1)
    assert histories.fold([ended], [start("x"), EndTask(version=1, task="x", reason=Reason.FINISHED)]) == []


# -- traces ------------------------------------------------------------------------------------------------------------


def traced(folder: Path, *histories):
    telemetry = MeshTelemetry("east", epoch_ms=EPOCH_MS, traces_file=str(folder / "traces.jsonl"))
    for history in histories:
        telemetry.trace_task(history)
    telemetry.close()
    return [json.loads(line) for line in (folder / "traces.jsonl").read_text().splitlines()]


def test_s23_a_task_is_a_trace_from_submit_to_end(tmp_path: Path):
    spans = traced(tmp_path, a_history())
    assert [span["name"] for span in spans] == ["placing", "starting", "running", "placing", "starting", "running", "task"]
    task = spans[-1]
    assert task["parent_id"] is None
    assert {span["parent_id"] for span in spans[:-1]} == {task["context"]["span_id"]}
    assert (task["start_time"], task["end_time"]) == ("2023-11-14T22:13:20.000000Z", "2023-11-14T22:13:20.900000Z")
    assert [(span["start_time"][-7:-4], span["end_time"][-7:-4]) for span in spans[3:6]] == [
        ("600", "700"),
        ("700", "720"),
        ("720", "900"),
    ]
    assert [(event["name"], event["attributes"]) for event in spans[2]["events"]] == [
        ("asked to stop", {"schedulemesh.reason": "PREEMPTED", "schedulemesh.by": "urgent"})
    ]
    assert task["events"][0]["attributes"] == {"schedulemesh.reason": "NODES_BUSY"}


def test_a_history_exported_twice_is_one_trace(tmp_path: Path):
    spans = traced(tmp_path, a_history(), a_history())
    assert [span["context"] for span in spans[:7]] == [span["context"] for span in spans[7:]]


def test_a_task_that_failed_is_an_error(tmp_path: Path):
    histories = TaskHistories()
    histories.fold([submitted()], [start()])
    ended = EndTask(version=1, task="t", reason=Reason.USER_ERROR, detail="bad lr")
    (task_history,) = histories.fold([TaskEnded(at_ms=5, task="t", attempt=1, error="bad lr")], [ended])
    assert traced(tmp_path, task_history)[-1]["status"] == {"status_code": "ERROR", "description": "bad lr"}


def test_without_readers_nothing_is_traced(telemetry: MeshTelemetry):
    assert not telemetry.traces
    telemetry.trace_task(a_history())
