"""Preemption of running work on real raylets: victims keep their state and queue position and delay no one."""

from __future__ import annotations

import threading

import pytest
from mesh_scene import Probe, Sleeper, Student, Trainer, clean, kept_step, steps_of
from patience import eventually
from supervisors import saved_state

import mesh
from mesh.core.reasons import Reason
from mesh.core.task_spec import TaskState
from mesh.preemption.rules import PreemptionRules, parse_cross_label
from mesh.ray.local.supervision_errors import TaskNotRunning
from mesh.ray.local.supervisor.driver import DriverSettings
from mesh.tasks.settings import SchedulerSettings

pytestmark = pytest.mark.ray

#: `mesh.SchedulerSettings` of this mesh: victims may be young, and are not killed for slow ends.
SETTINGS = SchedulerSettings(
    rules=PreemptionRules(min_run_ms=0, cross_label=parse_cross_label({"tier": {"premium": ["batch"]}})), grace_ms=60_000
)


class Remembering:
    """Task whose state results from its calls, without a checkpoint."""

    def __init__(self, secret=""):
        self.secret = secret

    def learn(self, secret):
        self.secret = secret

    def send(self):
        return self.secret


def keep_secret(context):
    return mesh.SavedState(payload=context.actor_ref.secret, notes={"for": context.reason.value})


def give_secret_back(context, saved):
    context.actor_ref.learn(f"{saved.payload} ({saved.notes['for']})")


def fail_to_keep(context):
    raise OSError("the disk is full")


@pytest.fixture(scope="module")
def running(two_nodes, tmp_path_factory):
    driver = DriverSettings(preserve_ms_max=60_000)
    with mesh.running_mesh("giving-way", state_dir=tmp_path_factory.mktemp("mesh"), settings=SETTINGS, driver=driver) as started:
        yield started


@pytest.fixture(autouse=True)
def nothing_left(running):
    """Check after every test: no pool, no placement group, nothing held, and agreeing ledgers."""
    yield
    clean(running)


@pytest.fixture
def grouped(running):
    """Pool that one task of one CPU fills, with its placement group."""
    running.create_pool("main", capacity={"cpu": 1})
    running.configure_pool("main", max_dynamic_pgs=1)
    return "main"


@pytest.fixture
def hasty(running):
    """Settings that give victims half a second to end."""
    running.change_settings(grace_ms=500)
    yield
    running.change_settings(grace_ms=SETTINGS.grace_ms)


def states(*tasks):
    return [task.status().state for task in tasks]


def test_s18_preempted_training_resumes_without_losing_a_step(running, grouped, tmp_path):
    victim = running.submit_task(
        Trainer, pool=grouped, resources={"cpu": 1}, priority=1, method="run", method_args=(str(tmp_path), 30, 12), task_id="training"
    )
    eventually(lambda: kept_step(running, victim) == 12)
    group = victim.status().group
    urgent = running.submit_task_with_pg_preemption(
        pool_name=grouped, resources={"cpu": 1}, actor_class=Probe, task_id="urgent", priority=7, timeout_s=60
    )
    assert states(urgent, victim) == [TaskState.RUNNING, TaskState.PLACEABLE]
    assert [(each.group, each.holder, each.reuse_count) for each in running.list_groups()] == [(group, "urgent", 1)]
    assert (victim.status().preemptions, victim.status().reason) == (1, Reason.POOL_BUSY)
    assert eventually(running.audit)
    assert [pool.used["cpu"] for pool in running.list_pools()] == [10_000]
    (tmp_path / "gate").touch()
    urgent.finish()
    assert victim.result(60) == (12, 30)
    assert steps_of(tmp_path) == list(range(30))
    assert eventually(running.audit)


