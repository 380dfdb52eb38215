"""Facade as programs use it: from the driver, from other processes, by name."""

from __future__ import annotations

import os
import sys
import time

import cloudpickle
import pytest
import ray
from patience import eventually
from supervised import Counter, Looper
from supervisors import saved_state

import mesh
from mesh.actors.errors import NoMembers
from mesh.core.reasons import Reason
from mesh.core.saved_state import StateHandlers
from mesh.core.task_spec import TaskState
from mesh.errors import MeshError, RuntimeAdapterError, SelectorError
from mesh.ray.local.client import task_handle
from mesh.ray.local.supervision_errors import (
    GangContradiction,
    JobExists,
    JobTerminated,
    NotOverYet,
    PoolUnknown,
    SubmissionError,
    SupervisorLost,
    TaskExists,
    TaskNotRunning,
    TaskUnknown,
)
from mesh.ray.local.supervisor.driver import DriverSettings
from mesh.tasks.settings import SchedulerSettings, SettingError

cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = pytest.mark.ray

#: Minimum wait of a task for room.
WAITED_MS = 500
#: No task is killed, and no handler given up, for being slow.
PATIENT = {"settings": SchedulerSettings(grace_ms=60_000), "driver": DriverSettings(preserve_ms_max=60_000)}
#: A job with a leader only.
STAYS = {"name": "stays", "pool": "mian", "leader": {"resources": {"cpu": 0.1}}, "minWorkersNum": 0}


class Dies:
    """Class whose process ends during the call."""

    def now(self):
        os._exit(1)


class GpuUser:
    """Class that knows its GPUs, as Ray numbers them."""

    def gpus(self):
        return [int(number) for number in ray.get_gpu_ids()]


class Script:
    """Context that begins and ends as a script does."""

    def run(self):
        ray.init()
        ray.shutdown()
        return ray.get(ray.put(42))


@pytest.fixture(scope="module")
def running(two_nodes, tmp_path_factory):
    with mesh.running_mesh("facade", state_dir=tmp_path_factory.mktemp("mesh"), **PATIENT) as started:
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
    assert repr(running) == "ScheduleMesh('facade')"


