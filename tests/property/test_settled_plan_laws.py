"""A settled plan is the plan that would be made anew, for as long as it says that it holds."""

from __future__ import annotations

from dataclasses import replace

from examples_of_laws import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.planning.planner import plan
from federation.planning.planner_inputs import demands_of, holdings_of
from federation.planning.settled_plan import SettledPlan
from federation.planning.values import Plan
from federation.quota.forest import QuotaForest
from federation.quota.policies import OnMaxWait, QueueSettings, Rules, TenantPolicies
from federation.quota.tenant_policies import PoliciesInForce
from federation.snapshot import DemandView, FederationSnapshot, LeaseView, MeshRecord, MeshView, PoolRecord, RunningView
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.resources import ResourceSet

TEAMS, MESHES, FLAVOR = ("r/a", "r/b", "r/c"), ("east", "west"), "red"
NOW_MS = 1_000_000
ages = st.integers(0, 40).map(lambda tenths: tenths * 500)


def units(count):
    return ResourceSet({"cpu": count})


@st.composite
def cases(draw):
    """Return settings and a snapshot in which each lease pays for stages of one or two slots."""
    quota = st.builds(Quota, nominal=st.integers(0, 3), borrowing_limit=st.none() | st.integers(0, 3))
    tree = TenantTree(
        [Tenant(path="r", parent=None), *(Tenant(path=team, parent="r", quotas={(FLAVOR, "cpu"): draw(quota)}) for team in TEAMS)]
    )
    rules = Rules(min_run_ms=draw(st.sampled_from([0, 5_000, 12_000])), fair_sharing=draw(st.booleans()))
    waits = {team: QueueSettings(max_wait_ms=12_000, on_max_wait=OnMaxWait.FIRST) for team in TEAMS if draw(st.booleans())}
    leases, running, demands = [], [], []
    for mesh in MESHES:
        for team in TEAMS:
            some = draw(st.lists(st.tuples(st.integers(1, 2), st.integers(0, 2), ages), max_size=2))
            amounts = units(sum(slots for slots, _, _ in some))
            if some:
                age_ms = draw(ages)
                token = (NOW_MS - age_ms) * 1_000 + len(leases)
                about = {"lease": f"{mesh}{team}", "amounts": amounts, "target": amounts}
                leases.append(LeaseView(tenant=team, mesh=mesh, flavor=FLAVOR, token=token, **about))
            for slots, priority, age_ms in some:
                at = {"since_ms": NOW_MS - age_ms, "created_ms": NOW_MS - age_ms, "token": len(running) + 1}
                who = {"stage": f"s{len(running)}", "mesh": mesh, "tenant": team, "flavor": FLAVOR, "priority": priority}
                running.append(RunningView(amounts=units(slots), slots=slots, **who, **at))
            if draw(st.booleans()):
                about = {"slots": draw(st.integers(1, 3)), "priority": draw(st.integers(0, 2)), "waiting_ms": draw(ages)}
                demands.append(DemandView(mesh=mesh, tenant=team, flavor=FLAVOR, slot=units(1), **about))
    meshes = []
    for mesh in MESHES:
        used = sum((lease.amounts["cpu"] for lease in leases if lease.mesh == mesh), start=0)
        pool = PoolRecord(pool="p", flavor=FLAVOR, capacity=units(max(1, used + draw(st.integers(0, 2)))), used=units(used))
        record = MeshRecord(mesh=mesh, labels={}, pools=(pool,), cluster=mesh)
        meshes.append(MeshView(record=record, incarnation=1, alive=True, heartbeat_age_ms=0))
    rows = {"meshes": tuple(meshes), "leases": tuple(leases), "running": tuple(running), "demands": tuple(demands)}
    return PoliciesInForce(filed=TenantPolicies(rules=rules, settings=waits)), FederationSnapshot(at_ms=NOW_MS, tree=tree, **rows)


def planned(snapshot: FederationSnapshot, in_force: PoliciesInForce) -> Plan:
    filed, forest = in_force.filed, QuotaForest.of_tenants(snapshot.tree, in_force.filed.weights)
    about = {"now_ms": snapshot.at_ms, "rules": filed.rules, "settings": filed.settings}
    return plan(forest, holdings_of(snapshot), demands_of(snapshot), **about)


@given(case=cases(), later_ms=st.integers(0, 40).map(lambda tenths: tenths * 500))
@settings(max_examples=examples(300))
def test_a_plan_that_holds_would_be_made_again(case, later_ms):
    in_force, snapshot = case
    found = SettledPlan.of(planned(snapshot, in_force), snapshot, in_force)
    if found is None:
        return
    aged = tuple(replace(demand, waiting_ms=demand.waiting_ms + later_ms) for demand in snapshot.demands)
    later = replace(snapshot, at_ms=NOW_MS + later_ms, demands=aged)
    if found.holds(later, in_force):
        anew = planned(later, in_force)
        assert not anew.lowered
        assert not anew.raised
        assert [(unmet.reason, unmet.slots) for unmet in anew.unmet] == [(unmet.reason, unmet.slots) for unmet in found.plan.unmet]
