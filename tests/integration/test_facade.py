"""The facade as programs use it: from the driver, from other processes, by name."""

from __future__ import annotations

import sys

import cloudpickle
import pytest
import ray
from patience import eventually
from supervised import Counter, Looper, two_nodes

import mesh
from mesh.reasons import Reason
from mesh.runtime.supervision.supervision_errors import PoolUnknown, SubmissionError, SupervisorLost, TaskUnknown
from mesh.scheduling.tasks import TaskState

cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    for _ in two_nodes():
        with mesh.running_mesh("facade", state_dir=tmp_path_factory.mktemp("mesh")) as started:
            yield started


@pytest.fixture
def pool(running):
    running.ensure_pool("main", capacity={"cpu": 4})
    yield "main"
    running.delete_pool("main")
    eventually(lambda: not running.list_pools())
    eventually(running.audit)


@ray.remote
def submitted_elsewhere(running, pool):
    handle = running.submit_task(Counter, pool=pool, resources={"cpu": 1}, task_id="elsewhere", args=(40,))
    return handle.call("add", 2)


def test_a_mesh_is_used_from_another_process(running, pool):
    assert ray.get(submitted_elsewhere.remote(running, pool)) == 42
    assert mesh.ScheduleMesh.attach("facade").task("elsewhere").call("add") == 43


def test_starting_a_mesh_that_runs_finds_it(running):
    assert mesh.ScheduleMesh.start("facade").status().pid == running.status().pid


def test_what_is_not_there_is_an_error_that_names_the_remedy(running, pool):
    with pytest.raises(SupervisorLost, match=r"ScheduleMesh\.start"):
        mesh.ScheduleMesh.attach("nowhere")
    with pytest.raises(TaskUnknown, match="never submitted"):
        running.task("nothing")
    with pytest.raises(PoolUnknown, match="there is main"):
        running.resize_pool("other", {"cpu": 1})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"task_id": ""}, "task_id is missing", id="no name"),
        pytest.param({"pool_name": ""}, "pool_name is missing", id="no pool"),
        pytest.param({"resources": {}}, "resources are missing", id="no resources"),
        pytest.param({"actor_class": None}, "actor_class is missing", id="no class"),
        pytest.param({"resources": {"cpu": -1}}, "resources: ", id="less than nothing"),
        pytest.param({}, "has no placement groups", id="a pool without placement groups"),
    ],
)
def test_s18_a_submission_without_what_it_needs_is_refused_with_the_parameters_name(running, pool, changes, words):
    whole = {"pool_name": pool, "resources": {"cpu": 1}, "actor_class": Counter, "task_id": "whole"}
    with pytest.raises(SubmissionError, match=words):
        running.submit_task_with_pg_preemption(**{**whole, **changes})
    assert "whole" not in [status.task for status in running.list_tasks()]


def test_s8_an_agent_is_created_restarted_measured_and_deleted(running, pool):
    agent = running.create_agent("worker", Counter, pool=pool, resources={"cpu": 1})
    assert agent.call("add") == 1
    assert running.collect_metrics("worker")["worker"].calls == 1
    first = agent.status().attempt
    running.restart_agent("worker")
    eventually(lambda: agent.status().attempt > first and agent.status().state is TaskState.RUNNING)
    assert running.task("worker").call("add") == 1
    assert running.delete_agent("worker").state is TaskState.CANCELLED


def test_s8_an_agent_that_finds_no_room_in_time_is_refused_and_leaves_nothing(running, pool):
    running.resize_pool(pool, {"cpu": 1})
    running.create_agent("first", Counter, pool=pool, resources={"cpu": 1})
    refused = running.create_agent("second", Counter, pool=pool, resources={"cpu": 1}, timeout_s=0.3)
    assert (bool(refused), refused.reason) == (False, Reason.POOL_BUSY)
    assert running.task("second").status().state is TaskState.CANCELLED


def test_s9_a_dry_run_tells_every_candidate_and_changes_nothing(running, pool):
    running.change_settings(rules__min_run_ms=0)
    for name, priority in (("low", 1), ("high", 9)):
        running.submit_task(Counter, pool=pool, resources={"cpu": 2}, task_id=name, priority=priority).wait_started(60)
    found = running.evaluate_preemption(pool=pool, resources={"cpu": 2}, priority=7)
    assert [(each.task, each.would_stop) for each in found] == [("low", True), ("high", False)]
    assert found[1].verdict is Reason.PRIORITY_NOT_LOWER
    assert running.task("low").status().state is TaskState.RUNNING


def test_s17_a_cancelled_task_goes_on_from_its_last_checkpoint(running, pool):
    task = running.submit_task(Looper, pool=pool, resources={"cpu": 1}, method="run", method_args=(100,))
    eventually(lambda: running._link.ask("saved", task.task))
    task.cancel()
    assert eventually(lambda: task.status().state is TaskState.CANCELLED)
    task.resume()
    first, last = task.result(60)
    assert 0 < first < last == 100


def test_s1_agents_are_called_as_a_group_with_named_dimensions(running, pool):
    for number in range(2):
        running.submit_task(Counter, pool=pool, resources={"cpu": 1}, label="tier:gold", args=(number,)).wait_started(60)
    group = running.group(label="tier:gold", shape={"tensor": 2})
    assert group.all().add(10) == [10, 11]
    assert group.where(tensor=1).all().add(0) == [11]
    assert running.choose("tier:gold").add(0) in (10, 11)


def test_s16_figures_come_from_what_happened(running, pool):
    running.submit_task(Counter, pool=pool, resources={"cpu": 1}).wait_started(60)
    figures = running.figures()
    assert figures.placement_success_rate == 1.0
    assert figures.schedule_latency_p95_ms < 200


def test_s20_a_pool_keeps_as_many_agents_as_were_asked_for(running, pool):
    three = running.scale_agents(pool, 3, Counter, resources={"cpu": 1}, args=(0,))
    assert [handle.wait_started(60).state for handle in three] == [TaskState.RUNNING] * 3
    (kept,) = running.scale_agents(pool, 1, Counter, resources={"cpu": 1}, args=(0,))
    assert kept.task == three[0].task == f"{pool}-0"
    eventually(lambda: [status.task for status in running.list_tasks(pool=pool) if not status.is_over] == [kept.task])
    assert running.list_pools()[0].target_agents == 1
    with pytest.raises(SubmissionError, match="count is -1"):
        running.scale_agents(pool, -1, Counter)
