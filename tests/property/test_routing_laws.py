"""Laws of routing, for every snapshot and request."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from federation.estimates import CostRules, Pace
from federation.flap_detection import FlapHistory
from federation.mesh_access import may_use
from federation.mesh_conditions import Drain, MeshCondition
from federation.quota.policies import Fungibility, Policies, PreemptionMode, Preference, QueueSettings, ResourceGroup, TryOn
from federation.routing.route import Routed, RouteRefused, route
from federation.routing.routing_request import RoutingRequest
from federation.snapshot import FederationSnapshot, MeshRecord, MeshView, PoolRecord
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.ids import FlavorName, MeshId, PoolName, TenantPath
from mesh.core.labels import mismatch
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet

TENANTS = [TenantPath(path) for path in ("acme", "acme/lab", "acme/lab/nlp", "acme/ops")]
FLAVORS = [FlavorName("standard"), FlavorName("a100")]
NAMES = [MeshId(name) for name in ("east", "north", "south", "west")]


def mostly(usual, *others):
    """Return mostly open meshes: hypothesis prefers the first, and nothing would ever be routed."""
    return st.sampled_from([usual] * 4 + list(others))


def cpus_and_gpus(cpus, *gpus):
    return st.builds(lambda cpu, gpu: ResourceSet({"cpu": cpu * 10_000, "gpu": gpu * 10_000}), cpus, mostly(*gpus))


slots = cpus_and_gpus(mostly(1, 0, 2, 4), 0, 1)
capacities = cpus_and_gpus(mostly(4, 0, 1, 2), 1, 0)
uses = cpus_and_gpus(st.integers(0, 4), 0, 1)
labels = st.dictionaries(st.sampled_from(["zone", "tier"]), st.sampled_from(["a", "b"]), max_size=2)
wishes = mostly({}, {"zone": "a"}, {"zone": "!a"}, {"tier": "in(a, b)"}, {"tier": "!in(a, c)"}, {"zone": "!"})
pools = st.lists(
    st.builds(PoolRecord, pool=st.sampled_from([PoolName("p"), PoolName("q")]), flavor=mostly(*FLAVORS), capacity=capacities, used=uses),
    min_size=1,
    max_size=2,
    unique_by=lambda pool: pool.pool,
).map(tuple)
conditions = st.builds(
    MeshCondition,
    drain=mostly(None, Drain(), Drain(reason="disks")),
    flap_history=st.none()
    | st.builds(
        FlapHistory, incarnation=st.just(1), alive=st.just(True), losses_ms=st.just((1,)), stable_ms=mostly(0, 1_000, 1_001, 9_000)
    ),
    pace=st.none() | st.builds(Pace, run_ms=st.integers(0, 5_000)),
)
NOW_MS = 1_000


@st.composite
def views(draw, name):
    record = MeshRecord(
        mesh=name,
        labels=draw(labels),
        pools=draw(pools),
        cluster="c",
        tenants=draw(mostly(("*",), ("acme/lab",), ("acme/ops",), ())),
        cluster_answers=draw(mostly(True, False)),
    )
    return MeshView(
        record=record,
        incarnation=1,
        alive=draw(mostly(True, False)),
        heartbeat_age_ms=0,
        waiting=draw(st.integers(0, 3)),
        claimed=draw(st.integers(0, 3)),
        condition=draw(conditions),
    )


@st.composite
def snapshots(draw):
    nominal = mostly(80_000, 0, 10_000, 40_000).map(lambda units: Quota(nominal=units))
    quotas = st.fixed_dictionaries({(FLAVORS[0], "cpu"): nominal, (FLAVORS[0], "gpu"): nominal, (FLAVORS[1], "cpu"): nominal})
    parents = {path: TenantPath(path.rpartition("/")[0]) or None for path in TENANTS}
    tree = TenantTree([Tenant(path=path, parent=parents[path], quotas=draw(quotas)) for path in TENANTS])
    usage: dict[tuple[TenantPath, FlavorName, str], int] = {}
    for path in draw(st.lists(st.sampled_from(TENANTS), max_size=3)):
        tree.charge(usage, path, (draw(st.sampled_from(FLAVORS)), "cpu"), draw(st.integers(0, 4)) * 10_000)
    names = draw(mostly(NAMES, NAMES[:2], NAMES[2:], []))
    return FederationSnapshot(at_ms=NOW_MS, tree=tree, usage=usage, meshes=tuple(draw(views(name)) for name in names))


requests = st.builds(
    RoutingRequest,
    tenant=st.sampled_from(TENANTS),
    slot=slots,
    labels=wishes,
    mesh=mostly(None, *NAMES[:3]),
    near=st.dictionaries(st.sampled_from(NAMES), st.integers(0, 5) | st.integers(0, 10**9)),
)
plans = st.dictionaries(st.sampled_from(NAMES), slots)


@given(requests, snapshots(), plans)
def test_a_chosen_mesh_meets_every_hard_demand(work, snapshot, planned):
    answer = route(work, snapshot, planned)
    if isinstance(answer, Routed):
        view = next(view for view in snapshot.meshes if view.record.mesh == answer.mesh)
        pool = next(pool for pool in view.record.pools if pool.pool == answer.pool)
        assert mismatch(work.labels, view.record.labels) is None
        assert may_use(view.record.tenants, work.tenant)
        assert view.can_start
        assert not view.is_draining
        assert not view.flapping_ms(snapshot.at_ms)
        assert work.mesh in (None, answer.mesh)
        assert work.slot <= pool.capacity
        assert all(snapshot.tree.potential(work.tenant, (answer.flavor, name)) >= units for name, units in work.slot.items())


def could_start(work: RoutingRequest, view: MeshView, snapshot: FederationSnapshot) -> bool:
    """Decide by the definition, without the router: open to the work, with a pool and quota for one slot."""
    record = view.record
    is_wanted = view.can_start and not view.is_draining and not view.flapping_ms(snapshot.at_ms)
    is_open = is_wanted and may_use(record.tenants, work.tenant) and work.mesh in (None, record.mesh)
    return (
        is_open
        and mismatch(work.labels, record.labels) is None
        and any(
            all(
                units + pool.used[name] <= pool.capacity[name]
                and snapshot.tree.available(snapshot.usage, work.tenant, (pool.flavor, name)) >= units
                for name, units in work.slot.items()
            )
            for pool in record.pools
        )
    )


@given(requests, snapshots(), plans)
def test_a_mesh_that_can_start_the_work_has_no_objection(work, snapshot, planned):
    answer = route(work, snapshot, planned)
    ready = {view.record.mesh for view in snapshot.meshes if could_start(work, view, snapshot)}
    assert ready == {verdict.mesh for verdict in answer.verdicts if verdict.reason is None}
    assert isinstance(answer, Routed) or not ready


@given(requests, snapshots(), plans)
def test_the_chosen_mesh_accepts_and_is_the_fastest(work, snapshot, planned):
    answer = route(work, snapshot, planned, CostRules(bandwidth_bytes_per_s=2**20))
    if isinstance(answer, Routed):
        costs_ms = {verdict.mesh: verdict.wait_ms + verdict.transfer_ms for verdict in answer.verdicts if verdict.accepts}
        assert answer.mesh in costs_ms
        assert costs_ms[answer.mesh] == min(costs_ms.values())


@given(requests, snapshots(), plans)
def test_times_are_whole_and_work_with_room_does_not_wait(work, snapshot, planned):
    waiting = {view.record.mesh: view.waiting for view in snapshot.meshes}
    for verdict in route(work, snapshot, planned).verdicts:
        assert (type(verdict.wait_ms), type(verdict.transfer_ms)) == (int, int)
        assert verdict.wait_ms >= 0
        assert verdict.transfer_ms >= 0
        if verdict.reason is None and not waiting[verdict.mesh] and not planned.get(verdict.mesh):
            assert verdict.wait_ms == 0


FLAVOR_WORTH_MS = 1_000
searches = st.builds(
    Fungibility, on_borrow=st.sampled_from(TryOn), on_preempt=st.sampled_from(TryOn), preference=st.sampled_from(Preference)
)
queue_settings = st.builds(
    lambda flavors, search, reclaim: QueueSettings(
        groups=(ResourceGroup(resources=("cpu", "gpu"), flavors=tuple(flavors)),), fungibility=search, policies=Policies(reclaim=reclaim)
    ),
    st.permutations(FLAVORS),
    searches,
    st.sampled_from([PreemptionMode.ANY, PreemptionMode.NEVER]),
)


@st.composite
def choices(draw):
    """Return work that any mesh may run, and meshes of two flavors, so that there is a choice."""
    snapshot = draw(snapshots())
    pool = st.builds(
        PoolRecord,
        pool=st.just(PoolName("p")),
        flavor=st.sampled_from(FLAVORS),
        capacity=capacities,
        used=cpus_and_gpus(st.integers(0, 2), 0),
    )
    meshes = [
        MeshView(
            record=MeshRecord(mesh=name, labels={}, pools=(draw(pool),), cluster="c"),
            incarnation=1,
            alive=True,
            heartbeat_age_ms=0,
            waiting=draw(mostly(0, 1, 3)),
        )
        for name in NAMES
    ]
    near = draw(st.dictionaries(st.sampled_from(NAMES), st.sampled_from([2**20 * 3 // 2, 2**20, 2**19, 2**22]), max_size=2))
    work = RoutingRequest(tenant=draw(st.sampled_from(TENANTS)), slot=ResourceSet({"cpu": 10_000}), near=near)
    return work, replace(snapshot, meshes=tuple(meshes)), draw(queue_settings)


def needs_borrowing(work: RoutingRequest, flavor: FlavorName, snapshot: FederationSnapshot) -> bool:
    """Decide by the definition: one slot more exceeds the tenant's own quota."""
    tree, path = snapshot.tree, work.tenant
    return any(
        snapshot.usage.get((path, flavor, name), 0) + units > tree.own_quota(path, (flavor, name)) for name, units in work.slot.items()
    )


