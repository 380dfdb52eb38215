"""Task placement on three raylets: each policy and label against the node that Ray reports for the agent."""

from __future__ import annotations

from collections import Counter

import pytest
import ray
from mesh_scene import Probe, clean
from patience import eventually
from ray.experimental import get_object_locations

import mesh
from mesh.core.reasons import Reason
from mesh.core.task_spec import TaskState
from mesh.ray.local.supervisor.driver import DriverSettings

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def running(three_nodes, tmp_path_factory):
    driver = DriverSettings(standbys_per_node=1)
    with mesh.running_mesh("places", state_dir=tmp_path_factory.mktemp("mesh"), driver=driver) as started:
        started.create_pool("warm-up", capacity={"cpu": 1})
        started.delete_pool("warm-up")
        eventually(lambda: len(started.list_nodes()) == 3)
        yield started


@pytest.fixture(autouse=True)
def nothing_left(running):
    """Check after every test: no pool, no placement group, nothing held, and agreeing ledgers."""
    yield
    clean(running)


@pytest.fixture
def pool(running):
    """Pool with placement groups, so that starts need no new processes."""
    running.create_pool("main", capacity={"cpu": 10, "gpu": 2})
    running.configure_pool("main", max_dynamic_pgs=12)
    return "main"


@pytest.fixture(scope="module")
def zones(running):
    """Map Ray's node ids to zones."""
    return {row["NodeID"]: row["Labels"]["zone"] for row in ray.nodes() if row["Alive"]}


@pytest.fixture
def place(running, pool, zones):
    """Submit one task after another and return the zone of each agent."""

    def submit(count=1, **options):
        tasks = []
        for _ in range(count):
            task = running.submit_task(Probe, pool=pool, **{"resources": {"cpu": 1}, **options})
            assert task.wait_started(90).state is TaskState.RUNNING
            tasks.append(task)
        found = [zones[task.call("node")] for task in tasks]
        assert found == [zones[task.status().node] for task in tasks]
        return found

    return submit


def test_s20_labels_lead_to_the_nodes_that_carry_them(place):
    assert place(labels={"zone": "east"}) + place(labels={"zone": "west"}) == ["east", "west"]


def test_s32_spread_goes_around(place):
    assert sorted(place(3, policy="spread")) == ["east", "head", "west"]


def test_s37_binpack_fills_one_node_first(place):
    assert len(set(place(2, policy="binpack"))) == 1


def test_s3_least_busy_evens_the_load_out(place):
    assert len(set(place(2, policy="least_busy"))) == 2


def test_s32_every_policy_puts_the_agent_where_the_ledger_says(place):
    for policy in ("hybrid", "random", "power_of_two", "weighted", "min_fragment", "gang", "0.7*least_busy+0.3*binpack"):
        assert place(policy=policy)[0] in ("head", "east", "west"), policy


def test_s37_members_of_a_job_meet_or_avoid_each_other(place):
    (first,) = place(policy="spread", job="friends")
    assert place(policy="job_affinity", job="friends") == [first]
    assert place(policy="job_anti_affinity", job="friends") != [first]


def test_s37_leader_first_puts_work_with_a_gpu_on_the_gpu_node(place):
    assert place(policy="leader_first", resources={"cpu": 1, "gpu": 1}) == ["west"]


def test_s32_a_node_that_is_named_is_taken_or_refused_by_name(running, pool, place, zones):
    named = {zone: node for node, zone in zones.items()}
    assert place(policy="node_affinity", node=named["east"]) == ["east"]
    assert set(place(policy="node_affinity", node="0" * 56, soft=True)) <= {"head", "east", "west"}
    gone = running.submit_task(Probe, pool=pool, resources={"cpu": 1}, policy="node_affinity", node="0" * 56)
    assert gone.wait_started(5).reason is Reason.NAMED_NODE_GONE
    small = running.submit_task(Probe, pool=pool, resources={"gpu": 1}, policy="node_affinity", node=named["east"])
    assert small.wait_started(5).reason is Reason.NAMED_NODE_TOO_SMALL


def test_s32_task_without_demands_runs_anywhere(place):
    assert place(resources={})[0] in ("head", "east", "west")


def test_s37_a_gang_starts_whole_or_not_at_all(running, pool, zones):
    submit = [
        running.submit_task(Probe, pool=pool, resources={"cpu": 2}, gang="trio", gang_size=3, policy="gang", task_id=f"member-{number}")
        for number in range(2)
    ]
    assert [task.status().reason for task in submit] == [Reason.WAITING_FOR_GANG] * 2
    submit.append(running.submit_task(Probe, pool=pool, resources={"cpu": 2}, gang="trio", gang_size=3, policy="gang", task_id="member-2"))
    assert [task.wait_started(90).state for task in submit] == [TaskState.RUNNING] * 3
    assert all(zones[task.call("node")] for task in submit)


def test_s33_a_task_goes_where_its_argument_lies(running, pool, zones):
    @ray.remote(num_cpus=0, label_selector={"zone": "east"})
    def large():
        return b"x" * (8 * 2**20)

    value = large.remote()
    eventually(lambda: get_object_locations([value], timeout_ms=60_000)[value]["node_ids"])  # The mesh is new.
    task = running.submit_task(Probe, pool=pool, resources={"cpu": 1}, args=(value,), policy="locality")
    assert zones[task.call("node")] == "east"


# -- S1 to S5 on these agents ------------------------------------------------------------------------------------------


@pytest.fixture
def agents(running, pool):
    tasks = [running.submit_task(Probe, pool=pool, resources={"cpu": 1}, label="tier:gold", args=(number,)) for number in range(4)]
    for task in tasks:
        task.wait_started(90)
    running.refresh_groups()
    return tasks


def test_s2_s4_s5_agents_are_called_by_rank_and_listed_once(running, pool, agents):
    assert running.all("tier:gold").add(10) == [10, 11, 12, 13]
    group = running.group(tasks=agents, shape={"pipeline": 2, "tensor": 2})
    assert group.where(pipeline=1).all().add(0) == [12, 13]
    assert running.shard("tier:gold").train([0, 0, 0, 0]) == [10, 11, 12, 13]
    assert running.shard("tier:gold", dispatch_fn="broadcast", collect_fn="gather").train([1]) == [[11], [12], [13], [14]]
    names = {task.task for task in agents}
    assert [(each.pool, each.agents) for each in running.list_pools()] == [(pool, 4)]
    assert {each.task for each in running.list_agents() if each.task} == names
    assert {each.holder for each in running.list_groups() if each.holder} == names
    assert len(running.list_nodes()) == 3


def test_s3_choose_sends_calls_to_more_than_one_agent(running, agents):
    for strategy in ("least_busy", "round_robin", "random", "power_of_two", "priority"):
        chosen = running.choose("tier:gold", strategy)
        pids = Counter(ray.get([chosen.pid.remote() for _ in range(12)]))
        assert sum(pids.values()) == 12, strategy
        assert max(pids.values()) < 12, strategy
