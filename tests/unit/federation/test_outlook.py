"""What can be said about a stage that waits, or would, on a ledger in memory."""

from dataclasses import replace

import pytest

from federation.dispatch import QueuedStage
from federation.estimates import CostRules, Pace
from federation.outlook import Outlooks, Piece
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


def outlooks(store, orders=ORDERS, **queues):
    snapshot = store.snapshot()
    paced = tuple(replace(view, standing=Standing(pace=Pace(run_ms=RUN_MS))) for view in snapshot.meshes)
    told = {MeshId(mesh): tuple(stages) for mesh, stages in queues.items()}
    return Outlooks(replace(snapshot, meshes=paced), orders, told, CostRules())


def piece(tenant=VISION, cpus=1, mesh=EAST, name="new"):
    return Piece(stage=name, tenant=tenant, mesh=mesh, slot=CPU.times(cpus), created_ms=10_000)


def test_work_that_fits_would_start_now_and_nobody_gives_way(store):
    joined(store, EAST)
    told = outlooks(store).would_be(piece())
    assert (told.reason, told.ahead, told.mesh_ahead, told.changes, told.gives_way) == (None, 0, 0, (), ())
    assert told.start_ms == store.snapshot().at_ms


def test_work_that_takes_back_its_own_waits_for_those_who_give_way(store):
    joined(store, EAST)
    joined(store, WEST).acquire(BATCH, STD, CPU, 4)
    reclaims = QueueSettings(policies=Policies(reclaim=Preempt.ANY))
    orders = OrdersInForce(filed=replace(ORDERS.filed, settings={VISION: reclaims}))
    told = outlooks(store, orders).would_be(piece(cpus=3))
    assert told.reason is Reason.WAITING_FOR_VICTIMS
    assert [(change.lever, change.tenant, change.units) for change in told.changes] == [(Lever.FREE, ACME, 3 * ONE)]
    assert [(gives.tenant, gives.amounts) for gives in told.gives_way] == [(BATCH, CPU.times(3))]


def test_a_stage_in_a_queue_has_two_places_and_the_reason_that_its_mesh_gave(store):
    joined(store, EAST)
    joined(store, WEST).acquire(BATCH, STD, CPU, 4)
    about = outlooks(store, east=[queued("r.1", BATCH), queued("r.2", VISION), queued("r.3", VISION, reason=Reason.CAPACITY_BUSY)])
    second, third = about.of("r.2"), about.of("r.3")
    assert (second.mesh_ahead, second.ahead, second.reason) == (1, 0, Reason.QUOTA_EXHAUSTED)
    assert (third.mesh_ahead, third.ahead, third.reason) == (2, 1, Reason.CAPACITY_BUSY)


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
