"""What can be said about a stage that waits, or would, on a ledger in memory."""

from dataclasses import replace

import pytest

from federation.dispatch import QueuedStage, StageAges
from federation.estimates import CostRules, Pace
from federation.explaining.foreseeing import BegunStage
from federation.explaining.outlook import Outlooks
from federation.explaining.pieces import Piece
from federation.quota.explain import Lever
from federation.quota.policies import Policies, Preempt, QueueSettings, Rules, StandingOrders
from federation.snapshot import MeshRecord, PoolRecord
from federation.standing import Standing
from federation.store.memory import MemoryStore
from federation.tenant_orders import OrdersInForce, TenantStop
from federation.tenants import Quota, Tenant, TenantTree
from federation.testing import HandMesh
from mesh.clock import ManualClock
from mesh.ids import FlavorName, MeshId, PoolName, RunId, StageId, TenantPath
from mesh.reasons import Reason
from mesh.resources import ResourceSet

STD, EAST, WEST = FlavorName("std"), MeshId("east"), MeshId("west")
ACME, VISION, BATCH = TenantPath("acme"), TenantPath("acme/vision"), TenantPath("acme/batch")
CPU = ResourceSet.of({"cpu": 1})
ONE = CPU["cpu"]
RUN_MS = 4_000
NO_AGES: dict[MeshId, StageAges] = {}
ORDERS = OrdersInForce(filed=StandingOrders(rules=Rules(min_run_ms=0)))
TREE = TenantTree(
    [
        Tenant(path=ACME, parent=None),
        Tenant(path=VISION, parent=ACME, quotas={(STD, "cpu"): Quota(nominal=4 * ONE)}),
        Tenant(path=BATCH, parent=ACME),
    ]
)


@pytest.fixture
def store():
    store = MemoryStore(clock=ManualClock(1_700_000_000_000), ttl_ms=30_000, grace_ms=10_000)
    store.configure(TREE)
    return store


def joined(store, name, cpus=8):
    pool = PoolRecord(pool=PoolName("p"), flavor=STD, capacity=CPU.times(cpus))
    return HandMesh(store, MeshRecord(mesh=name, labels={}, pools=(pool,), cluster="c"))


def queued(name, tenant, cpus=1, priority=0, reason=Reason.QUOTA_EXHAUSTED):
    return QueuedStage(
        stage=StageId(name), run=RunId("r"), tenant=tenant, slot={"cpu": cpus * ONE}, width=1, priority=priority, reason=reason
    )


def outlooks(store, orders=ORDERS, running=(), ages=NO_AGES, **queues):
    snapshot = store.snapshot()
    paced = tuple(replace(view, standing=Standing(pace=Pace(run_ms=RUN_MS))) for view in snapshot.meshes)
    told = {MeshId(mesh): tuple(stages) for mesh, stages in queues.items()}
    return Outlooks(replace(snapshot, meshes=paced), orders, told, CostRules(), ages, lambda _tenant: running)


def piece(tenant=VISION, cpus=1, mesh=EAST, name="new", priority=0):
    return Piece(stage=name, tenant=tenant, mesh=mesh, slot=CPU.times(cpus), priority=priority, created_ms=10_000)


def begun(name, priority=0, mesh=EAST, tenant=VISION):
    return BegunStage(stage=StageId(name), tenant=tenant, mesh=mesh, slot=CPU, slots=1, priority=priority, started_ms=0)


def test_work_that_fits_would_start_now_and_nobody_gives_way(store):
    joined(store, EAST)
    told = outlooks(store).would_be(piece())
    assert (told.reason, told.ahead, told.mesh_ahead, told.changes, told.gives_way) == (None, 0, 0, (), ())
    assert told.start_ms == store.snapshot().at_ms


def test_nothing_would_start_now_while_the_ledger_learns(store):
    joined(store, EAST)
    store.restart()
    told, snapshot = outlooks(store).would_be(piece()), store.snapshot()
    assert snapshot.learn_ms > 0
    assert (told.reason, told.start_ms) == (Reason.LEDGER_LEARNING, snapshot.at_ms + snapshot.learn_ms)