def test_what_is_not_there_is_an_error_that_names_the_remedy(running, pool):
    with pytest.raises(SupervisorLost, match=r"ScheduleMesh\.start"):
        mesh.ScheduleMesh.attach("nowhere")
    with pytest.raises(TaskUnknown, match="never submitted"):
        running.task("nothing")
    with pytest.raises(PoolUnknown, match="known pools: main"):
        running.resize_pool("other", {"cpu": 1})


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda running: running.submit_task(Counter, pool="mian", resources={"cpu": 1}), id="submit_task"),
        pytest.param(lambda running: running.delete_pool("mian"), id="delete_pool"),
        pytest.param(lambda running: running.configure_pool("mian"), id="configure_pool"),
        pytest.param(lambda running: running.reserve_agent_slot("mian", {"cpu": 1}), id="reserve_agent_slot"),
        pytest.param(lambda running: running.allocate_pg("mian", {"cpu": 1}), id="allocate_pg"),
        pytest.param(lambda running: running.group(pool="mian"), id="group"),
        pytest.param(lambda running: running.list_tasks(pool="mian"), id="list_tasks"),
        pytest.param(lambda running: running.evaluate_preemption(pool="mian", resources={"cpu": 1}, priority=9), id="evaluate_preemption"),
        pytest.param(lambda running: running.scale_agents("mian", 1, Counter), id="scale_agents"),
        pytest.param(
            lambda running: running.create_agent_with_pg("a", Counter, pool="mian", resources={"cpu": 1}), id="create_agent_with_pg"
        ),
        pytest.param(lambda running: running.submit_job(STAYS, leader=Counter, method=None), id="submit_job"),
    ],
)
def test_an_unknown_pool_is_an_error_that_names_the_nearest_one(running, pool, call):
    with pytest.raises(PoolUnknown, match="there is no pool mian; did you mean main"):
        call(running)


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        pytest.param(lambda running: running.execute_preemption("none"), SubmissionError, "task_ids is 'none'", id="a name for a list"),
        pytest.param(lambda running: running.execute_preemption(["none"]), TaskUnknown, "there is no task none", id="no such task"),
        pytest.param(lambda running: running.list_tasks(state="RUNING"), SubmissionError, "did you mean RUNNING", id="no such state"),
        pytest.param(lambda running: running.group(tasks=["none"]), TaskUnknown, "there is no task none", id="a group of no such task"),
        pytest.param(lambda running: running.all("tier:none").add(1), NoMembers, "has the label 'tier:none'", id="all of no such label"),
        pytest.param(lambda running: running.choose("tier:none").add(1), NoMembers, "has the label 'tier:none'", id="one of no such label"),
        pytest.param(lambda running: running.shard("tier:none").add([1]), NoMembers, "has the label 'tier:none'", id="shards of no label"),
        pytest.param(lambda running: running.collect_metrics("none"), TaskUnknown, "there is no task none", id="metrics of no such task"),
        pytest.param(
            lambda running: running.change_settings(grace_ms="long"), SubmissionError, "grace_ms is 'long'", id="a setting in words"
        ),
        pytest.param(lambda running: running.change_settings(grace_ms=-1), SubmissionError, "grace_ms is -1", id="a negative duration"),
        pytest.param(
            lambda running: running.change_settings(grace_ms=1.5), SettingError, "must be a whole number", id="half a millisecond"
        ),
        pytest.param(lambda running: running.chart("a.png", targets={}), SubmissionError, "give a Targets", id="a mapping for targets"),
        pytest.param(
            lambda running: running.submit_job({**STAYS, "pool": "main"}, leader=Counter, method="rnu"),
            SubmissionError,
            "no such method",
            id="no such method",
        ),
        pytest.param(
            lambda running: running.submit_job({**STAYS, "pool": "main"}, leader=Counter),
            SubmissionError,
            "leader: method is 'run'",
            id="a leader without run",
        ),
        pytest.param(
            lambda _: mesh.ScheduleMesh.start("failed", settings=mesh.SchedulerSettings(grace_ms="x")),
            SubmissionError,
            "settings.grace_ms is 'x'",
            id="text in settings",
        ),
        pytest.param(
            lambda _: mesh.ScheduleMesh.start("failed", standbys_per_node=-1),
            SubmissionError,
            "standbys_per_node is -1",
            id="fewer than no standbys",
        ),
        pytest.param(
            lambda _: mesh.ScheduleMesh.start("failed", otlp_endpoint="collector"),
            SubmissionError,
            "like http://collector:4318",
            id="no address",
        ),
        pytest.param(
            lambda _: mesh.ScheduleMesh.start("failed", node_labels={"zone": "in(a"}),
            SelectorError,
            "is missing; write",
            id="no selector",
        ),
    ],
)
def test_what_is_wrong_is_refused_and_nothing_is_silently_taken(running, pool, call, kind, words):
    with pytest.raises(kind, match=words):
        call(running)


def test_a_name_that_comes_again_with_other_work_is_refused(running, pool):
    first = running.submit_task(Counter, pool=pool, resources={"cpu": 1}, task_id="twin", args=(1,))
    assert running.submit_task(Counter, pool=pool, resources={"cpu": 1}, task_id="twin", args=(1,)).task == first.task
    for other in ({"args": (2,)}, {"actor_class": Looper, "args": ()}, {"environment": {"A": "1"}}, {"priority": 7}):
        with pytest.raises(TaskExists, match="of another class, with other arguments or with another request"):
            running.submit_task(**{"actor_class": Counter, "pool": pool, "resources": {"cpu": 1}, "task_id": "twin", "args": (1,), **other})
    assert first.call("add") == 2


def test_a_job_of_the_same_name_with_another_class_is_refused(running, pool):
    form = {**STAYS, "pool": pool}
    job = running.submit_job(form, leader=Counter, method=None)
    assert running.submit_job(form, leader=Counter, method=None).job == job.job
    with pytest.raises(JobExists):
        running.submit_job(form, leader=Looper, method=None)
    with pytest.raises(NotOverYet, match="job stays is"):
        job.result(timeout_s=0.1)
    job.terminate()
    with pytest.raises(JobTerminated):
        job.result(60)


