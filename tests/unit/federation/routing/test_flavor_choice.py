"""Flavor order in routing: each key of a tenant's `scheduling`, on small federations of two flavors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federation.estimates import CostRules, Pace
from federation.mesh_conditions import MeshCondition
from federation.quota.flavors import Grade, Mode
from federation.quota.policies import Fungibility, Policies, PreemptionMode, Preference, QueueSettings, ResourceGroup, TryOn
from federation.routing.flavor_choice import Graded, in_order, search, words_of
from federation.routing.headroom import Headroom
from federation.routing.route import Routed, choose, route
from federation.routing.routing_request import RoutingRequest
from federation.routing.survey import survey
from federation.snapshot import FederationSnapshot, LeaseView, MeshRecord, MeshView, PoolRecord
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.ids import FlavorName, MeshId, PoolName, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet

LAB, OPS, ACME = TenantPath("acme/lab"), TenantPath("acme/ops"), TenantPath("acme")
SPOT, STANDARD = FlavorName("spot"), FlavorName("standard")
ONE_CPU = ResourceSet.of({"cpu": 1})
MIB = 2**20
#: One MiB takes a second, and a flavor is worth as much.
SLOW = CostRules(bandwidth_bytes_per_s=MIB)


def settings(*, flavors=(SPOT, STANDARD), reclaim=PreemptionMode.ANY, **fungibility):
    group = ResourceGroup(resources=("cpu",), flavors=flavors)
    return QueueSettings(fungibility=Fungibility(**fungibility), policies=Policies(reclaim=reclaim), groups=(group,))


def a_pool(name, flavor, *, cpu=4, used=0):
    capacity, in_use = ResourceSet.of({"cpu": cpu}), ResourceSet.of({"cpu": used})
    return PoolRecord(pool=PoolName(name), flavor=flavor, capacity=capacity, used=in_use)


def a_mesh(name, *pools, waiting=0, claimed=0, run_ms=None):
    record = MeshRecord(mesh=MeshId(name), labels={}, pools=pools, cluster="c")
    pace = Pace(run_ms=run_ms) if run_ms is not None else None
    condition = MeshCondition(pace=pace)
    return MeshView(record=record, incarnation=1, alive=True, heartbeat_age_ms=0, waiting=waiting, claimed=claimed, condition=condition)


def a_federation(*meshes, lab=(4, 4), ops=(4, 4), held=()):
    """CPUs of spot and standard per team; `held`: (tenant, mesh, flavor, CPUs)."""
    quotas = {
        tenant: {(flavor, "cpu"): Quota(nominal=cpus * 10_000) for flavor, cpus in zip((SPOT, STANDARD), owned, strict=True)}
        for tenant, owned in ((LAB, lab), (OPS, ops))
    }
    tree = TenantTree([Tenant(path=ACME, parent=None), *(Tenant(path=path, parent=ACME, quotas=rows) for path, rows in quotas.items())])
    leases = tuple(
        LeaseView(lease=f"l{number}", tenant=tenant, mesh=mesh, flavor=flavor, amounts=ResourceSet.of({"cpu": cpus}), token=1)
        for number, (tenant, mesh, flavor, cpus) in enumerate(held)
    )
    return FederationSnapshot(at_ms=0, tree=tree, usage=tree.recompute(leases), meshes=meshes, leases=leases)


def two(**pools):
    """One mesh with spot and one with standard."""
    return (
        a_mesh("spots", a_pool("p", SPOT, used=pools.get("spot_used", 0)), run_ms=60_000, claimed=1),
        a_mesh("usual", a_pool("p", STANDARD, used=pools.get("standard_used", 0)), run_ms=60_000, claimed=1),
    )


def routed(snapshot, *, near=None, rules=SLOW, alike=1, slot=ONE_CPU, **asked):
    request = RoutingRequest(tenant=LAB, slot=slot, settings=asked.pop("settings", None) or settings(**asked))
    answer = choose(survey(request, snapshot, rules), {MeshId(mesh): size for mesh, size in (near or {}).items()}, alike=alike)
    assert isinstance(answer, Routed)
    return answer


def flavor(snapshot, **asked):
    return routed(snapshot, **asked).flavor


SPOT_BORROWED = {"lab": (0, 4)}
#: Ops holds all spots, and lab owns half of them; on its own mesh, so that quota is missing.
SPOT_TO_RECLAIM = {"held": ((OPS, "else", SPOT, 8),)}


def test_first_of_equal_flavors_is_taken_despite_free_capacity():
    meshes = (a_mesh("spots", a_pool("p", SPOT, used=3)), a_mesh("usual", a_pool("p", STANDARD, cpu=64)))
    answer = routed(a_federation(*meshes))
    assert (answer.flavor, answer.reason) == (SPOT, Reason.FLAVOR_ORDER)
    assert answer.detail == "could start now in pool p, within its own quota of flavor spot; flavor spot is tried before standard"
    assert answer.flavor_why == "flavor spot is tried before standard"
    assert flavor(a_federation(*meshes), flavors=(STANDARD, SPOT)) == STANDARD


def test_flavors_without_an_order_are_equal():
    meshes = (a_mesh("spots", a_pool("p", SPOT, used=3)), a_mesh("usual", a_pool("p", STANDARD, cpu=64)))
    answer = routed(a_federation(*meshes), settings=QueueSettings())
    assert (answer.flavor, answer.reason, answer.flavor_why) == (STANDARD, Reason.MOST_HEADROOM, "")


def test_within_a_flavor_the_mesh_with_the_most_room_is_taken():
    meshes = (a_mesh("a", a_pool("p", SPOT, used=3)), a_mesh("b", a_pool("p", SPOT, used=1)), a_mesh("c", a_pool("p", STANDARD, cpu=64)))
    assert routed(a_federation(*meshes)).mesh == "b"


@pytest.mark.parametrize(
    ("asked", "taken"),
    [
        pytest.param({}, SPOT, id="stops at a flavor to borrow"),
        pytest.param({"on_borrow": TryOn.NEXT}, STANDARD, id="prefers the next flavor of its own quota"),
    ],
)
def test_on_borrow_says_to(asked, taken):
    assert flavor(a_federation(*two(), **SPOT_BORROWED), **asked) == taken


def test_when_every_flavor_would_be_borrowed_the_first_is_taken():
    assert flavor(a_federation(*two(), lab=(0, 0)), on_borrow=TryOn.NEXT) == SPOT


def test_flavor_that_borrows_less_says_so():
    answer = routed(a_federation(*two(), **SPOT_BORROWED), flavors=(SPOT, STANDARD), on_borrow=TryOn.NEXT)
    assert answer.flavor_why == "flavor standard needs less borrowing than spot"
    assert "by borrowing of flavor spot" in answer.verdicts[0].detail


@pytest.mark.parametrize(
    ("asked", "taken"),
    [
        pytest.param({}, STANDARD, id="prefers a fitting flavor over preemption"),
        pytest.param({"on_preempt": TryOn.STOP}, SPOT, id="takes the earlier flavor and waits for its victims"),
        pytest.param({"on_preempt": TryOn.STOP, "reclaim": PreemptionMode.NEVER}, STANDARD, id="finds none where it may preempt no one"),
        pytest.param(
            {"on_preempt": TryOn.STOP, "reclaim": PreemptionMode.LOWER_PRIORITY}, STANDARD, id="finds none where priorities decide"
        ),
    ],
)
def test_on_preempt_says_to_take(asked, taken):
    assert flavor(a_federation(*two(), **SPOT_TO_RECLAIM), **asked) == taken


def test_reclaimable_flavor_is_waited_for():
    answer = routed(a_federation(*two(), **SPOT_TO_RECLAIM), on_preempt=TryOn.STOP)
    assert answer.reason is Reason.FLAVOR_ORDER
    assert answer.flavor_why == "the tenant's own quota of flavor spot is reclaimed from borrowers"
    assert "which can be reclaimed" in answer.detail


def test_full_mesh_preempts_only_what_others_borrow_there():
    held = ((OPS, "spots", SPOT, 4),)
    asked = {"on_preempt": TryOn.STOP}
    assert flavor(a_federation(*two(spot_used=4), ops=(0, 4), held=held), **asked) == SPOT
    assert flavor(a_federation(*two(spot_used=4), ops=(4, 4), held=held), **asked) == STANDARD


@pytest.mark.parametrize(
    ("preference", "taken"),
    [(Preference.BORROWING, STANDARD), (Preference.PREEMPTION, SPOT)],
    ids=["prefers borrowing", "prefers preempting"],
)
def test_preference_decides_between_borrowing_and_preempting(preference, taken):
    snapshot = a_federation(*two(), lab=(4, 0), ops=(4, 8), held=((OPS, "else", SPOT, 8),))
    assert flavor(snapshot, on_borrow=TryOn.NEXT, on_preempt=TryOn.NEXT, preference=preference) == taken


def test_soonest_mesh_is_taken_when_every_flavor_waits():
    slow = a_mesh("spots", a_pool("p", SPOT, used=4), run_ms=4_000, claimed=1)
    quick = a_mesh("usual", a_pool("p", STANDARD, used=4), run_ms=3_000, claimed=1)
    answer = routed(a_federation(slow, quick))
    assert (answer.flavor, answer.reason) == (STANDARD, Reason.SHORTEST_WAIT)


@pytest.mark.parametrize(
    ("size", "taken", "reason"),
    [
        pytest.param(MIB, SPOT, Reason.FLAVOR_ORDER, id="are brought to an earlier flavor in the time that a flavor is worth"),
        pytest.param(MIB + 1, STANDARD, Reason.LOCALITY, id="hold work at a later flavor when that takes longer"),
    ],
)
def test_inputs(size, taken, reason):
    answer = routed(a_federation(*two()), near={"usual": size})
    assert (answer.flavor, answer.reason) == (taken, reason)
    verdicts = {verdict.mesh: verdict.transfer_ms for verdict in answer.verdicts}
    assert verdicts == {"spots": -(-size * 1_000 // MIB), "usual": 0}


def test_flavor_worth_no_time_only_breaks_ties():
    rules = replace(SLOW, flavor_delay_ms=0)
    assert flavor(a_federation(*two()), near={"usual": 1_024}, rules=rules) == STANDARD
    assert flavor(a_federation(*two()), rules=rules) == SPOT


def test_inputs_outweigh_preemption_elsewhere():
    assert flavor(a_federation(*two(), **SPOT_TO_RECLAIM), near={"usual": 2 * MIB}, on_preempt=TryOn.STOP) == STANDARD


def test_queue_at_the_mesh_of_the_earlier_flavor_counts():
    spots = a_mesh("spots", a_pool("p", SPOT), waiting=6, claimed=1, run_ms=1_000)
    assert flavor(a_federation(spots, two()[1])) == STANDARD


def test_flavor_with_capacity_for_all_stages_goes_first():
    snapshot = a_federation(*two(spot_used=3))
    assert flavor(snapshot, alike=1) == SPOT
    assert flavor(snapshot, alike=4) == STANDARD
    assert flavor(snapshot, alike=5) == SPOT


def test_mesh_with_several_flavors_is_taken_with_the_found_one():
    both = a_mesh("both", a_pool("a", STANDARD, cpu=16), a_pool("z", SPOT))
    answer = routed(a_federation(both))
    assert (answer.pool, answer.flavor, answer.reason) == ("z", SPOT, Reason.FLAVOR_ORDER)
    assert [(verdict.pool, verdict.flavor) for verdict in answer.verdicts] == [("z", SPOT)]
    answer = routed(a_federation(both), flavors=(STANDARD, SPOT))
    assert (answer.pool, answer.reason) == ("a", Reason.ONLY_FEASIBLE_MESH)


def test_work_that_asks_for_nothing_takes_the_first_flavor():
    assert flavor(a_federation(*two(spot_used=4)), slot=ResourceSet(), alike=9) == SPOT


def test_stages_planned_for_a_mesh_make_its_flavor_wait():
    request = RoutingRequest(tenant=LAB, slot=ONE_CPU, settings=settings())
    answer = route(request, a_federation(*two()), {MeshId("spots"): ResourceSet.of({"cpu": 4})}, SLOW)
    assert isinstance(answer, Routed)
    assert answer.flavor == STANDARD


FIT, BORROWED, RECLAIMED, WAITS = Grade(Mode.FIT, 0), Grade(Mode.FIT, 1), Grade(Mode.RECLAIM, 0), Grade(Mode.NO_RECLAIM_CANDIDATES, 0)


def test_a_flavor_counts_as_it_does_at_its_best_mesh():
    assert search([Graded(SPOT, WAITS), Graded(SPOT, FIT), Graded(STANDARD, FIT)], settings()) == (SPOT, FIT)


def test_no_flavor_is_found_when_all_wait_or_none_exists():
    assert search([Graded(SPOT, WAITS), Graded(STANDARD, WAITS)], settings()) is None
    assert search([], settings()) is None


def test_flavors_missing_from_the_file_come_last_by_name():
    assert in_order([FlavorName("b"), FlavorName("a"), STANDARD, SPOT], settings()) == [SPOT, STANDARD, "a", "b"]


@pytest.mark.parametrize(
    ("passed", "words"),
    [
        (RECLAIMED, "flavor spot has room, and standard would need a reclaim"),
        (WAITS, "flavor spot has room, and for standard it would wait"),
        (BORROWED, "flavor spot needs less borrowing than standard"),
        (FIT, "flavor spot is tried before standard"),
    ],
)
def test_the_words_name_what_speaks_against_the_other_flavor(passed, words):
    assert words_of(Graded(SPOT, FIT), Graded(STANDARD, passed)) == words


def test_headroom_lists_loans_of_others_on_a_mesh():
    held = ((OPS, "spots", SPOT, 5), (OPS, "usual", SPOT, 2), (LAB, "spots", SPOT, 1))
    headroom = Headroom(a_federation(lab=(0, 4), held=held))
    assert headroom.borrowed_at(MeshId("spots"), SPOT, "cpu", LAB) == 30_000
    assert headroom.borrowed_at(MeshId("spots"), SPOT, "cpu", OPS) == 10_000
    assert headroom.borrowed_at(MeshId("usual"), SPOT, "cpu", LAB) == 20_000
    assert headroom.borrowed_at(MeshId("moon"), SPOT, "cpu", LAB) == 0


def test_headroom_grants_nothing_to_a_tenant_that_is_not_there():
    snapshot = a_federation()
    gone = LeaseView(lease="l", tenant=TenantPath("gone"), mesh=MeshId("spots"), flavor=SPOT, amounts=ONE_CPU, token=1)
    headroom = Headroom(replace(snapshot, leases=(gone,)))
    assert headroom.grantable(TenantPath("gone"), SPOT, "cpu") == (0, 0)
    assert headroom.borrowed_at(MeshId("spots"), SPOT, "cpu", LAB) == 0
