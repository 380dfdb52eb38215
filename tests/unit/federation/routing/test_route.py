"""Routing on small snapshots: each refusal with its reason, and each comparison with the next one."""

from dataclasses import replace

import pytest

from federation.estimates import CostRules, Pace
from federation.flap_detection import FlapHistory
from federation.mesh_conditions import Drain, MeshCondition
from federation.quota.policies import Policies, PreemptionMode, QueueSettings
from federation.routing.mesh_filters import words_of_nodes
from federation.routing.route import Routed, RouteRefused, choose, route
from federation.routing.routing_request import RoutingRequest
from federation.routing.survey import survey
from federation.snapshot import AbsentMesh, FederationSnapshot, LeaseView, MeshRecord, MeshView, PoolRecord, Whereabouts
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.ids import FlavorName, MeshId, PoolName, TenantPath
from mesh.core.node_sizes import sizes_of
from mesh.core.reasons import Reason
from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.shapes import Gang, GroupPoolSpec, GroupShape

LAB = TenantPath("acme/lab")
STANDARD = FlavorName("standard")
ONE_CPU = ResourceSet.of({"cpu": 1})


def a_tree(cpu: int = 8) -> TenantTree:
    root = Tenant(path=TenantPath("acme"), parent=None)
    lab = Tenant(path=LAB, parent=root.path, quotas={(STANDARD, "cpu"): Quota(nominal=cpu * 10_000)})
    return TenantTree([root, lab])


def a_mesh(
    name: str,
    *,
    cpu: int = 4,
    used: int = 0,
    alive: bool = True,
    waiting: int = 0,
    labels: dict[str, str] | None = None,
    drain: Drain | None = None,
    reserved: tuple[int, ...] = (),
    gpu: int = 0,
    **record: object,
) -> MeshView:
    groups = [ResourceSet.of({"cpu": each}) for each in reserved]
    pool = PoolRecord(
        pool=PoolName("general"),
        flavor=STANDARD,
        capacity=ResourceSet.of({"cpu": cpu, "gpu": gpu}),
        used=ResourceSet.of({"cpu": used}),
        groups=GroupPoolSpec(reserved=tuple(GroupShape((each,)) for each in groups)),
        reserved_idle=sum(groups, start=NOTHING),
    )
    own = MeshRecord(mesh=MeshId(name), labels=labels or {}, pools=(pool,), cluster="c1", **record)
    return MeshView(record=own, incarnation=1, alive=alive, heartbeat_age_ms=0, waiting=waiting, condition=MeshCondition(drain=drain))


def a_snapshot(*meshes: MeshView, cpu: int = 8, cpu_used: int = 0) -> FederationSnapshot:
    usage = {(path, STANDARD, "cpu"): cpu_used * 10_000 for path in (LAB, TenantPath("acme"))}
    return FederationSnapshot(at_ms=0, tree=a_tree(cpu), usage=usage, meshes=meshes)


def a_request(**asked: object) -> RoutingRequest:
    return RoutingRequest(**{"tenant": LAB, "slot": ONE_CPU, **asked})