def test_a_late_result_is_a_timeout_of_the_mesh_and_of_python(running, pool):
    task = running.submit_task(Counter, pool=pool, resources={"cpu": 1})
    with pytest.raises(NotOverYet, match=f"task {task.task} is") as late:
        task.result(timeout_s=0.1)
    assert isinstance(late.value, TimeoutError)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param({"plugins": {"odd": "nowhere:thing"}}, "nowhere does not import", id="a plugin that is not there"),
        pytest.param(
            {"traces_file": "/proc/nowhere/traces"}, "traces_file /proc/nowhere/traces cannot be written", id="no place for traces"
        ),
    ],
)
def test_a_start_that_fails_says_why_and_leaves_no_folder(running, tmp_path, options, words):
    with pytest.raises(MeshError, match=words):
        mesh.ScheduleMesh.start("failed", state_dir=tmp_path / "failed", **options)
    assert not (tmp_path / "failed").exists()


def test_a_start_in_an_unusable_folder_is_reported(running, tmp_path):
    (tmp_path / "file").write_text("no folder", encoding="utf-8")
    with pytest.raises(RuntimeAdapterError, match=r"state_dir .* cannot be used"):
        mesh.ScheduleMesh.start("failed", state_dir=tmp_path / "file")
    assert (tmp_path / "file").read_text(encoding="utf-8") == "no folder"


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
def test_s18_an_incomplete_submission_names_its_parameter(running, pool, changes, words):
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


def test_s8_an_agent_without_room_in_time_is_refused_cleanly(running, pool):
    running.resize_pool(pool, {"cpu": 1})
    running.create_agent("first", Counter, pool=pool, resources={"cpu": 1})
    refused = running.create_agent("second", Counter, pool=pool, resources={"cpu": 1}, timeout_s=0.3)
    assert (bool(refused), refused.reason) == (False, Reason.POOL_BUSY)
    assert running.task("second").status().state is TaskState.CANCELLED
    running.resize_pool(pool, {"cpu": 2})
    second = running.create_agent("second", Looper, pool=pool, resources={"cpu": 1})
    assert second.status().state is TaskState.RUNNING
    with pytest.raises(TaskExists):
        running.create_agent("second", Counter, pool=pool, resources={"cpu": 1})
    running.delete_agent("second")
    assert running.create_agent("second", Counter, pool=pool, resources={"cpu": 1}).call("add") == 1


def test_s9_a_dry_run_tells_every_candidate_and_changes_nothing(running, pool):
    running.change_settings(rules__min_run_ms=0)
    for name, priority in (("low", 1), ("high", 9)):
        running.submit_task(Counter, pool=pool, resources={"cpu": 2}, task_id=name, priority=priority).wait_started(60)
    found = running.evaluate_preemption(pool=pool, resources={"cpu": 2}, priority=7)
    assert [(each.task, each.would_stop) for each in found] == [("low", True), ("high", False)]
    assert found[1].verdict is Reason.PRIORITY_NOT_LOWER
    assert running.task("low").status().state is TaskState.RUNNING


def test_s17_a_cancelled_task_goes_on_from_its_last_checkpoint(running, pool, tmp_path):
    gate = tmp_path / "gate"
    task = running.submit_task(Looper, pool=pool, resources={"cpu": 1}, method="run", method_args=(100, str(gate)))
    eventually(lambda: saved_state(running, task))
    task.cancel()
    assert eventually(lambda: task.status().state is TaskState.CANCELLED)
    gate.touch()
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


def test_s16_metrics_come_from_what_happened(running, tmp_path):
    with mesh.running_mesh("figures", state_dir=tmp_path, standbys_per_node=0, **PATIENT) as own:  # Tasks of other tests are not in them.
        own.create_pool("small", capacity={"cpu": 1})
        at_ms = [now_ms()]
        first = own.submit_task(Counter, pool="small", resources={"cpu": 1})
        first.wait_started(60)
        at_ms.append(now_ms())
        second = own.submit_task(Counter, pool="small", resources={"cpu": 1})
        assert second.status().state is TaskState.PLACEABLE
        at_ms.append(now_ms())
        eventually(lambda: own.metrics().waiting_longest_ms["standard"] >= WAITED_MS)
        at_ms.append(now_ms())
        first.finish()
        second.wait_started(60)
        at_ms.append(now_ms())
        metrics = own.metrics()
    submitted_ms, started_ms, answered_ms, let_go_ms, end_ms = at_ms
    assert metrics.placement_success_rate == 1.0
    assert 0 < metrics.schedule_latency_p95_ms <= max(started_ms - submitted_ms, answered_ms - started_ms) + 1
    assert let_go_ms - answered_ms - 1 <= metrics.queue_wait_time_p99_ms["standard"] <= end_ms - started_ms + 1