def test_work_that_takes_back_its_own_waits_for_those_who_give_way(store):
    joined(store, EAST)
    joined(store, WEST).acquire(BATCH, STD, CPU, 4)
    reclaims = QueueSettings(policies=Policies(reclaim=Preempt.ANY))
    orders = OrdersInForce(filed=replace(ORDERS.filed, settings={VISION: reclaims}))
    told = outlooks(store, orders).would_be(piece(cpus=3))
    assert told.reason is Reason.WAITING_FOR_VICTIMS
    assert [(change.lever, change.tenant, change.units) for change in told.changes] == [(Lever.FREE, ACME, 3 * ONE)]
    assert [(gives.tenant, gives.amounts) for gives in told.gives_way] == [(BATCH, CPU.times(3))]


@pytest.mark.parametrize(
    ("priority", "reason", "gives_way"),
    [
        pytest.param(5, Reason.WAITING_FOR_VICTIMS, [(BATCH, CPU)], id="the more urgent"),
        pytest.param(0, Reason.QUOTA_EXHAUSTED, [], id="and nobody else"),
    ],
)
def test_where_shares_do_not_count_a_borrower_is_told_that_less_urgent_ones_would_give_way_to(store, priority, reason, gives_way):
    joined(store, EAST)
    joined(store, WEST).acquire(BATCH, STD, CPU, 4)
    takes = QueueSettings(policies=Policies(reclaim=Preempt.ANY, borrow=Preempt.LOWER_PRIORITY))
    rules = Rules(min_run_ms=0, fair_sharing=False)
    orders = OrdersInForce(filed=replace(ORDERS.filed, rules=rules, settings={ACME: takes}))
    told = outlooks(store, orders).would_be(piece(ACME, priority=priority))
    assert told.reason is reason
    assert [(gives.tenant, gives.amounts) for gives in told.gives_way] == gives_way


def test_nobody_of_equal_priority_is_told_to_give_way_whatever_the_tenant_says(store):
    joined(store, EAST)
    joined(store, WEST).acquire(VISION, STD, CPU, 4)
    newer_ones = QueueSettings(policies=Policies(within_queue=Preempt.LOWER_OR_NEWER))
    orders = OrdersInForce(filed=replace(ORDERS.filed, settings={VISION: newer_ones}))
    told = outlooks(store, orders).would_be(piece())
    assert (told.reason, told.gives_way) == (Reason.QUOTA_EXHAUSTED, ())


def test_a_stage_in_a_queue_has_two_places_and_the_reason_that_its_mesh_gave(store):
    joined(store, EAST)
    about = outlooks(store, east=[queued("r.1", BATCH), queued("r.2", VISION), queued("r.3", VISION, reason=Reason.CAPACITY_BUSY)])
    second, third = about.of("r.2"), about.of("r.3")
    assert (second.mesh_ahead, second.ahead, second.reason) == (1, 0, Reason.QUOTA_EXHAUSTED)
    assert (third.mesh_ahead, third.ahead, third.reason) == (2, 1, Reason.CAPACITY_BUSY)


GPU_FLAVOR = FlavorName("a100")
GPU = ResourceSet.of({"gpu": 1})


def joined_with_two_flavors(store, name):
    store.configure(
        TenantTree(
            [
                *(tenant for path, tenant in TREE.tenants.items() if path != BATCH),
                Tenant(path=BATCH, parent=ACME, quotas={(GPU_FLAVOR, "gpu"): Quota(nominal=2 * ONE)}),
            ]
        )
    )
    plain = PoolRecord(pool=PoolName("p"), flavor=STD, capacity=CPU.times(8))
    gpus = PoolRecord(pool=PoolName("g"), flavor=GPU_FLAVOR, capacity=GPU.times(2))
    return HandMesh(store, MeshRecord(mesh=name, labels={}, pools=(plain, gpus), cluster="c"))


def on_gpu(name, tenant, reason=Reason.QUOTA_EXHAUSTED):
    return replace(queued(name, tenant, reason=reason), slot={"gpu": ONE})


def test_what_waits_for_another_flavor_stands_before_nobody(store):
    joined_with_two_flavors(store, EAST)
    about = outlooks(store, east=[on_gpu("r.1", BATCH), on_gpu("r.2", VISION), queued("r.3", BATCH), queued("r.4", VISION)])
    assert [about.place(f"r.{number}") for number in (1, 2, 3, 4)] == [0, 1, 0, 1]
    second, fourth = about.of("r.2"), about.of("r.4")
    assert (second.mesh_ahead, second.ahead) == (1, 0)
    assert (fourth.mesh_ahead, fourth.ahead) == (1, 0)
    assert about.would_be(piece(), [replace(piece(name="first"), slot=GPU), piece(name="middle")]).mesh_ahead == 3
    assert about.would_be(piece(), [replace(piece(name="first"), slot=GPU), piece(name="middle")]).ahead == 2