@pytest.mark.parametrize(
    ("work", "mesh", "reason"),
    [
        pytest.param(a_request(labels={"zone": "west"}), a_mesh("east"), Reason.LABEL_MISMATCH, id="the mesh lacks a label"),
        pytest.param(
            a_request(labels={"spot": "!"}),
            a_mesh("east", labels={"spot": "yes"}),
            Reason.LABEL_MISMATCH,
            id="the mesh has a label that the work excludes",
        ),
        pytest.param(
            a_request(), a_mesh("east", tenants=("acme/lab/x", "acme/la")), Reason.TENANT_NOT_ALLOWED, id="the mesh is for other tenants"
        ),
        pytest.param(a_request(), a_mesh("east", tenants=()), Reason.TENANT_NOT_ALLOWED, id="the mesh is for no tenant"),
        pytest.param(a_request(), a_mesh("east", alive=False), Reason.MESH_UNREACHABLE, id="the heartbeat is overdue"),
        pytest.param(a_request(), a_mesh("east", cluster_answers=False), Reason.MESH_UNREACHABLE, id="its Ray cluster is gone"),
        pytest.param(a_request(), a_mesh("east", drain=Drain()), Reason.MESH_DRAINING, id="the mesh drains"),
        pytest.param(a_request(), a_mesh("east", waiting=10_000), Reason.QUEUE_FULL, id="the mesh has its maximum of waiting stages"),
        pytest.param(
            a_request(slot=ResourceSet.of({"cpu": 5})), a_mesh("east"), Reason.POOL_TOO_SMALL, id="the work is larger than the pool"
        ),
        pytest.param(a_request(slot=ResourceSet.of({"gpu": 1})), a_mesh("east"), Reason.POOL_TOO_SMALL, id="the pool lacks a resource"),
        pytest.param(
            a_request(slot=ResourceSet.of({"cpu": 3})),
            a_mesh("east", nodes=sizes_of([ResourceSet.of({"cpu": 2})] * 2)),
            Reason.NO_NODE_FITS,
            id="the work is larger than any node",
        ),
        pytest.param(
            a_request(slot=ResourceSet.of({"cpu": 3}), gang=Gang(size=3, bundle=ONE_CPU, strategy="STRICT_SPREAD")),
            a_mesh("east", nodes=sizes_of([ResourceSet.of({"cpu": 2})] * 2)),
            Reason.NO_NODE_FITS,
            id="the nodes hold no whole gang",
        ),
        pytest.param(
            a_request(slot=ResourceSet.of({"cpu": 4})),
            a_mesh("east", reserved=(1,)),
            Reason.POOL_TOO_SMALL,
            id="the pool holds the work in its reserved groups only",
        ),
        pytest.param(
            a_request(slot=ResourceSet.of({"cpu": 4}), priority=9, gang=Gang(size=2, bundle=ResourceSet.of({"cpu": 2}))),
            a_mesh("east", reserved=(2,)),
            Reason.POOL_TOO_SMALL,
            id="an urgent gang takes no reserved group",
        ),
        pytest.param(
            a_request(slot=ResourceSet.of({"cpu": 4}), priority=9),
            a_mesh("east", reserved=(1, 2)),
            Reason.POOL_TOO_SMALL,
            id="urgent work is larger than any reserved group",
        ),
        pytest.param(
            a_request(slot=ResourceSet.of({"gpu": 1.5})),
            a_mesh("east", gpu=2, nodes=sizes_of([ResourceSet.of({"cpu": 4, "gpu": 2})])),
            Reason.NO_NODE_FITS,
            id="the work asks for parts of several GPUs",
        ),
        pytest.param(
            a_request(slot=ResourceSet.of({"cpu": 5})),
            a_mesh("east", alive=False),
            Reason.POOL_TOO_SMALL,
            id="the mesh is away and too small",
        ),
        pytest.param(
            a_request(slot=ResourceSet.of({"cpu": 9})),
            a_mesh("east", cpu=16),
            Reason.QUOTA_TOO_SMALL,
            id="the work is larger than the quota",
        ),
        pytest.param(
            a_request(tenant=TenantPath("acme")), a_mesh("east"), Reason.FLAVOR_CLOSED, id="the tenant names no quota of the flavor"
        ),
        pytest.param(a_request(), a_mesh("east", leases_full=True), Reason.LEASES_AT_LIMIT, id="the mesh has no lease left"),
        pytest.param(
            a_request(tenant=TenantPath("acme/gone")), a_mesh("east"), Reason.QUOTA_TOO_SMALL, id="the tenant was removed from the tree"
        ),
        pytest.param(
            a_request(labels={"zone": "west"}),
            a_mesh("east", tenants=(), alive=False, drain=Drain()),
            Reason.LABEL_MISMATCH,
            id="the first of several reasons counts",
        ),
    ],
)
def test_a_mesh_refuses_with_the_reason_that(work, mesh, reason):
    answer = route(work, a_snapshot(mesh))
    assert isinstance(answer, RouteRefused)
    assert answer.reason is reason
    assert [(verdict.mesh, verdict.reason, verdict.accepts) for verdict in answer.verdicts] == [("east", reason, False)]
    assert answer.detail.removeprefix("no mesh has gpu; there is cpu; ") == f"east: {answer.verdicts[0].detail}"