def now_ms():
    """Return the test's clock; metrics are whole milliseconds of another one, hence ±1."""
    return time.monotonic() * 1000


def test_s20_a_pool_keeps_as_many_agents_as_were_asked_for(running, pool):
    three = running.scale_agents(pool, 3, Counter, resources={"cpu": 1}, args=(0,))
    assert [handle.wait_started(60).state for handle in three] == [TaskState.RUNNING] * 3
    (kept,) = running.scale_agents(pool, 1, Counter, resources={"cpu": 1}, args=(0,))
    assert kept.task == three[0].task == f"{pool}-0"
    eventually(lambda: [status.task for status in running.list_tasks(pool=pool) if not status.is_over] == [kept.task])
    assert running.list_pools()[0].target_agents == 1
    again = running.scale_agents(pool, 2, Counter, resources={"cpu": 1}, args=(0,))
    assert [handle.wait_started(60).state for handle in again] == [TaskState.RUNNING] * 2
    before = [handle.status().attempt for handle in again]
    running.scale_agents(pool, 1, Counter, resources={"cpu": 1}, args=(0,))
    at_once = running.scale_agents(pool, 2, Counter, resources={"cpu": 1}, args=(0,))  # The second one may still be stopping.
    after = [handle.wait_started(60).attempt for handle in at_once]
    assert (after[0] == before[0], after[1] > before[1]) == (True, True)
    assert at_once[1].call("add") == 1
    with pytest.raises(SubmissionError, match="count is -1"):
        running.scale_agents(pool, -1, Counter)


@pytest.mark.parametrize(
    ("handlers", "words"),
    [
        pytest.param(StateHandlers(lambda _: 1 / 0), "the preserver raised builtins.ZeroDivisionError: division by zero", id="it raises"),
        pytest.param(StateHandlers(lambda _: {"value": 1}), "the preserver returned a dict, not a SavedState", id="it returns a mapping"),
        pytest.param(
            StateHandlers(lambda context: mesh.SavedState(payload=context.actor_state), lambda _, saved: 1 / len(saved.payload["none"])),
            "the restorer raised builtins.KeyError: 'none'",
            id="its restorer raises",
        ),
    ],
)
def test_s17_a_failing_handler_is_reported_and_falls_back(running, pool, handlers, words):
    task = running.submit_task(Looper, pool=pool, resources={"cpu": 1}, state_handlers=handlers)
    eventually(lambda: task.status().state is TaskState.RUNNING)
    task.remote("run", 10_000)
    eventually(lambda: saved_state(running, task))
    task.preempt()
    assert eventually(lambda: words in task.status().detail)
    first, _ = task.call("run", 1)
    assert first > 0
    (event,) = [event for event in running.events() if event.about == task.task]
    assert (event.kind.value, words in event.words) == ("STATE_LOST", True)


def test_two_sizes_of_one_gang_are_a_contradiction(running, pool):
    running.submit_task(Counter, pool=pool, gang="twins", gang_size=2, task_id="first-twin")
    with pytest.raises(GangContradiction, match="gang_size of second-twin is 3, but 2 for first-twin of the same gang twins"):
        running.submit_task(Counter, pool=pool, gang="twins", gang_size=3, task_id="second-twin")
    assert "second-twin" not in [status.task for status in running.list_tasks()]


def test_commit_and_release_refuse_a_slot_that_nobody_holds(running, pool):
    slot = running.reserve_agent_slot(pool, {"cpu": 1}).slot
    assert running.release_agent_slot(slot) is None
    for refused in (running.release_agent_slot(slot), running.commit_agent_slot("slot-zz")):
        assert (bool(refused), refused.reason) == (False, Reason.SLOT_UNKNOWN)