@given(choices())
def test_no_later_flavor_wins_where_an_earlier_one_is_in_time(choice):
    work, snapshot, settings = choice
    answer = route(
        replace(work, settings=settings), snapshot, rules=CostRules(bandwidth_bytes_per_s=2**20, flavor_delay_ms=FLAVOR_WORTH_MS)
    )
    if isinstance(answer, RouteRefused) or answer.flavor == settings.flavors[0]:
        return
    first = settings.flavors[0]
    soonest_ms = min(verdict.wait_ms + verdict.transfer_ms for verdict in answer.verdicts if verdict.accepts)
    borrows = needs_borrowing(work, first, snapshot)
    for verdict in answer.verdicts:
        would_do = verdict.reason is None and verdict.flavor == first and (not borrows or settings.fungibility.on_borrow is TryOn.STOP)
        if would_do:
            assert verdict.wait_ms + verdict.transfer_ms > soonest_ms + FLAVOR_WORTH_MS


@given(choices())
def test_a_flavor_costs_no_more_time_than_it_is_worth(choice):
    work, snapshot, settings = choice
    rules = CostRules(bandwidth_bytes_per_s=2**20, flavor_delay_ms=FLAVOR_WORTH_MS)
    answer = route(replace(work, settings=settings), snapshot, rules=rules)
    plain = route(work, snapshot, rules=rules)
    assert isinstance(answer, Routed) == isinstance(plain, Routed)
    if isinstance(answer, Routed) and isinstance(plain, Routed):
        taken = next(verdict for verdict in answer.verdicts if verdict.mesh == answer.mesh)
        soonest = next(verdict for verdict in plain.verdicts if verdict.mesh == plain.mesh)
        latest_ms = soonest.wait_ms + soonest.transfer_ms + FLAVOR_WORTH_MS
        assert taken.transfer_ms <= latest_ms
        assert taken.wait_ms + taken.transfer_ms <= latest_ms or "give it back" in taken.detail
        assert (answer.reason is Reason.FLAVOR_ORDER) == bool(answer.flavor_why)


