"""Mesh on its own real Ray cluster of two nodes with two CPUs."""

from __future__ import annotations

import pytest
from patience import eventually
from supervised import Broken, Counter, Looper
from supervisors import saved_state

import mesh
from mesh.core.reasons import Reason
from mesh.core.task_spec import TaskState
from mesh.ray.local.client.schedule_mesh import ScheduleMesh
from mesh.ray.local.supervision_errors import TaskExists, TaskFailed

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def running(two_nodes, tmp_path_factory):
    mesh = ScheduleMesh.start("tests", state_dir=tmp_path_factory.mktemp("mesh"), standbys_per_node=1)
    yield mesh
    mesh.stop()


@pytest.fixture
def pool(running):
    running.create_pool("main", capacity={"cpu": 4, "gpu": 1})
    yield "main"
    running.delete_pool("main")
    eventually(lambda: not running.list_pools())
    eventually(running.audit)


def test_s8_a_submitted_class_is_hosted_and_answers_calls(running, pool):
    task = running.submit_task(Counter, pool=pool, resources={"cpu": 1}, args=(5,))
    assert task.wait_started(60).state is TaskState.RUNNING
    assert (task.call("add"), task.call("add", 4)) == (6, 10)
    assert task.finish().state is TaskState.SUCCEEDED


def test_a_raising_constructor_fails_its_task_and_frees_all(running, pool):
    task = running.submit_task(Broken, pool=pool, resources={"cpu": 1})
    with pytest.raises(TaskFailed, match="the model file is missing"):
        task.result(60)
    assert running.list_pools()[0].used == mesh.ResourceSet()
    eventually(running.audit)


def test_an_infeasible_task_is_reported_at_once(running, pool):
    running.resize_pool(pool, {"cpu": 100, "gpu": 1})
    status = running.submit_task(Counter, pool=pool, resources={"cpu": 50}).status()
    assert (status.state, status.reason) == (TaskState.INFEASIBLE, Reason.NO_NODE_FITS)


def test_a_submission_is_idempotent_and_its_name_unique(running, pool):
    first = running.submit_task(Counter, pool=pool, resources={"cpu": 1}, task_id="twin")
    assert running.submit_task(Counter, pool=pool, resources={"cpu": 1}, task_id="twin").task == first.task
    with pytest.raises(TaskExists, match="twin"):
        running.submit_task(Counter, pool=pool, resources={"cpu": 2}, task_id="twin")


def test_a_full_pool_is_a_wait_with_reason_and_place(running, pool):
    running.resize_pool(pool, {"cpu": 1})
    holder = running.submit_task(Counter, pool=pool, resources={"cpu": 1})
    second = running.submit_task(Counter, pool=pool, resources={"cpu": 1})
    status = second.status()
    assert (status.state, status.reason, status.position) == (TaskState.PLACEABLE, Reason.POOL_BUSY, 1)
    holder.wait_started(60)
    holder.finish()
    assert second.wait_started(60).state is TaskState.RUNNING


def shapes(count):
    return [{"cpu": 1}] * count


def test_s7_an_urgent_task_takes_a_reserved_group(running, pool):
    running.configure_pool(pool, high_priority_pg_specs=shapes(1), max_dynamic_pgs=2)
    reserved = eventually(lambda: [group for group in running.list_groups() if group.layer == "RESERVED" and group.state == "IDLE"])
    urgent = running.submit_task(Counter, pool=pool, resources={"cpu": 1}, priority=9)
    usual = running.submit_task(Counter, pool=pool, resources={"cpu": 1})
    assert (urgent.wait_started(60).group, usual.wait_started(60).group != reserved[0].group) == (reserved[0].group, True)
    kept = usual.status().group
    usual.finish()
    again = running.submit_task(Counter, pool=pool, resources={"cpu": 1})
    assert again.wait_started(60).group == kept
    assert next(group.reuse_count for group in running.list_groups() if group.group == kept) == 1
    assert eventually(running.audit)


def test_s7_allocate_pg_gives_a_group_and_release_ends_it(running, pool):
    import ray

    running.configure_pool(pool, max_dynamic_pgs=1)
    given = running.allocate_pg(pool, [{"cpu": 1}, {"cpu": 1}], timeout_s=60)
    assert ray.util.get_placement_group(given.name).bundle_count == 2
    refused = running.allocate_pg(pool, {"cpu": 1}, timeout_s=0.5)
    assert (bool(refused), refused.reason) == (False, Reason.GROUPS_AT_LIMIT)
    running.release_pg(given)
    assert running.allocate_pg(pool, [{"cpu": 1}, {"cpu": 1}], holder="mine", timeout_s=60).group == given.group
    running.release_pg("mine", destroy=True)
    eventually(lambda: not running.list_groups())


def test_a_task_whose_group_was_removed_starts_elsewhere(running, pool):
    import ray

    running.configure_pool(pool, max_dynamic_pgs=2)
    task = running.submit_task(Counter, pool=pool, resources={"cpu": 1}, max_restarts=1)
    group = task.wait_started(60).group
    ray.util.remove_placement_group(ray.util.get_placement_group(f"schedulemesh:tests:group:{group}"))
    moved = eventually(lambda: (status := task.status()).attempt == 2 and status.state is TaskState.RUNNING and status)
    assert moved.group != group


def test_s6_a_slot_is_reserved_committed_and_released(running, pool):
    slot = running.reserve_agent_slot(pool, {"cpu": 3})
    assert not running.reserve_agent_slot(pool, {"cpu": 2})
    running.commit_agent_slot(slot.slot)
    assert running.list_pools()[0].used["cpu"] == 30_000
    running.release_agent_slot(slot.slot)
    assert running.list_pools()[0].free["cpu"] == 40_000
    assert running.commit_agent_slot("nobody").reason is Reason.SLOT_UNKNOWN


def test_s18_a_preemptor_gets_its_victims_group_which_resumes(running, pool, tmp_path):
    running.configure_pool(pool, max_dynamic_pgs=1)
    running.resize_pool(pool, {"cpu": 1})
    running.change_settings(rules__min_run_ms=0)
    gate = tmp_path / "gate"
    victim = running.submit_task(Looper, pool=pool, resources={"cpu": 1}, priority=1, method="run", method_args=(200, str(gate)))
    group = victim.wait_started(60).group
    eventually(lambda: saved_state(running, victim))
    urgent = running.submit_task_with_pg_preemption(
        pool_name=pool, resources={"cpu": 1}, actor_class=Counter, task_id="urgent", priority=7, timeout_s=60
    )
    assert (urgent.status().state, urgent.status().group) == (TaskState.RUNNING, group)
    assert (victim.status().preemptions, victim.status().state) == (1, TaskState.PLACEABLE)
    assert eventually(running.audit)
    gate.touch()
    urgent.finish()
    first, last = victim.result(60)
    assert 0 < first < last == 200


def test_s5_one_view_of_pools_agents_groups_and_nodes(running, pool):
    running.configure_pool(pool, max_dynamic_pgs=1)
    running.submit_task(Counter, pool=pool, resources={"cpu": 1}, task_id="seen").wait_started(60)
    assert [status.pool for status in running.list_pools()] == [pool]
    assert [agent.pool for agent in running.list_agents() if agent.task == "seen"] == [pool]
    assert [group.holder for group in running.list_groups()] == ["seen"]
    assert len(running.list_nodes()) == 2