@pytest.mark.parametrize(
    ("mesh", "used", "reason", "words"),
    [
        pytest.param(a_mesh("east", used=4), 4, Reason.POOL_BUSY, "0 cpu (needs 1) free", id="a full pool"),
        pytest.param(a_mesh("east"), 8, Reason.QUOTA_EXHAUSTED, "0 cpu (needs 1) of flavor standard left", id="a quota in use"),
        pytest.param(a_mesh("east"), 9, Reason.QUOTA_EXHAUSTED, "0 cpu (needs 1) of flavor standard left", id="a quota that was cut"),
        pytest.param(a_mesh("east", used=6), 4, Reason.POOL_BUSY, "0 cpu (needs 1) free", id="a pool that shrank below its use"),
    ],
)
def test_work_goes_to_the_only_mesh_and_waits_for(mesh, used, reason, words):
    answer = route(a_request(), a_snapshot(mesh, cpu_used=used))
    assert isinstance(answer, Routed)
    assert (answer.mesh, answer.reason, answer.verdicts[0].reason) == ("east", Reason.ONLY_FEASIBLE_MESH, reason)
    assert words in answer.detail


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        pytest.param({"priority": 8}, None, id="urgent work"),
        pytest.param({"priority": 7}, Reason.POOL_BUSY, id="no other work"),
        pytest.param({"priority": 8, "gang": Gang(size=2, bundle=ONE_CPU)}, Reason.POOL_BUSY, id="no gang"),
    ],
)
def test_room_of_reserved_groups_is_free_for(asked, reason):
    answer = route(a_request(slot=ResourceSet.of({"cpu": 2}), **asked), a_snapshot(a_mesh("east", used=2, reserved=(1,))))
    assert answer.verdicts[0].reason is reason


@pytest.mark.parametrize(
    ("slot", "lease", "accepts"),
    [
        pytest.param(ONE_CPU, {}, True, id="the lease of the pair is there"),
        pytest.param(ONE_CPU, {"mesh": MeshId("west")}, False, id="the lease is another mesh's"),
        pytest.param(ONE_CPU, {"tenant": TenantPath("acme")}, False, id="the lease is another tenant's"),
        pytest.param(ONE_CPU, {"flavor": FlavorName("spot")}, False, id="the lease is of another flavor"),
        pytest.param(ONE_CPU, {"incarnation": 7}, False, id="the lease is an earlier session's"),
        pytest.param(ResourceSet(), {"mesh": MeshId("west")}, True, id="the work needs no lease"),
    ],
)
def test_mesh_at_its_lease_limit_takes_work_on_existing_leases(slot, lease, accepts):
    held = LeaseView(**{"lease": "l", "tenant": LAB, "mesh": MeshId("east"), "flavor": STANDARD, "amounts": ONE_CPU, "token": 1, **lease})
    snapshot = replace(a_snapshot(a_mesh("east", leases_full=True)), leases=(held,))
    assert isinstance(route(a_request(slot=slot), snapshot), Routed) is accepts


def test_pool_with_a_transient_refusal_is_reported():
    view = a_mesh("east", leases_full=True)
    (pool,) = view.record.pools
    other = replace(pool, pool=PoolName("a-first"), flavor=FlavorName("of nobody"))
    view = replace(view, record=replace(view.record, pools=(other, pool)))
    assert route(a_request(), a_snapshot(view)).reason is Reason.LEASES_AT_LIMIT


@pytest.mark.parametrize(
    "tenants",
    [("*",), ("acme",), ("acme/lab",), ("other", "acme")],
    ids=["open to all", "open to the parent", "open to itself", "open to several"],
)
def test_a_mesh_takes_the_tenant_when_it_is(tenants):
    assert isinstance(route(a_request(), a_snapshot(a_mesh("east", tenants=tenants))), Routed)


def test_tenant_with_the_same_prefix_is_another_one():
    answer = route(a_request(tenant=TenantPath("acme/lab")), a_snapshot(a_mesh("east", tenants=("acme/la",))))
    assert isinstance(answer, RouteRefused)


def test_mesh_that_can_start_now_beats_the_one_with_the_inputs():
    snapshot = a_snapshot(a_mesh("east", used=4), a_mesh("west"))
    answer = route(a_request(near={MeshId("east"): 9}), snapshot)
    assert isinstance(answer, Routed)
    assert (answer.mesh, answer.reason) == ("west", Reason.MOST_HEADROOM)