@given(requests, snapshots(), queue_settings)
def test_with_one_flavor_the_search_changes_nothing(work, snapshot, settings):
    meshes = tuple(
        replace(view, record=replace(view.record, pools=tuple(replace(pool, flavor=FLAVORS[0]) for pool in view.record.pools)))
        for view in snapshot.meshes
    )
    snapshot = replace(snapshot, meshes=meshes)
    answer, plain = route(replace(work, settings=settings), snapshot), route(work, snapshot)
    assert answer.reason == plain.reason
    assert [(one.mesh, one.reason, one.pool) for one in answer.verdicts] == [(one.mesh, one.reason, one.pool) for one in plain.verdicts]
    if isinstance(answer, Routed) and isinstance(plain, Routed):
        assert (answer.mesh, answer.pool) == (plain.mesh, plain.pool)


@given(requests, snapshots(), plans, st.randoms(use_true_random=False))
def test_the_route_does_not_depend_on_the_order_of_meshes(work, snapshot, planned, random_stream):
    shuffled = list(snapshot.meshes)
    random_stream.shuffle(shuffled)
    other = FederationSnapshot(at_ms=NOW_MS, tree=snapshot.tree, usage=snapshot.usage, meshes=tuple(shuffled))
    assert route(work, snapshot, planned) == route(work, other, dict(reversed(planned.items())))


@given(requests, snapshots(), plans)
def test_every_mesh_is_considered_and_refusals_are_reported(work, snapshot, planned):
    answer = route(work, snapshot, planned)
    assert [verdict.mesh for verdict in answer.verdicts] == sorted(view.record.mesh for view in snapshot.meshes)
    assert all(verdict.detail for verdict in answer.verdicts)
    assert isinstance(answer, RouteRefused) == (not any(verdict.accepts for verdict in answer.verdicts))
    assert answer.detail
