"""Mesh with plugins, small snapshots, telemetry and charts, on real Ray."""

from __future__ import annotations

import json
import os
import signal
import urllib.request

import pytest
import ray
from patience import PATIENCE_S, eventually
from supervised import Counter

import mesh
from mesh.core.reasons import Reason
from mesh.errors import RuntimeAdapterError
from mesh.observability.metric_targets import Targets
from mesh.plugins import PluginError
from mesh.ray.local.status_values import MeshEventKind

pytestmark = pytest.mark.ray

#: Imported by the supervisor only, whose budgets it raises.
PLUGINS = {"fewest_cpus": "own_plugins:FewestCpus", "rules": "own_plugins:Rules"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("mesh")


@pytest.fixture(scope="module")
def running(two_nodes, folder):
    options = {
        "journal_lines_max": 5,
        "metrics_port": 0,
        "traces_file": folder / "traces.jsonl",
        "targets": Targets(agent_heartbeat_gap_ms=1),
    }
    with mesh.running_mesh("observed", state_dir=folder / "state", standbys_per_node=0, plugins=PLUGINS, **options) as started:
        started.change_settings(rules__min_run_ms=0)
        yield started


@pytest.fixture
def pool(running):
    running.create_pool("main", capacity={"cpu": 4, "gpu": 1}, policy="fewest_cpus")
    yield "main"
    running.delete_pool("main")
    eventually(lambda: not running.list_pools())
    eventually(running.audit)


def recent_events(running, kind):
    return [one for one in running.events() if one.kind is kind]


def test_s13_a_plugin_orders_and_scores_victims(running, pool):
    for name in ("keep-1", "keep-2", "other"):
        running.submit_task(Counter, pool=pool, resources={"cpu": 1}, task_id=name, priority=2).wait_started(PATIENCE_S)
    last = running.submit_task(Counter, pool=pool, resources={"cpu": 1}, task_id="keep-3", priority=1)
    last.wait_started(PATIENCE_S)
    urgent = running.submit_task(Counter, pool=pool, resources={"cpu": 1}, workload_type="urgent", task_id="urgent")
    status = urgent.wait_started(PATIENCE_S)
    assert (status.priority, status.state) == (9.0, mesh.TaskState.RUNNING), urgent.why()
    assert running.task("other").status().preemptions == 1
    assert last.status().preemptions == 0
    again = running.submit_task(Counter, pool=pool, resources={"cpu": 1}, workload_type="urgent", task_id="urgent")
    assert again.task == urgent.task


def test_s13_a_raising_plugin_is_fenced_over_a_restart(running, pool):
    task = running.submit_task(Counter, pool=pool, resources={"cpu": 1, "gpu": 1})
    assert task.wait_started(PATIENCE_S).state is mesh.TaskState.RUNNING
    (fenced,) = recent_events(running, MeshEventKind.PLUGIN_FENCED)
    assert fenced.about == "fewest_cpus"
    assert "raised LookupError: no model for GPUs" in fenced.words
    os.kill(running.status().pid, signal.SIGKILL)
    assert task.call("add") == 1
    other = running.submit_task(Counter, pool=pool, resources={"cpu": 1})
    assert other.wait_started(PATIENCE_S).state is mesh.TaskState.RUNNING
    assert [event.words for event in recent_events(running, MeshEventKind.PLUGIN_FENCED)] == [
        fenced.words
    ]  # It does not change, so it is fenced again.


def test_s13_an_unloadable_plugin_is_reported_without_a_mesh(two_nodes, tmp_path):
    with pytest.raises(PluginError, match="does not import"):
        mesh.ScheduleMesh.start("without", state_dir=tmp_path, plugins={"mine": "not_there:Mine"})
    eventually(lambda: "schedulemesh:without" not in [actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True)])


def test_s22_a_snapshot_and_its_journal_restore_a_mesh(running, pool, folder):
    tasks = [running.submit_task(Counter, pool=pool, resources={"cpu": 1}) for _ in range(6)]
    up = [task for task in tasks[:4] if task.wait_started(PATIENCE_S)]
    counted = [task.call("add") for task in up]
    assert list((folder / "state" / "journal").glob("snapshot-*"))
    os.kill(running.status().pid, signal.SIGKILL)
    assert [task.call("add") for task in up] == [count + 1 for count in counted]
    assert [tasks[4].status().position, tasks[5].status().position] == [1, 2]
    up[0].finish()
    assert tasks[4].wait_started(PATIENCE_S).state is mesh.TaskState.RUNNING


def test_s14_s22_a_rejected_event_has_no_effect(running, pool):
    before = running.status()
    with pytest.raises(Exception, match="availability_of_beer"):
        running.change_settings(availability_of_beer=1.0)
    assert running.submit_task(Counter, pool=pool, resources={"cpu": 1}).wait_started(PATIENCE_S).state is mesh.TaskState.RUNNING
    assert running.status().pid == before.pid


def test_s15_s16_metrics_are_served_and_silence_is_an_alarm(running, pool, tmp_path):
    task = running.submit_task(Counter, pool=pool, resources={"cpu": 1}, metrics_period_ms=3_600_000)
    task.wait_started(PATIENCE_S)
    eventually(lambda: [one for one in recent_events(running, MeshEventKind.ALARM) if one.about == "agent_heartbeat_gap"])
    with urllib.request.urlopen(f"http://127.0.0.1:{running.status().metrics_port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    for name in ("schedule_latency_p95", "queue_wait_time_p99", "placement_success_rate", "agent_heartbeat_gap"):
        assert f"schedulemesh_{name}" in text
    assert 'mesh="observed"' in text
    assert len(running.metrics_history()) > 1
    running.chart(tmp_path / "page.svg")
    assert (tmp_path / "page.svg").read_text().rstrip().endswith("</svg>")
    assert running.panel().title is not None
    task.finish()
    eventually(lambda: not running.metrics().gaps_ms)
    eventually(lambda: recent_events(running, MeshEventKind.ALARM_OVER))


def test_s23_each_ended_task_leaves_a_trace_with_its_steps(running, pool, folder):
    task = running.submit_task(Counter, pool=pool, resources={"cpu": 1}, task_id="traced")
    task.wait_started(PATIENCE_S)
    task.finish()

    def spans():
        kept = folder / "traces.jsonl"
        whole = kept.read_text().rpartition("\n")[0] if kept.exists() else ""  # The last line may not be flushed yet.
        lines = [json.loads(line) for line in whole.splitlines()]
        return {span["name"] for span in lines if span["attributes"].get("schedulemesh.task") == "traced"} and {
            span["name"] for span in lines
        }

    assert eventually(lambda: {"task", "placing", "starting", "running"} <= (spans() or set()))


def test_a_taken_port_is_reported_and_leaves_no_mesh(running, tmp_path):
    with pytest.raises(RuntimeAdapterError, match="metrics cannot be served"):
        mesh.ScheduleMesh.start("port", state_dir=tmp_path, metrics_port=running.status().metrics_port)


def test_s17_a_cancelled_task_keeps_its_reason_and_state(running, pool):
    task = running.submit_task(Counter, pool=pool, resources={"cpu": 1}, args=(5,))
    task.wait_started(PATIENCE_S)
    task.cancel()
    assert task.wait(PATIENCE_S).reason is Reason.CANCELLED_BY_USER
    task.resume()
    assert task.wait_started(PATIENCE_S).state is mesh.TaskState.RUNNING
    assert task.call("add") == 6
