"""Cached scores equal fresh ones, and requests find the bucket of their key."""

from dataclasses import replace

import numpy as np
import pytest

from mesh.core.ids import JobId, LabelName, NodeName, PoolName, TaskId
from mesh.core.nodes import NodeTable
from mesh.core.pools import PoolSpec
from mesh.core.resources import ResourceSet
from mesh.core.shapes import GroupPoolSpec
from mesh.core.task_spec import TaskRequest, Weights
from mesh.placement.candidates import Candidates
from mesh.policies.catalogue import node_policy
from mesh.policies.fragmentation import CommonShapes
from mesh.policies.policy import NodeDemand, Policy
from mesh.tasks.events import LabelConfigured, NodeJoined, PoolConfigured
from mesh.tasks.scheduler import MeshScheduler

NODE, POOL, OTHER = NodeName("one"), PoolName("p"), PoolName("q")
PLAIN = TaskRequest(task=TaskId("t"), pool=POOL, resources=ResourceSet.of({"cpu": 1}))
VARIANTS = {
    "label": {"label": LabelName("gold")},
    "pool": {"pool": OTHER},
    "resources": {"resources": ResourceSet.of({"cpu": 2})},
    "bundles": {"bundles": (PLAIN.resources, PLAIN.resources)},
    "strategy": {"strategy": "SPREAD"},
    "selector": {"selector": {"zone": "a"}},
    "policy": {"policy": "hybrid"},
    "weights": {"weights": Weights(availability=0.7)},
    "workload type": {"workload_type": "training"},
    "priority": {"priority": 9.0},
    "agent": {"has_agent": False},
    "affinity to no node": {"policy": "node_affinity"},
    "node": {"policy": "node_affinity", "node": NODE},
    "softness": {"policy": "node_affinity", "node": NODE, "soft": True},
    "job": {"job": JobId("j")},
    "role": {"job": JobId("j"), "role": "leader"},
    "gang": {"gang": "g", "gang_size": 2},
    "local bytes": {"local_bytes": {NODE: 7}},
}


def mesh_of_two_pools() -> MeshScheduler:
    scheduler = MeshScheduler()
    capacity, groups = ResourceSet.of({"cpu": 100}), GroupPoolSpec(reserved_priority=8.0)
    scheduler.handle(
        NodeJoined(at_ms=0, node=NODE, total=ResourceSet.of({"cpu": 8})),
        *(PoolConfigured(at_ms=0, spec=PoolSpec(pool=pool, capacity=capacity, groups=groups)) for pool in (POOL, OTHER)),
        LabelConfigured(at_ms=0, label=LabelName("workload:training"), weights={"availability": 0.3}),
    )
    return scheduler


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_a_bucket_depends_on_the_key_of_the_request_alone(changes: dict):
    used, fresh = mesh_of_two_pools().state.shapes, mesh_of_two_pools().state.shapes
    request = replace(PLAIN, **changes)
    used.bucket_for(PLAIN)
    for others in VARIANTS.values():
        used.bucket_for(replace(PLAIN, **others))
    assert used.bucket_for(request).key == fresh.bucket_for(request).key
    assert used.bucket_for(request) is used.buckets[used.bucket_for(request).key]


def test_settings_that_change_give_a_request_another_bucket():
    scheduler = mesh_of_two_pools()
    before = scheduler.state.shapes.bucket_for(PLAIN)
    scheduler.handle(PoolConfigured(at_ms=1, spec=PoolSpec(pool=POOL, capacity=ResourceSet.of({"cpu": 100}), policy="binpack")))
    assert (before.key.policy, scheduler.state.shapes.bucket_for(PLAIN).key.policy) == ("weighted", "binpack")


def candidates(table: NodeTable, wanted: ResourceSet, by: Policy) -> Candidates:
    return Candidates(table, wanted, {}, by, NodeDemand(wanted=table.vector(wanted)))


def test_one_row_and_all_rows_agree_under_over_commitment():
    table, cpu = NodeTable(), ResourceSet.of({"cpu": 1})
    table.join(NODE, ResourceSet.of({"cpu": 8, "gpu": 2}), {})
    for number in range(9):  # Else one row is a large part of all, and everything is swept.
        table.join(NodeName(f"other-{number}"), ResourceSet.of({"cpu": 1}), {})
    kept = candidates(table, cpu, node_policy("binpack"))
    kept.scores()
    table.see_foreign(NODE, table.vector(ResourceSet.of({"gpu": 3})))
    assert np.array_equal(kept.scores(), candidates(table, cpu, node_policy("binpack")).scores())
    assert kept.scores()[table.row(NODE)] > -np.inf


@pytest.mark.parametrize(("sees_common", "scored"), [(True, 2), (False, 1)], ids=["one that looks at it", "one that does not"])
def test_only_policies_that_use_common_shapes_score_again(sees_common: bool, scored: int):
    calls = []
    table, cpu = NodeTable(), ResourceSet.of({"cpu": 1})
    table.join(NODE, ResourceSet.of({"cpu": 8}), {})
    kept = candidates(table, cpu, Policy("counting", lambda _, view: calls.append(1) or np.zeros(len(view.total)), sees_common=sees_common))
    kept.scores()
    kept.know(CommonShapes.of([[10_000]]))
    kept.scores()
    assert len(calls) == scored


def test_alike_nodes_in_sequence_are_scored_once():
    seen: list[int] = []
    policy = Policy("counting", lambda _, view: seen.append(len(view.total)) or view.free[:, 0] + view.busy)
    table, cpu = NodeTable(), ResourceSet.of({"cpu": 1})
    for place, cpus in enumerate((8, 8, 8, 0.5, 4, 4)):
        table.join(NodeName(f"node-{place}"), ResourceSet.of({"cpu": cpus}), {})
    table.promise(1, table.vector(cpu))
    assert candidates(table, cpu, policy).scores().tolist() == [80_000, 70_001, 80_000, -np.inf, 40_000, 40_000]
    assert seen == [4]


def test_scores_of_a_fenced_plugin_are_computed_again():
    fences = [0]
    policy = Policy("mine", lambda _, view: np.arange(len(view.total)) - 10.0 * fences[0], version=lambda: fences[0])
    table = NodeTable()
    for name in ("one", "two", "three"):
        table.join(NodeName(name), ResourceSet.of({"cpu": 8}), {})
    candidates = Candidates(table, PLAIN.resources, {}, policy, NodeDemand(wanted=table.vector(PLAIN.resources)))
    assert candidates.scores().tolist() == [0.0, 1.0, 2.0]
    fences[0] = 1
    assert candidates.scores().tolist() == [-10.0, -9.0, -8.0]