def test_a_state_has_one_word_everywhere(running, pool):
    before = running.status().tasks.get("WAITING", 0)
    task = running.submit_task(Counter, pool=pool, after=["nobody"])
    assert task.status().state is TaskState.WAITING
    assert running.status().tasks["WAITING"] == before + 1
    assert task.task in [status.task for status in running.list_tasks(state="WAITING")]


@pytest.mark.parametrize(
    ("max_restarts", "words"),
    [
        pytest.param(0, "it is FAILED, AGENT_LOST, and does not start again; `max_restarts` of submit_task", id="for good"),
        pytest.param(1, "call again: the call then waits for the task's next start", id="and it starts again"),
    ],
)
def test_a_call_to_a_dead_agent_says_whether_to_call_again(running, pool, max_restarts, words, monkeypatch):
    monkeypatch.setattr(task_handle, "LOSS_HEARD_S_MAX", 60.0)
    task = running.submit_task(Dies, pool=pool, resources={"cpu": 1}, max_restarts=max_restarts)
    with pytest.raises(TaskNotRunning, match=f"died during the call of now, which may have begun; .*{words}"):
        task.call("now")


def test_a_misspelt_resource_of_a_pool_is_refused(running):
    with pytest.raises(SubmissionError, match="capacity of pool slip: no node has a resource 'cpus'; did you mean cpu"):
        running.create_pool("slip", capacity={"cpus": 2})
    assert "slip" not in [pool.pool for pool in running.list_pools()]


#: One worker set, whose resources are given.
LIT = {"name": "lit", "pool": "main", "leader": {"resources": {"cpu": 0.1}}, "minWorkersNum": 1}


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda running, amounts: running.submit_task(Counter, pool="main", resources=amounts), id="of a task"),
        pytest.param(lambda running, amounts: running.submit_task(Counter, pool="main", bundles=[{"cpu": 1}, amounts]), id="of a bundle"),
        pytest.param(lambda running, amounts: running.reserve_agent_slot("main", amounts), id="of a slot"),
        pytest.param(lambda running, amounts: running.allocate_pg("main", [{"cpu": 1}, amounts]), id="of a placement group"),
        pytest.param(lambda running, amounts: running.evaluate_preemption(pool="main", resources=amounts, priority=5), id="of a dry run"),
        pytest.param(
            lambda running, amounts: running.submit_job(
                {**LIT, "workerSets": [{"name": "w", "counts": 1, "resources": dict(amounts)}]}, leader=Script, workers={"w": Counter}
            ),
            id="of a job",
        ),
    ],
)
def test_a_resource_that_nobody_has_is_refused_by_name(running, pool, ask):
    before = running.list_tasks(pool=pool)
    with pytest.raises(SubmissionError, match=r"no node or pool has a resource 'cpus'; did you mean cpu\?; known: cpu, gpu"):
        ask(running, {"cpus": 1})
    assert running.list_tasks(pool=pool) == before


def test_a_resource_that_a_pool_counts_waits_for_its_node(running, pool):
    running.resize_pool(pool, {"cpu": 4, "lamp": 1})
    status = running.submit_task(Counter, pool=pool, resources={"lamp": 1}).status()
    assert (status.state, status.reason) == (TaskState.INFEASIBLE, Reason.NO_NODE_FITS)


def test_s26_a_whole_gpu_waits_while_both_are_shared(running, pool):
    running.resize_pool(pool, {"cpu": 4, "gpu": 2})
    halves = []
    for number in (0, 0, 1):  # One after another: Ray gives GPUs to processes in the order in which they start.
        halves.append(running.submit_task(GpuUser, pool=pool, resources={"gpu": 0.5}))
        assert halves[-1].call("gpus") == [number]
    halves[0].cancel()
    halves[0].wait(60)
    whole = running.submit_task(GpuUser, pool=pool, resources={"gpu": 1})
    eventually(lambda: whole.status().reason is Reason.INSTANCES_FRAGMENTED)
    assert "2 GPUs are partly used; a whole one is free on no node" in whole.why()
    halves[1].cancel()
    assert whole.call("gpus") == [0]  # Ray agrees on which GPU is whole.


def test_a_task_may_begin_and_end_as_a_script_does(running, pool):
    assert running.submit_task(Script, pool=pool, resources={"cpu": 1}, method="run").result(120) == 42