def test_mesh_with_the_most_inputs_wins_among_ready_ones():
    snapshot = a_snapshot(a_mesh("east"), a_mesh("north", waiting=3), a_mesh("west", cpu=8))
    answer = route(a_request(near={MeshId("east"): 1, MeshId("north"): 2}), snapshot)
    assert isinstance(answer, Routed)
    assert (answer.mesh, answer.reason) == ("north", Reason.LOCALITY)


def test_mesh_with_the_least_relative_load_wins_without_inputs():
    snapshot = a_snapshot(a_mesh("east", cpu=4, waiting=1), a_mesh("west", cpu=16, waiting=3))
    answer = route(a_request(), snapshot)
    assert isinstance(answer, Routed)
    assert (answer.mesh, answer.reason) == ("west", Reason.MOST_HEADROOM)


def test_planned_work_counts_as_load():
    snapshot = a_snapshot(a_mesh("east"), a_mesh("west"))
    answer = route(a_request(), snapshot, {MeshId("east"): ONE_CPU})
    assert isinstance(answer, Routed)
    assert answer.mesh == "west"


def test_ten_equal_stages_spread_by_mesh_size():
    snapshot = a_snapshot(a_mesh("east", cpu=2), a_mesh("west", cpu=8))
    planned: dict[MeshId, ResourceSet] = {}
    for _ in range(10):
        answer = route(a_request(), snapshot, planned)
        assert isinstance(answer, Routed)
        planned[answer.mesh] = planned.get(answer.mesh, ResourceSet()) + ONE_CPU
    assert planned == {"east": ResourceSet.of({"cpu": 2}), "west": ResourceSet.of({"cpu": 8})}


def test_equally_loaded_mesh_with_more_free_capacity_is_taken():
    snapshot = a_snapshot(a_mesh("east", used=3), a_mesh("west", used=1))
    answer = route(a_request(), snapshot)
    assert isinstance(answer, Routed)
    assert answer.mesh == "west"
    assert [verdict.grantable_slots for verdict in answer.verdicts] == [1, 3]


def test_tie_goes_to_the_first_mesh_id():
    snapshot = a_snapshot(a_mesh("west"), a_mesh("east"))
    answer = route(a_request(), snapshot)
    assert isinstance(answer, Routed)
    assert answer.mesh == "east"
    assert [verdict.mesh for verdict in answer.verdicts] == ["east", "west"]


def test_pinned_work_goes_where_it_is_pinned_and_waits_there():
    snapshot = a_snapshot(a_mesh("east"), a_mesh("west", used=4))
    answer = route(a_request(mesh=MeshId("west")), snapshot)
    assert isinstance(answer, Routed)
    assert (answer.mesh, answer.reason) == ("west", Reason.ONLY_FEASIBLE_MESH)


def test_pinned_work_is_refused_for_that_mesh_alone():
    snapshot = a_snapshot(a_mesh("east"), a_mesh("west", drain=Drain()))
    answer = route(a_request(mesh=MeshId("west")), snapshot)
    assert isinstance(answer, RouteRefused)
    assert (answer.reason, answer.detail) == (Reason.MESH_DRAINING, "west: it is draining and admits nothing new")
    assert len(answer.verdicts) == 2


def test_work_pinned_to_an_unknown_mesh_is_refused_by_name():
    answer = route(a_request(mesh=MeshId("moon")), a_snapshot(a_mesh("east")))
    assert isinstance(answer, RouteRefused)
    assert answer.reason is Reason.MESH_UNKNOWN
    assert "moon" in answer.detail


def test_different_refusals_are_listed_together():
    snapshot = a_snapshot(a_mesh("east", alive=False), a_mesh("west", drain=Drain()))
    answer = route(a_request(), snapshot)
    assert isinstance(answer, RouteRefused)
    assert answer.reason is Reason.MESH_UNREACHABLE
    assert answer.detail == "east: its heartbeat is overdue; west: it is draining and admits nothing new"


def test_without_any_mesh_nothing_fits():
    answer = route(a_request(), a_snapshot())
    assert isinstance(answer, RouteRefused)
    assert (answer.reason, answer.verdicts) == (Reason.MESH_UNREACHABLE, ())


