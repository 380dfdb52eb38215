"""A federation in virtual time: what it starts, stops and tells."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federation.conformance.case_stores import memory_store
from federation.conformance.deployed_federation import CaseStage, DeployedFederation
from federation.quota.policies import Policies, PreemptionMode, QueueSettings, Rules, TenantPolicies
from federation.snapshot import MeshRecord, PoolRecord
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.ids import FlavorName, MeshId, PoolName, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet

SPOT, ACME = FlavorName("spot"), TenantPath("acme")
POLICIES = TenantPolicies(
    rules=Rules(min_run_ms=0), settings={ACME: QueueSettings(policies=Policies(within_queue=PreemptionMode.LOWER_PRIORITY))}
)


def tree(units: int) -> TenantTree:
    return TenantTree([Tenant(path=ACME, parent=None, quotas={(SPOT, "cpu"): Quota(nominal=units)})])


def stage(name: str, cpu: int = 1, *, priority: int = 0) -> CaseStage:
    return CaseStage(stage=StageId(name), tenant=ACME, slot=ResourceSet({"cpu": cpu}), priority=priority)


@pytest.fixture
def store():
    with memory_store() as made:
        made.ledger.configure(tree(1))
        yield made


@pytest.fixture
def federation(store) -> DeployedFederation:
    """One mesh with room for nine, of a tenant that owns one."""
    pool = PoolRecord(pool=PoolName("all"), flavor=SPOT, capacity=ResourceSet({"cpu": 9}))
    made = DeployedFederation(store, [MeshRecord(mesh=MeshId("east"), labels={}, pools=(pool,), cluster="c", shared=True)], POLICIES)
    made.join()
    return made


def test_a_stage_runs_as_long_as_nobody_stops_it(federation):
    federation.submit(stage("one"))
    federation.run()
    federation.advance(3_600_000)
    federation.run()
    assert (federation.mesh_of(StageId("one")), federation.slots_of(StageId("one")), federation.lost) == ("east", 1, {})


def test_a_stage_without_quota_waits_and_says_why(federation):
    federation.submit(stage("one"), stage("two"))
    federation.run()
    assert federation.waits == {"two": Reason.QUOTA_EXHAUSTED}
    assert federation.mesh_of(StageId("two")) is None


def test_contested_stage_says_so_and_waits_for_the_plan(store):
    team = {name: TenantPath(f"acme/{name}") for name in ("big", "small")}
    store.ledger.configure(TenantTree([*tree(4).tenants.values(), *(Tenant(path=path, parent=ACME) for path in team.values())]))
    pool = PoolRecord(pool=PoolName("all"), flavor=SPOT, capacity=ResourceSet({"cpu": 9}))
    made = DeployedFederation(store, [MeshRecord(mesh=MeshId("east"), labels={}, pools=(pool,), cluster="c", shared=True)], POLICIES)
    made.join()
    made.submit(stage("own", 2))
    made.run()
    made.submit(replace(stage("big", 3, priority=1), tenant=team["big"]), replace(stage("small"), tenant=team["small"]))
    made.run(with_plans=False)
    assert made.waits == {"big": Reason.QUOTA_EXHAUSTED, "small": Reason.QUOTA_CONTESTED}
    made.run()
    assert (made.slots_of(StageId("small")), made.slots_of(StageId("big")), made.lost) == (1, 0, {})


def test_a_victim_stops_at_once(federation):
    federation.submit(stage("low"))
    federation.run()
    federation.submit(stage("high", priority=1))
    federation.run()
    assert federation.lost == {"low": Reason.PREEMPTED_WITHIN_TENANT}
    assert federation.mesh_of(StageId("high")) == "east"


def test_a_held_victim_keeps_its_quota_until_it_may_stop(federation):
    federation.submit(stage("low"))
    federation.run()
    federation.hold_stops()
    federation.submit(stage("high", priority=1))
    federation.run()
    assert (federation.asked_to_stop(), federation.lost) == ({"low"}, {})
    assert federation.waits == {"high": Reason.WAITING_FOR_VICTIMS}
    federation.let_stop()
    federation.run()
    assert federation.mesh_of(StageId("high")) == "east"


def test_a_stage_that_no_mesh_takes_is_routed_again(federation, store):
    federation.submit(stage("big", 2))
    federation.run()
    assert federation.waits == {"big": Reason.QUOTA_TOO_SMALL}
    store.ledger.configure(tree(2))
    federation.run()
    assert federation.mesh_of(StageId("big")) == "east"


def test_quota_comes_back_when_a_user_cancels(federation):
    federation.submit(stage("one"))
    federation.run()
    federation.cancel(StageId("one"))
    federation.run()
    assert (federation.snapshot().leases, federation.lost) == ((), {})