def test_s18_group_survives_preemptions_and_no_step_repeats(running, grouped, tmp_path):
    victim = running.submit_task(
        Student, pool=grouped, resources={"cpu": 1}, priority=1, method="run", method_args=(str(tmp_path), 0.02), task_id="again"
    )
    groups = set()
    for turn in range(3):
        seen = len(steps_of(tmp_path))
        eventually(lambda seen=seen: len(steps_of(tmp_path)) > seen)
        urgent = running.submit_task_with_pg_preemption(
            pool_name=grouped, resources={"cpu": 1}, actor_class=Probe, task_id=f"urgent-{turn}", priority=7, timeout_s=60
        )
        groups.add(urgent.status().group)
        urgent.finish()
        assert victim.wait_started(60).state is TaskState.RUNNING
    assert len(groups) == 1
    (tmp_path / "gate").touch()
    first, last = victim.result(60)
    assert 0 < first <= last
    assert victim.status().preemptions == 3
    assert steps_of(tmp_path) == list(range(last))


def test_s9_cheapest_victim_is_preempted_and_an_equal_one_never(running):
    running.create_pool("main", capacity={"cpu": 2})
    low, equal = (
        running.submit_task(Probe, pool="main", resources={"cpu": 1}, priority=priority, task_id=name)
        for name, priority in (("low", 1), ("equal", 7))
    )
    for task in (low, equal):
        task.wait_started(60)
    seen = running.evaluate_preemption(pool="main", resources={"cpu": 1}, priority=7)
    assert [(each.task, each.would_stop, each.verdict) for each in seen] == [
        ("low", True, Reason.ELIGIBLE),
        ("equal", False, Reason.PRIORITY_NOT_LOWER),
    ]
    first, second = (running.submit_task(Probe, pool="main", resources={"cpu": 1}, priority=7) for _ in range(2))
    assert first.wait_started(60).state is TaskState.RUNNING
    assert states(low, equal, second) == [TaskState.PLACEABLE, TaskState.RUNNING, TaskState.PLACEABLE]
    first.finish()
    assert second.wait_started(60).state is TaskState.RUNNING


def test_s9_two_small_tasks_make_room_for_one_large_one(running):
    running.create_pool("main", capacity={"cpu": 2}, labels={"zone": "east"})
    small = [running.submit_task(Probe, pool="main", resources={"cpu": 1}, priority=1) for _ in range(2)]
    for task in small:
        task.wait_started(60)
    large = running.submit_task(Probe, pool="main", resources={"cpu": 2}, priority=7)
    assert large.wait_started(60).state is TaskState.RUNNING
    assert states(*small) == [TaskState.PLACEABLE] * 2


def test_s9_urgent_gang_preempts_on_two_nodes_and_starts_whole(running):
    running.create_pool("main", capacity={"cpu": 4})
    small = [running.submit_task(Probe, pool="main", resources={"cpu": 1}, priority=1) for _ in range(4)]
    for task in small:
        task.wait_started(60)
    asked = running.evaluate_preemption(pool="main", resources={"cpu": 2}, priority=7, gang_size=2)
    assert [each.would_stop for each in asked] == [True] * 4
    assert not any(each.would_stop for each in running.evaluate_preemption(pool="main", resources={"cpu": 2}, priority=7, gang_size=3)), (
        "three places of two CPUs are more than there are"
    )
    gang = [running.submit_task(Probe, pool="main", resources={"cpu": 2}, priority=7, gang="all", gang_size=2) for _ in range(2)]
    assert [member.wait_started(60).state for member in gang] == [TaskState.RUNNING] * 2
    assert len({member.call("node") for member in gang}) == 2
    assert states(*small) == [TaskState.PLACEABLE] * 4
    assert eventually(running.audit)
    for member in gang:
        member.finish()
    assert [task.wait_started(60).state for task in small] == [TaskState.RUNNING] * 4


def test_s9_other_label_is_preempted_only_under_a_rule(running):
    running.create_pool("main", capacity={"cpu": 1})
    batch = running.submit_task(Probe, pool="main", resources={"cpu": 1}, priority=1, label="tier:batch")
    batch.wait_started(60)
    stranger = running.submit_task(Probe, pool="main", resources={"cpu": 1}, priority=9, label="team:other")
    assert "LABEL_ISOLATED" in {each.verdict.value for each in running.evaluate_preemption(pool="main", resources={"cpu": 1}, priority=9)}
    assert states(batch, stranger) == [TaskState.RUNNING, TaskState.PLACEABLE]
    premium = running.submit_task(Probe, pool="main", resources={"cpu": 1}, priority=7, label="tier:premium")
    assert premium.wait_started(60).state is TaskState.RUNNING
    assert states(batch)[0] is TaskState.PLACEABLE