def test_pool_that_could_start_the_work_is_named():
    view = a_mesh("east", used=4)
    spare = PoolRecord(pool=PoolName("spare"), flavor=STANDARD, capacity=ResourceSet.of({"cpu": 2}))
    answer = route(a_request(), a_snapshot(replace(view, record=replace(view.record, pools=(*view.record.pools, spare)))))
    assert isinstance(answer, Routed)
    assert (answer.pool, answer.flavor) == ("spare", "standard")


def test_a_pool_without_quota_does_not_hide_another_one_with_it():
    view = a_mesh("east")
    other = PoolRecord(pool=PoolName("a-first"), flavor=FlavorName("a100"), capacity=ResourceSet.of({"cpu": 64}))
    answer = route(a_request(), a_snapshot(replace(view, record=replace(view.record, pools=(other, *view.record.pools)))))
    assert isinstance(answer, Routed)
    assert answer.pool == "general"


def test_work_without_demands_fits_a_full_pool():
    answer = route(a_request(slot=ResourceSet()), a_snapshot(a_mesh("east", used=4), a_mesh("west", waiting=1), cpu_used=8))
    assert isinstance(answer, Routed)
    assert (answer.mesh, answer.verdicts[0].reason) == ("east", None)


MIB = 2**20
#: One MiB takes a second.
SLOW = CostRules(bandwidth_bytes_per_s=MIB)


def condition(view: MeshView, **known: object) -> MeshView:
    return replace(view, condition=MeshCondition(**known))


def full(name: str, *, run_ms: int, claimed: int = 1, waiting: int = 0) -> MeshView:
    """A full mesh whose stages run for this long."""
    return condition(replace(a_mesh(name, used=4, waiting=waiting), claimed=claimed), pace=Pace(run_ms=run_ms))


def test_drained_mesh_refuses_with_the_drains_reason():
    answer = route(a_request(), a_snapshot(condition(a_mesh("east"), drain=Drain(reason="new disks"))))
    assert isinstance(answer, RouteRefused)
    assert (answer.reason, answer.detail) == (Reason.MESH_DRAINING, "east: it is draining and admits nothing new (new disks)")


def test_flapping_mesh_refuses_with_the_time_left():
    kept = FlapHistory(incarnation=2, alive=True, losses_ms=(10, 20), back_ms=1_000, stable_ms=61_000)
    snapshot = replace(a_snapshot(condition(a_mesh("east"), flap_history=kept)), at_ms=60_500)
    answer = route(a_request(), snapshot)
    assert isinstance(answer, RouteRefused)
    assert (answer.reason, answer.verdicts[0].wait_ms) == (Reason.MESH_FLAPPING, 500)
    assert answer.detail == "east: it was lost 2 times lately and came back; it gets nothing new before 00:01:01Z"
    assert isinstance(route(a_request(), replace(snapshot, at_ms=61_000)), Routed)


def test_probation_detail_stays_the_same_while_it_lasts():
    kept = FlapHistory(incarnation=2, alive=True, losses_ms=(10,), back_ms=1_000, stable_ms=61_000)
    snapshot = a_snapshot(condition(a_mesh("east"), flap_history=kept))
    answer = {route(a_request(), replace(snapshot, at_ms=at_ms)).detail for at_ms in (2_000, 30_000, 60_999)}
    assert len(answer) == 1