def test_the_wait_for_room_goes_by_what_ends_on_the_flavors_that_it_could_take(store):
    rich = TenantPath("rich")
    plenty = {(STD, "cpu"): Quota(nominal=99 * ONE), (GPU_FLAVOR, "gpu"): Quota(nominal=99 * ONE)}
    store.configure(TenantTree([*TREE.tenants.values(), Tenant(path=rich, parent=None, quotas=plenty)]))
    plain = PoolRecord(pool=PoolName("p"), flavor=STD, capacity=CPU.times(51), used=CPU.times(50))
    gpus = PoolRecord(pool=PoolName("g"), flavor=GPU_FLAVOR, capacity=GPU.times(2), used=GPU.times(2))
    HandMesh(store, MeshRecord(mesh=EAST, labels={}, pools=(plain, gpus), cluster="c"))
    snapshot = store.snapshot()
    busy = tuple(replace(view, standing=Standing(pace=Pace(run_ms=RUN_MS)), claimed=52) for view in snapshot.meshes)
    queue = tuple(on_gpu(f"r.{number}", rich, reason=Reason.CAPACITY_BUSY) for number in range(20))
    about = Outlooks(replace(snapshot, meshes=busy), ORDERS, {EAST: queue}, CostRules(), NO_AGES)
    behind_twenty = about.would_be(replace(piece(rich), slot=GPU))
    assert (behind_twenty.mesh_ahead, behind_twenty.start_ms) == (20, snapshot.at_ms + 21 * RUN_MS // 2)
    beside_them = about.would_be(piece(rich))
    assert (beside_them.reason, beside_them.start_ms) == (None, snapshot.at_ms)


def test_a_flavor_of_which_its_tenant_could_never_have_as_much_is_none_that_it_could_take(store):
    rich = Tenant(path=TenantPath("rich"), parent=None, quotas={(FlavorName("spot"), "cpu"): Quota(nominal=9 * ONE)})
    store.configure(TenantTree([*TREE.tenants.values(), rich]))
    pools = tuple(PoolRecord(pool=PoolName(flavor), flavor=FlavorName(flavor), capacity=CPU.times(8)) for flavor in ("std", "spot"))
    HandMesh(store, MeshRecord(mesh=EAST, labels={}, pools=pools, cluster="c"))
    about = outlooks(store, east=[queued("r.1", TenantPath("rich")), queued("r.2", VISION)])
    assert (about.of("r.2").mesh_ahead, about.of("r.2").ahead) == (0, 0)


def test_what_waits_for_room_at_another_mesh_stands_before_nobody_here_and_what_waits_for_quota_does(store):
    joined(store, EAST)
    joined(store, WEST, cpus=1)
    west = [queued("r.1", VISION, reason=Reason.CAPACITY_BUSY), queued("r.2", VISION)]
    about = outlooks(store, west=west, east=[queued("r.3", VISION, priority=-1)])
    assert (about.of("r.3").mesh_ahead, about.of("r.3").ahead) == (0, 1)


def test_where_stages_start_in_order_those_of_the_same_tenant_stand_before_it_whatever_they_take(store):
    joined_with_two_flavors(store, EAST)
    about = outlooks(store, IN_ORDER, east=[on_gpu("r.1", BATCH), on_gpu("r.2", VISION), queued("r.3", VISION)])
    assert (about.of("r.3").mesh_ahead, about.of("r.3").ahead) == (1, 1)


def test_where_room_and_quota_lack_both_quota_is_named_since_more_room_would_not_help(store):
    joined(store, EAST)
    joined(store, WEST).acquire(BATCH, STD, CPU, 4)
    told = outlooks(store, east=[queued("r.1", VISION, reason=Reason.CAPACITY_BUSY)]).of("r.1")
    assert told.reason is Reason.QUOTA_EXHAUSTED
    assert told.changes


def test_no_start_is_told_before_any_stage_has_ended_unless_it_is_now(store):
    joined(store, EAST)
    joined(store, WEST).acquire(VISION, STD, CPU, 3)
    unmeasured = Outlooks(store.snapshot(), ORDERS, {}, CostRules(), NO_AGES)
    assert unmeasured.would_be(piece(cpus=1)).start_ms == store.snapshot().at_ms
    assert unmeasured.would_be(piece(cpus=2)).start_ms is None
    assert outlooks(store).would_be(piece(cpus=2)).start_ms == store.snapshot().at_ms + RUN_MS


def test_whoever_borrows_is_asked_for_the_stage_of_the_owner_and_for_no_more(store):
    joined(store, EAST)
    joined(store, WEST).acquire(BATCH, STD, CPU, 4)
    (gives,) = outlooks(store, east=[queued("r.1", VISION, cpus=2)]).of("r.1").gives_way
    assert (gives.mesh, gives.tenant, gives.amounts, gives.reason) == (WEST, BATCH, CPU.times(2), Reason.QUOTA_RECLAIMED)


def test_the_start_is_reckoned_with_what_runs_and_with_the_queue_of_the_mesh(store):
    joined(store, EAST)
    joined(store, WEST).acquire(VISION, STD, CPU, 4)
    at_ms = store.snapshot().at_ms
    assert outlooks(store).would_be(piece(BATCH)).start_ms == at_ms + RUN_MS
    joined(store, MeshId("small"), cpus=1)
    rich = Tenant(path=TenantPath("rich"), parent=None, quotas={(STD, "cpu"): Quota(nominal=99 * ONE)})
    store.configure(TenantTree([*TREE.tenants.values(), rich]))
    told = outlooks(store, small=[queued("r.1", VISION)]).would_be(piece(TenantPath("rich"), mesh=MeshId("small")))
    assert (told.reason, told.start_ms) == (Reason.CAPACITY_BUSY, at_ms + RUN_MS)


@pytest.mark.parametrize("lacks", ["quota", "room"])
def test_a_start_comes_nearer_while_others_run_and_is_overdue_when_they_run_longer_than_they_do(lacks):
    clock = ManualClock(1_700_000_000_000)
    store = MemoryStore(clock=clock, ttl_ms=30_000, grace_ms=10_000)
    store.configure(TREE)
    one_of_east = HandMesh(store, MeshRecord(mesh=EAST, labels={}, pools=(full_pool(),), cluster="c"))
    if lacks == "quota":
        one_of_east.acquire(BATCH, STD, CPU, 4)
    else:
        one_of_east.acquire(BATCH, STD, CPU, 1)
    clock.advance(10_000)
    view = replace(store.snapshot().meshes[0], claimed=1, standing=Standing(pace=Pace(run_ms=RUN_MS)))

    def told(age_ms, name="r.1"):
        snapshot = replace(store.snapshot(), meshes=(view,))
        ages = {EAST: StageAges(claimed_ms=age_ms, claimed_ms_min=age_ms)}
        queue = (queued("r.1", VISION, reason=Reason.CAPACITY_BUSY), queued("r.2", VISION, reason=Reason.CAPACITY_BUSY))
        found = Outlooks(snapshot, ORDERS, {EAST: queue}, CostRules(), ages).of(name)
        return None if found.start_ms is None else found.start_ms - snapshot.at_ms, found.overdue_ms

    assert [told(age_ms) for age_ms in (0, 1_000, 4_000)] == [(RUN_MS, 0), (3_000, 0), (0, 0)]
    assert [told(age_ms) for age_ms in (4_001, 9_000)] == [(None, 1), (None, 5_000)]
    assert [told(age_ms, "r.2") for age_ms in (1_000, 9_000)] == [(3_000 + RUN_MS, 0), (None, 5_000)]


def full_pool():
    return PoolRecord(pool=PoolName("p"), flavor=STD, capacity=CPU, used=CPU)


def test_nothing_is_overdue_before_any_stage_has_ended(store):
    HandMesh(store, MeshRecord(mesh=EAST, labels={}, pools=(full_pool(),), cluster="c")).acquire(BATCH, STD, CPU, 4)
    ages = {EAST: StageAges(claimed_ms=90_000, claimed_ms_min=90_000)}
    told = Outlooks(store.snapshot(), ORDERS, {EAST: (queued("r.1", VISION),)}, CostRules(), ages).of("r.1")
    assert (told.start_ms, told.overdue_ms) == (None, 0)


def test_what_can_never_be_says_which_limit_is_too_low(store):
    joined(store, EAST)
    told = outlooks(store).would_be(piece(cpus=6))
    assert (told.reason, told.start_ms) == (Reason.QUOTA_TOO_SMALL, None)
    (change,) = told.changes
    assert (change.lever, change.tenant, change.units) == (Lever.NOMINAL, ACME, 2 * ONE)


def test_a_tenant_on_hold_is_told_as_such_and_asks_nobody_to_give_way(store):
    joined(store, EAST)
    joined(store, WEST).acquire(BATCH, STD, CPU, 4)
    told = outlooks(store, replace(ORDERS, stops={ACME: TenantStop()})).would_be(piece(cpus=2))
    assert (told.reason, told.gate.node, told.start_ms, told.gives_way) == (Reason.TENANT_HELD, ACME, None, ())


def test_what_would_be_sent_before_stands_before_and_is_forgotten_after(store):
    joined(store, EAST)
    about = outlooks(store)
    assert about.would_be(piece(name="second"), [piece(cpus=4, name="first")]).ahead == 1
    assert about.would_be(piece(name="second")).ahead == 0


def test_asking_changes_nothing(store):
    joined(store, EAST)
    joined(store, WEST).acquire(BATCH, STD, CPU, 4)
    about = outlooks(store, east=[queued("r.1", VISION, cpus=2), queued("r.2", BATCH)])
    first = (about.of("r.1"), about.of("r.2"), about.would_be(piece()))
    assert (about.of("r.1"), about.of("r.2"), about.would_be(piece())) == first
    assert about.of("nobody") is None


def test_a_stage_of_a_tenant_that_is_gone_has_no_outlook(store):
    joined(store, EAST)
    assert outlooks(store, east=[queued("r.1", TenantPath("gone"))]).of("r.1") is None


# -- tenants whose stages start in order --------------------------------------------------------------------------------

IN_ORDER = OrdersInForce(
    filed=replace(ORDERS.filed, settings={VISION: QueueSettings(is_strict=True, policies=Policies(within_queue=Preempt.LOWER_PRIORITY))})
)


def test_what_stands_behind_another_stage_of_its_tenant_on_its_mesh_waits_for_that_whatever_the_quota_says(store):
    joined(store, EAST)
    joined(store, WEST).acquire(VISION, STD, CPU, 3)
    fresh = Reason.WAITING_IN_QUEUE
    east = [queued("r.1", VISION, cpus=2, reason=fresh), queued("r.2", VISION, reason=fresh), queued("r.3", VISION, cpus=9, reason=fresh)]
    about = outlooks(store, IN_ORDER, east=east)
    told = [about.of(stage) for stage in ("r.1", "r.2", "r.3")]
    assert [one.reason for one in told] == [Reason.QUOTA_EXHAUSTED, Reason.BEHIND_HEAD, Reason.BEHIND_HEAD]
    assert [bool(one.changes) for one in told] == [True, False, False]
    assert [one.reason for one in map(outlooks(store, east=east).of, ("r.1", "r.2"))] == [Reason.QUOTA_EXHAUSTED, fresh]


def test_it_does_not_start_before_that_and_never_where_that_never_does(store):
    joined(store, EAST)
    joined(store, WEST).acquire(VISION, STD, CPU, 3)
    at_ms = store.snapshot().at_ms
    about = outlooks(store, IN_ORDER, east=[queued("r.1", VISION, cpus=2), queued("r.2", VISION)])
    assert [about.of(stage).start_ms for stage in ("r.1", "r.2")] == [at_ms + RUN_MS] * 2
    about = outlooks(store, IN_ORDER, east=[queued("r.1", VISION, cpus=9), queued("r.2", VISION)])
    assert [about.of(stage).start_ms for stage in ("r.1", "r.2")] == [None, None]
    assert outlooks(store, east=[queued("r.1", VISION, cpus=9), queued("r.2", VISION)]).of("r.2").start_ms is not None


def test_what_waits_on_another_mesh_holds_up_nobody(store):
    joined(store, EAST)
    joined(store, WEST)
    about = outlooks(store, IN_ORDER, west=[queued("r.1", VISION)], east=[queued("r.2", VISION, reason=Reason.WAITING_IN_QUEUE)])
    assert about.of("r.2").reason is Reason.WAITING_IN_QUEUE
    assert about.would_be(piece(mesh=MeshId("north"))).reason is None


def test_of_a_dry_run_what_is_sent_later_is_behind(store):
    joined(store, EAST)
    about = outlooks(store, IN_ORDER)
    assert about.would_be(piece(name="second"), [replace(piece(name="first"), created_ms=9_999)]).reason is Reason.BEHIND_HEAD
    assert about.would_be(piece(name="second", priority=1), [piece(name="first")]).reason is None


def test_only_for_the_first_of_them_others_stop_and_that_is_the_one_to_which_room_was_promised(store):
    full(store)
    running = [begun("s0"), begun("s1", priority=1)]
    about = outlooks(store, IN_ORDER, running, east=[queued("r.1", VISION, priority=3), queued("r.2", VISION, priority=2)])
    assert [[gives.stages for gives in about.of(stage).gives_way] for stage in ("r.1", "r.2")] == [[("s0",)], []]
    promised = queued("r.2", VISION, priority=2, reason=Reason.WAITING_FOR_VICTIMS)
    about = outlooks(store, IN_ORDER, running, east=[queued("r.1", VISION, priority=3), promised])
    assert [[gives.stages for gives in about.of(stage).gives_way] for stage in ("r.1", "r.2")] == [[], [("s0",)]]


# -- stages of the own tenant ------------------------------------------------------------------------------------------


def full(store, cpus=2):
    """`vision` holds all of its quota, or all of the mesh."""
    mesh = joined(store, EAST, cpus)
    mesh.acquire(VISION, STD, CPU, min(4, cpus))
    pool = replace(mesh.record.pools[0], used=CPU.times(min(4, cpus)))
    mesh.record = replace(mesh.record, pools=(pool,))
    mesh.beat()


@pytest.mark.parametrize("cpus", [pytest.param(2, id="a full mesh"), pytest.param(9, id="a full lease")])
def test_a_dry_run_tells_which_less_urgent_stages_would_stop(store, cpus):
    full(store, cpus)
    running = [begun(f"s{index}", priority=index) for index in range(min(4, cpus))]
    told = outlooks(store, running=running).would_be(piece(priority=3))
    assert told.reason is Reason.WAITING_FOR_VICTIMS
    assert [(gives.mesh, gives.tenant, gives.amounts, gives.reason, gives.stages) for gives in told.gives_way] == [
        (EAST, VISION, CPU, Reason.LOWER_IN_QUEUE, ("s0",))
    ]


def test_so_does_the_explanation_of_a_stage_that_waits(store):
    full(store)
    about = outlooks(store, running=[begun("s0"), begun("s1")], east=[queued("r.1", VISION, priority=2, reason=Reason.CAPACITY_BUSY)])
    (gives,) = about.of("r.1").gives_way
    assert (gives.reason, gives.stages) == (Reason.LOWER_IN_QUEUE, ("s0",))


@pytest.mark.parametrize(
    ("running", "orders", "priority"),
    [
        pytest.param([begun("s0", priority=3), begun("s1", priority=3)], ORDERS, 3, id="as urgent"),
        pytest.param([begun("s0", mesh=WEST), begun("s1", mesh=WEST)], ORDERS, 3, id="elsewhere"),
        pytest.param([begun("s0", tenant=BATCH), begun("s1", tenant=BATCH)], ORDERS, 3, id="of another tenant"),
        pytest.param(
            [begun("s0"), begun("s1")],
            OrdersInForce(filed=replace(ORDERS.filed, settings={VISION: QueueSettings(policies=Policies(within_queue=Preempt.NEVER))})),
            3,
            id="of a tenant that wants no stops",
        ),
    ],
)
def test_no_stage_would_stop_that_is(store, running, orders, priority):
    full(store)
    assert outlooks(store, orders, running).would_be(piece(priority=priority)).gives_way == ()


def test_who_stops_for_those_before_it_stops_for_nobody_else(store):
    full(store)
    about = outlooks(
        store,
        running=[begun("s0"), begun("s1", priority=1)],
        east=[queued("r.1", VISION, priority=3), queued("r.2", VISION, priority=2), queued("r.3", VISION, priority=2)],
    )
    assert [[gives.stages for gives in about.of(stage).gives_way] for stage in ("r.1", "r.2", "r.3")] == [[("s0",)], [("s1",)], []]
