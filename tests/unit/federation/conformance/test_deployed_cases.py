"""Each rule by which a quota case becomes tree, meshes, policies and stages of a federation."""

from __future__ import annotations

import pytest
from deployed_builders import case, pod_set, preempting, queue, quota, read, running, waiting

from federation.conformance.deployed_cases import QUOTA_MAX, NotExpressible
from federation.conformance.quota_cases import amounts_of
from federation.quota.policies import PreemptionMode
from mesh.core.ids import FlavorName, TenantPath
from mesh.core.resources import ResourceSet

SPOT_CPU = (FlavorName("spot"), "cpu")


def admitting(*queues, incoming, admitted=()):
    return read(case("admit", *queues, expect={"admitted": []}, admitted=list(admitted), incoming=list(incoming)))


def stage_of(made):
    """The stage of the only waiting workload."""
    (incoming,) = made.case.fields.each("incoming")
    return made.pending(made.case.pending(incoming))


# ---- the tree


def test_cohorts_and_queues_are_tenants():
    cohort = {"name": "a", "parent": None, "weight": 2, "quotas": [quota(3)]}
    made = read(case("share", queue("a", quota(4, borrowing=1), cohort="a"), cohorts=[cohort], expect={"a": {}, "cohort:a": {}}))
    tree = made.tree
    assert {path: tenant.parent for path, tenant in tree.tenants.items()} == {"a": "cohort:a", "cohort:a": None}
    assert tree.quota(TenantPath("a"), SPOT_CPU).borrowing_limit == 1
    assert tree.own_quota(TenantPath("cohort:a"), SPOT_CPU) == 7
    assert made.tenant_policies.weights == {"cohort:a": 2}


def test_an_endless_quota_is_one_that_a_ledger_can_hold():
    made = read(case("share", queue("a", quota(10**21)), queue("b", quota(10**21)), expect={"a": {}}))
    assert made.tree.own_quota(TenantPath("a"), SPOT_CPU) == QUOTA_MAX


def test_running_work_starts_under_a_tree_that_covers_it():
    made = read(preempting({"victims": []}, running("one", "a", 2), running("two", "a", 3)))
    assert made.roomy_tree().own_quota(TenantPath("a"), SPOT_CPU) == 5
    assert made.tree.own_quota(TenantPath("a"), SPOT_CPU) == 2


def test_policies_are_settings_of_the_tenants():
    policies = read(preempting({"victims": []})).tenant_policies
    assert policies.settings["a"].policies.within_queue is PreemptionMode.LOWER_PRIORITY
    assert policies.min_run_of("a") == 0


# ---- the meshes


def test_a_flavor_is_a_mesh_and_closed_to_queues_without_quota():
    made = admitting(queue("a", quota(1), quota(1, "standard")), queue("b", quota(1)), incoming=[])
    assert {record.mesh: record.pools[0].flavor for record in made.records()} == {"mesh-spot": "spot", "mesh-standard": "standard"}
    assert {name: sorted(made.tree.open_flavors(name)) for name in "ab"} == {"a": ["spot", "standard"], "b": ["spot"]}


# ---- running work


def test_running_work_starts_in_the_order_of_its_reservation():
    work = (running("late", "a", 1), running("early", "a", 1, reserved_at=5))
    assert [one.workload.workload for one in read(preempting({"victims": []}, *work)).in_order_of_start()] == ["early", "late"]


def test_of_equal_reservations_the_greatest_uid_starts_first():
    work = (running("one", "a", 1, uid="x"), running("two", "a", 1, uid="z"), running("three", "a", 1, uid="y"))
    assert [one.workload.workload for one in read(preempting({"victims": []}, *work)).in_order_of_start()] == ["z", "y", "x"]


def test_running_work_with_two_flavors_is_two_stages():
    made = read(preempting({"victims": []}, running("wide", "a", requests={"spot": {"cpu": 1}, "standard": {"cpu": 2, "gpu": 0}})))
    stages = made.running_stages(made.case.admitted[0])
    assert [(stage.mesh, stage.slot) for stage in stages] == [
        ("mesh-spot", ResourceSet({"cpu": 1})),
        ("mesh-standard", ResourceSet({"cpu": 2})),
    ]
    assert {made.names[stage.stage] for stage in stages} == {"wide"}


def test_work_that_stops_already_is_not_expressible():
    with pytest.raises(NotExpressible, match="asked to stop"):
        read(preempting({"victims": []}, running("old", "a", 1, evicted=True)))


# ---- waiting work


def test_all_replicas_are_one_slot():
    stage = stage_of(admitting(queue("a", quota(9)), incoming=[waiting("new", "a", pod_set(3, cpu=2, gpu=0), priority=4)]))
    assert (stage.slot, stage.width, stage.priority, stage.mesh) == (ResourceSet({"cpu": 6}), 1, 4, None)


def test_shrinkable_replicas_are_slots_of_their_min_count():
    stage = stage_of(admitting(queue("a", quota(9)), incoming=[waiting("new", "a", pod_set(6, least=2, cpu=1))]))
    assert (stage.slot, stage.width) == (ResourceSet({"cpu": 2}), 3)


def test_other_shrinking_steps_are_not_expressible():
    with pytest.raises(NotExpressible, match="steps"):
        stage_of(admitting(queue("a", quota(9)), incoming=[waiting("new", "a", pod_set(5, least=2, cpu=1))]))


def test_resources_of_two_groups_are_not_expressible():
    groups = [{"resources": ["cpu"], "flavors": ["spot"]}, {"resources": ["gpu"], "flavors": ["standard"]}]
    two = queue("a", quota(1), quota(1, "standard", "gpu"), resource_groups=groups)
    with pytest.raises(NotExpressible, match="groups"):
        stage_of(admitting(two, incoming=[waiting("new", "a", pod_set(1, cpu=1, gpu=1))]))


def test_a_resource_of_no_group_is_asked_for_all_the_same():
    stage = stage_of(admitting(queue("a", quota(1)), incoming=[waiting("new", "a", pod_set(1, gpu=1))]))
    assert stage.slot == ResourceSet({"gpu": 1})


def test_a_chosen_flavor_is_a_chosen_mesh():
    made = read(preempting({"victims": []}))
    incoming = made.case.fields.inner("incoming")
    assert made.pending_on(made.case.workload(incoming), amounts_of(incoming)).mesh == "mesh-spot"


def test_two_chosen_flavors_are_not_expressible():
    made = read(preempting({"victims": []}))
    workload = made.case.workload(made.case.fields.inner("incoming"))
    with pytest.raises(NotExpressible, match="takes 2"):
        made.pending_on(workload, {SPOT_CPU: 1, (FlavorName("standard"), "cpu"): 1})