@pytest.mark.usefixtures("hasty")
def test_s18_victim_in_c_code_blocks_no_other_work(running, grouped, tmp_path):
    victim = running.submit_task(
        Sleeper, pool=grouped, resources={"cpu": 1}, priority=1, method="run", method_args=(str(tmp_path), 120), task_id="deep"
    )
    eventually((tmp_path / "asleep").exists)
    urgent = running.submit_task(Probe, pool=grouped, resources={"cpu": 1}, priority=7, task_id="hasty")
    answers = []
    asking = threading.Thread(target=lambda: answers.extend(running.list_pools()))  # Another task takes the place meanwhile.
    asking.start()
    asking.join(60)
    assert ([pool.pool for pool in answers], (tmp_path / "awake").exists()) == ([grouped], False)
    assert urgent.wait_started(60).state is TaskState.RUNNING
    assert (victim.status().preemptions, (tmp_path / "awake").exists()) == (1, False)
    assert victim.status().lost_ms > 0, "it kept nothing before it was stopped"
    assert eventually(running.audit)
    victim.cancel()
    urgent.finish()


def test_s17_user_handlers_restore_state_outside_checkpoints(running, grouped):
    with_handlers = mesh.ScheduleMesh.attach(running.name)
    with_handlers.register_state_handlers(preserver=keep_secret, restorer=give_secret_back)
    victim = with_handlers.submit_task(Remembering, pool=grouped, resources={"cpu": 1}, priority=1)
    victim.call("learn", "swordfish")
    running.submit_task_with_pg_preemption(
        pool_name=grouped, resources={"cpu": 1}, actor_class=Probe, task_id="brief", priority=7, timeout_s=60
    ).finish()
    eventually(lambda: victim.status().state is TaskState.RUNNING)
    assert victim.call("send") == "swordfish (PREEMPTED)"


def test_s17_failing_preserver_falls_back_and_gives_the_reason(running, grouped):
    handlers = mesh.register_state_handlers(preserver=fail_to_keep, restorer=give_secret_back)
    victim = running.submit_task(
        Remembering, pool=grouped, resources={"cpu": 1}, priority=1, args=("from the start",), state_handlers=handlers
    )
    victim.call("learn", "swordfish")
    victim.cancel()
    assert victim.wait(60).state is TaskState.CANCELLED
    kept = saved_state(running, victim)
    assert (kept.level.value, "the disk is full" in kept.why) == ("DEFAULT", True)
    victim.resume()
    assert victim.call("send") == "from the start"


def test_s17_cancel_and_resume_may_be_said_twice(running, grouped, tmp_path):
    task = running.submit_task(Trainer, pool=grouped, resources={"cpu": 1}, method="run", method_args=(str(tmp_path), 20, 10))
    eventually(lambda: kept_step(running, task) == 10)
    task.cancel()
    task.cancel()
    assert task.wait(60).state is TaskState.CANCELLED
    with pytest.raises(TaskNotRunning, match="cancelled"):
        task.result(60)
    (tmp_path / "gate").touch()
    task.resume()
    task.resume()
    assert task.result(60) == (10, 20)
    assert steps_of(tmp_path) == list(range(20))


def test_s12_tasks_of_one_priority_keep_order_after_preemption(running):
    running.create_pool("main", capacity={"cpu": 1})
    first, second, third = (running.submit_task(Probe, pool="main", resources={"cpu": 1}, priority=1) for _ in range(3))
    first.wait_started(60)
    urgent = running.submit_task(Probe, pool="main", resources={"cpu": 1}, priority=7)
    urgent.wait_started(60)
    assert [task.status().position for task in (first, second, third)] == [1, 2, 3]
    for done, next_one in ((urgent, first), (first, second), (second, third)):
        done.finish()
        assert next_one.wait_started(60).state is TaskState.RUNNING