@pytest.mark.parametrize(
    ("size", "chosen", "reason"),
    [
        pytest.param(3 * MIB + 1, "east", Reason.LOCALITY, id="work stays when moving its inputs takes longer"),
        pytest.param(3 * MIB, "east", Reason.LOCALITY, id="work stays at equal cost"),
        pytest.param(3 * MIB - MIB // 100, "west", Reason.MOST_HEADROOM, id="work leaves when moving its inputs is faster"),
    ],
)
def test_inputs_hold_work_while_moving_exceeds_waiting(size, chosen, reason):
    snapshot = a_snapshot(full("east", run_ms=3_000), a_mesh("west"))
    answer = route(a_request(near={MeshId("east"): size}), snapshot, rules=SLOW)
    assert isinstance(answer, Routed)
    assert (answer.mesh, answer.reason) == (chosen, reason)
    east, west = answer.verdicts
    assert (east.wait_ms, east.transfer_ms, west.wait_ms) == (3_000, 0, 0)
    assert west.transfer_ms == -(-size * 1_000 // MIB)


def test_inputs_on_several_meshes_count_by_bytes_to_move():
    snapshot = a_snapshot(a_mesh("east"), a_mesh("west"), a_mesh("south"))
    answer = route(a_request(near={MeshId("east"): MIB, MeshId("west"): 3 * MIB}), snapshot, rules=SLOW)
    assert isinstance(answer, Routed)
    assert (answer.mesh, answer.reason) == ("west", Reason.LOCALITY)
    assert {verdict.mesh: verdict.transfer_ms for verdict in answer.verdicts} == {"east": 3_000, "south": 4_000, "west": 1_000}


def test_full_mesh_with_the_shortest_wait_is_taken():
    snapshot = a_snapshot(full("east", run_ms=4_000), full("west", run_ms=4_000, claimed=4, waiting=1))
    answer = route(a_request(), snapshot)
    assert isinstance(answer, Routed)
    assert answer.mesh == "west"
    assert [verdict.wait_ms for verdict in answer.verdicts] == [4_000, 2_000]
    assert answer.detail.endswith("about 2 s to wait; elsewhere it would wait about 4 s")


def test_unmeasured_mesh_uses_the_run_time_of_others():
    idle = replace(a_mesh("west", used=4), claimed=1)
    answer = route(a_request(), a_snapshot(full("east", run_ms=700), idle))
    assert [verdict.wait_ms for verdict in answer.verdicts] == [700, 700]
    assert route(a_request(), a_snapshot(idle), rules=CostRules(run_ms_unknown=90)).verdicts[0].wait_ms == 90


def test_planned_work_lengthens_the_wait():
    answer = route(a_request(mesh=MeshId("east")), a_snapshot(full("east", run_ms=1_000)), {MeshId("east"): ResourceSet.of({"cpu": 2})})
    assert isinstance(answer, Routed)
    assert answer.verdicts[0].wait_ms == 3_000


def test_each_mesh_is_judged_once_for_stages_with_far_inputs():
    asked = survey(a_request(), a_snapshot(a_mesh("east"), a_mesh("west")))
    answers = [choose(asked, {MeshId(mesh): 9}) for mesh in ("east", "west")]
    assert [answer.mesh for answer in answers if isinstance(answer, Routed)] == ["east", "west"]


TAKES_BACK = QueueSettings(policies=Policies(reclaim=PreemptionMode.ANY))
BLUE, RED, TOP = TenantPath("top/blue"), TenantPath("top/red"), TenantPath("top")


def two_owners(*meshes: MeshView) -> FederationSnapshot:
    """Blue and red own a CPU each; blue holds both, on alpha."""
    owned = {(STANDARD, "cpu"): Quota(nominal=10_000)}
    tree = TenantTree([Tenant(path=TOP, parent=None), *(Tenant(path=path, parent=TOP, quotas=owned) for path in (BLUE, RED))])
    held = LeaseView(lease="l", tenant=BLUE, mesh=MeshId("alpha"), flavor=STANDARD, amounts=ResourceSet.of({"cpu": 2}), token=1)
    return FederationSnapshot(at_ms=0, tree=tree, usage=tree.recompute((held,)), meshes=meshes, leases=(held,))


@pytest.mark.parametrize("pace", [None, Pace(run_ms=60_000)], ids=["which has run nothing", "on which stages run for long"])
def test_work_with_reclaimable_quota_goes_where_capacity_is(pace):
    alpha = condition(replace(a_mesh("alpha", cpu=2, used=2), claimed=2), pace=Pace(run_ms=10_000))
    answer = route(a_request(tenant=RED, settings=TAKES_BACK), two_owners(alpha, condition(a_mesh("gamma", cpu=1), pace=pace)))
    assert isinstance(answer, Routed)
    assert (answer.mesh, answer.reason) == ("gamma", Reason.SHORTEST_WAIT)
    at_alpha, at_gamma = answer.verdicts
    assert at_gamma.wait_ms == at_alpha.wait_ms == 5_000
    assert "borrowers there hold quota of " in at_alpha.detail
    assert "borrowers hold quota of " in at_gamma.detail


def test_no_mesh_is_chosen_for_its_headroom_where_there_is_none():
    answer = route(a_request(), a_snapshot(full("east", run_ms=1_000), full("west", run_ms=1_000)))
    assert isinstance(answer, Routed)
    assert (answer.mesh, answer.reason) == ("east", Reason.SHORTEST_WAIT)


def an_absent_mesh(name: str, whereabouts: Whereabouts = Whereabouts.LEFT, **more: object) -> AbsentMesh:
    return AbsentMesh(record=a_mesh(name, **more).record, whereabouts=whereabouts)


@pytest.mark.parametrize(
    ("whereabouts", "words"),
    [
        (Whereabouts.LEFT, "lab: it has left in good order, and may join again"),
        (Whereabouts.NOT_JOINED, "lab: it has not joined yet"),
        (Whereabouts.LOST, "lab: it was lost, and has not reported since"),
    ],
)
@pytest.mark.parametrize("asked", [{"mesh": MeshId("lab")}, {"labels": {"zone": "lab"}}], ids=["pinned to it", "by its labels"])
def test_work_for_an_absent_mesh_says_where_the_mesh_is(asked, whereabouts, words):
    east, lab = a_mesh("east", labels={"zone": "east"}), an_absent_mesh("lab", whereabouts, labels={"zone": "lab"})
    refused = route(a_request(**asked), replace(a_snapshot(east), absent=(lab,)))
    assert isinstance(refused, RouteRefused)
    assert words in refused.detail
    assert [(verdict.mesh, verdict.reason) for verdict in refused.verdicts][1:] == [("lab", Reason.MESH_UNREACHABLE)]
    alone = route(a_request(**asked), replace(a_snapshot(), absent=(lab,)))
    assert (alone.reason, alone.detail) == (Reason.MESH_UNREACHABLE, words)


def test_work_pinned_to_an_absent_mesh_is_judged_by_the_file():
    refused = route(a_request(mesh=MeshId("lab"), slot=ResourceSet.of({"cpu": 5})), replace(a_snapshot(), absent=(an_absent_mesh("lab"),)))
    words = "lab: needs {cpu: 5}, more than any pool holds when empty (general {cpu: 4})"
    assert (refused.reason, refused.detail) == (Reason.POOL_TOO_SMALL, words)


def test_absent_and_drained_mesh_reports_both():
    lab = replace(an_absent_mesh("lab", Whereabouts.NOT_JOINED), condition=MeshCondition(drain=Drain(reason="disks")))
    assert route(a_request(), replace(a_snapshot(), absent=(lab,))).detail == "lab: it has not joined yet; it is drained (disks)"


@pytest.mark.parametrize(
    "lab",
    [
        pytest.param(an_absent_mesh("lab", labels={"zone": "moon"}), id="without the label"),
        pytest.param(an_absent_mesh("lab", labels={"zone": "lab"}, tenants=("acme/shop",)), id="for other tenants"),
        pytest.param(an_absent_mesh("lab", labels={"zone": "lab"}, cpu=0), id="too small"),
    ],
)
def test_absent_mesh_that_would_refuse_is_not_waited_for(lab):
    east = a_mesh("east", labels={"zone": "east"})
    refused = route(a_request(labels={"zone": "lab"}), replace(a_snapshot(east), absent=(lab,)))
    assert (refused.reason, len(refused.verdicts)) == (Reason.LABEL_MISMATCH, 1)


def test_placed_work_has_no_verdict_of_absent_meshes():
    routed = route(a_request(), replace(a_snapshot(a_mesh("east")), absent=(an_absent_mesh("lab"),)))
    assert isinstance(routed, Routed)
    assert len(routed.verdicts) == 1


@pytest.mark.parametrize("strategy", ["PACK", "STRICT_PACK"])
def test_bundles_that_would_share_a_gpu_in_parts_fit_nowhere(strategy):
    two = ResourceSet.of({"gpu": 2})
    pool = PoolRecord(pool=PoolName("cards"), flavor=STANDARD, capacity=two)
    record = MeshRecord(mesh=MeshId("east"), labels={}, pools=(pool,), cluster="c1", nodes=sizes_of([two]))
    gang = Gang(size=3, bundle=ResourceSet.of({"gpu": 0.6}), strategy=strategy)
    assert "needs 3 bundles of 0.6 gpu each" in (words_of_nodes(gang.slot, record, gang) or "")
    assert words_of_nodes(two, record, Gang(size=4, bundle=ResourceSet.of({"gpu": 0.5}), strategy=strategy)) is None
