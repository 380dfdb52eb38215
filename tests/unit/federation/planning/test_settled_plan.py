"""A plan that changes nothing is kept until something or a known moment changes it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federation.planning import planner_loop
from federation.planning.settled_plan import SettledPlan
from federation.planning.values import Plan, Target
from federation.planning.victim_search import MESH_TRIES_MS
from federation.quota.policies import OnMaxWait, QueueSettings, Rules, TenantPolicies
from federation.quota.tenant_policies import PoliciesInForce
from federation.snapshot import DemandView, FederationSnapshot, LeaseView, MeshRecord, MeshView, PoolRecord, RunningView
from federation.tenants import Tenant, TenantTree
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet

CPU = ResourceSet.of({"cpu": 1})
LAB, SHOP = "lab", "shop"
NOW_MS, LONG_AGO_MS = 10_000_000, 1_000_000
TREE = TenantTree([Tenant(path=LAB, parent=None), Tenant(path=SHOP, parent=None)])
MINUTE = PoliciesInForce(filed=TenantPolicies(rules=Rules(min_run_ms=60_000)))
POOL = PoolRecord(pool="p", flavor="red", capacity=CPU.times(4), used=CPU)
MESH = MeshView(record=MeshRecord(mesh="east", labels={}, pools=(POOL,), cluster="c"), incarnation=1, alive=True, heartbeat_age_ms=0)
LEASE = LeaseView(lease="x", tenant=LAB, mesh="east", flavor="red", amounts=CPU, target=CPU, token=LONG_AGO_MS * 1_000)
STAGE = RunningView(
    stage="s", mesh="east", tenant=LAB, flavor="red", amounts=CPU, priority=0, token=1, since_ms=LONG_AGO_MS, created_ms=LONG_AGO_MS
)
DEMAND = DemandView(mesh="east", tenant=SHOP, flavor="red", slot=CPU, slots=1, priority=0, waiting_ms=100_000)


def snapshot(**changed):
    known = {"at_ms": NOW_MS, "tree": TREE, "meshes": (MESH,), "leases": (LEASE,), "running": (STAGE,), "demands": (DEMAND,)}
    return FederationSnapshot(**{**known, **changed})


def later(by_ms, **changed):
    """Return the snapshot after some time: everything is older, and mesh and demand are read anew."""
    aged = replace(changed.pop("demand", DEMAND), waiting_ms=DEMAND.waiting_ms + by_ms)
    return snapshot(**{"at_ms": NOW_MS + by_ms, "demands": (aged,), "meshes": (replace(MESH, heartbeat_age_ms=700),), **changed})


def settled(before=None, in_force=MINUTE):
    return SettledPlan.of(Plan(), before or snapshot(), in_force)


def test_a_plan_holds_while_only_time_passes():
    assert settled().holds(later(50_000), MINUTE)


def test_a_plan_that_changes_something_is_not_kept():
    plan = Plan(raised=(Target("east", LAB, "red", {"cpu": 1}, Reason.QUOTA_FREE),))
    assert SettledPlan.of(plan, snapshot(), MINUTE) is None


def test_past_use_counts_at_every_moment():
    assert settled(in_force=PoliciesInForce(filed=TenantPolicies(rules=Rules(history_half_life_ms=1_000)))) is None


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"leases": (replace(LEASE, target=CPU.times(2)),)}, id="another target of a lease"),
        pytest.param({"running": ()}, id="a stage ended"),
        pytest.param({"running": (replace(STAGE, saved_ms=NOW_MS),)}, id="a stage saved"),
        pytest.param({"demand": replace(DEMAND, slots=2)}, id="more demand"),
        pytest.param({"demands": ()}, id="no demand"),
        pytest.param({"demands": (replace(DEMAND, waiting_ms=110_000),)}, id="a demand that waits for longer"),
        pytest.param({"meshes": (replace(MESH, alive=False),)}, id="a mesh is silent"),
        pytest.param({"meshes": (replace(MESH, record=replace(MESH.record, pools=(replace(POOL, used=CPU.times(2)),))),)}, id="more use"),
        pytest.param({"tree": TenantTree([Tenant(path=LAB, parent=None), Tenant(path=SHOP, parent=None)])}, id="another tree"),
        pytest.param({"at_ms": NOW_MS - 1}, id="the clock was set back"),
    ],
)
def test_a_change_ends_it(changed):
    assert not settled().holds(later(1_000, **changed), MINUTE)


def test_a_demand_that_is_read_a_little_earlier_does_not_end_it():
    assert settled().holds(later(1_000, demands=(replace(DEMAND, waiting_ms=DEMAND.waiting_ms + 1_900),)), MINUTE)


def test_other_settings_end_it():
    assert not settled().holds(later(1_000), replace(MINUTE))


@pytest.mark.parametrize(
    ("before", "after_ms"),
    [
        pytest.param({"running": (replace(STAGE, since_ms=NOW_MS - 20_000),)}, 40_000, id="a stage has run for its minimum"),
        pytest.param({"leases": (replace(LEASE, token=(NOW_MS - 20_000) * 1_000),)}, 40_000, id="a lease is old enough"),
        pytest.param({"demands": (replace(DEMAND, waiting_ms=1_000),)}, MESH_TRIES_MS - 1_000, id="the mesh has tried"),
    ],
)
def test_it_holds_until_a_known_moment(before, after_ms):
    found = settled(snapshot(**before))
    aged = {**before, **({"demands": (replace(before["demands"][0], waiting_ms=9),)} if "demands" in before else {})}
    assert found.holds(later(after_ms - 1, **aged), MINUTE)
    assert not found.holds(later(after_ms, **aged), MINUTE)


def test_it_holds_until_a_demand_is_overdue():
    rules = QueueSettings(max_wait_ms=130_000, on_max_wait=OnMaxWait.FIRST)
    in_force = PoliciesInForce(filed=TenantPolicies(rules=Rules(), settings={SHOP: rules}))
    found = settled(in_force=in_force)
    assert found.holds(later(29_999), in_force)
    assert not found.holds(later(30_000), in_force)


def test_the_loop_plans_once_while_nothing_changes(monkeypatch):
    made = []
    monkeypatch.setattr(planner_loop, "plan", lambda *given, **_: made.append(given) or Plan())

    class Ledger:
        now_ms = 0

        def elect(self, *_):
            return 1

        def snapshot(self):
            self.now_ms += 1_000
            return later(self.now_ms)

    class Policies:
        def in_force(self):
            return MINUTE

    loop = planner_loop.PlannerLoop(Ledger(), "root", leader_ttl_ms=5_000, tenant_policies=Policies())
    for _ in range(10):
        assert loop.tick() == Plan()
    assert len(made) == 1
