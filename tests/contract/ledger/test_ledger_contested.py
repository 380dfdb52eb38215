"""Contract of contested quota: what a tenant would borrow is granted at once only while no other tenant wants quota of the flavor."""

from dataclasses import replace

import pytest
from two_teams import A100, ACME, LAB, ONE_GPU, SHOP, ask, gpu, gpus, record, target_update, tree

from federation.dispatch import CONTESTED, Notification, NotificationKind
from federation.leases import CONTESTED_MS, Granted, LeaseRefused, LookAgain, QuotaDemand
from federation.manual_mesh import ManualMesh
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.ids import FlavorName, MeshId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet

BATCH, H100 = TenantPath("acme/batch"), FlavorName("h100")
REFUSED = LeaseRefused(reason=Reason.QUOTA_CONTESTED, tenant=LAB, flavor=A100, resource="gpu", wanted=10_000, available=0)


def wants(mesh, *tenants, flavor=A100):
    """Report one slot of demand for each tenant; none withdraws all."""
    mesh.heartbeat(demands=tuple(QuotaDemand(tenant=tenant, flavor=flavor, slot=ONE_GPU) for tenant in tenants))


def is_contested(mesh, tenant=LAB) -> bool:
    """Ask for one slot more than the tenant's own, and return it."""
    ask(mesh, 4, tenant)
    answer = ask(mesh, 1, tenant)
    mesh.release(tenant, A100)
    mesh.heartbeat(demands=())
    assert isinstance(answer, Granted) or answer.reason is Reason.QUOTA_CONTESTED
    return not isinstance(answer, Granted)


def notifications_of(store) -> int:
    """Return the number of notifications of contested quota, and remove them."""
    entries = [entry for entry in store.queue.inbox(0) if entry.kind == CONTESTED]
    store.queue.acknowledge(tuple(entry.entry for entry in entries))
    return len(entries)


def slots_wanted(ledger, tenant) -> int:
    return sum(demand.slots for demand in ledger.snapshot().demands if demand.tenant == tenant)


@pytest.mark.every_form
def test_own_quota_is_granted_whoever_waits(ledger, west, east):
    wants(east, SHOP)
    assert ask(west, 4) == Granted(slots=4)
    assert ask(west, 1) == REFUSED
    assert (gpus(ledger, LAB), slots_wanted(ledger, LAB)) == (4, 1)


def test_own_part_of_a_request_is_granted(ledger, west, east):
    wants(east, SHOP)
    assert ask(west, 6) == Granted(slots=4)
    assert slots_wanted(ledger, LAB) == 2


def test_own_quota_counts_over_all_meshes(west, east):
    wants(east, SHOP)
    assert ask(east, 3) == Granted(slots=3)
    assert ask(west, 3) == Granted(slots=1)


def test_quota_that_is_in_use_is_not_contested(west, east):
    ask(east, 8, SHOP)
    wants(east, SHOP)
    assert ask(west).reason is Reason.QUOTA_EXHAUSTED
    assert ask(west, slot=gpu(9)).reason is Reason.QUOTA_TOO_SMALL


def expire_all(store):
    store.advance(store.ttl_ms + store.grace_ms + 1)
    store.ledger.sweep()


WITHDRAWALS = {
    "reports none": lambda _, east: wants(east),
    "is granted it": lambda _, east: ask(east, 1, SHOP),
    "leaves": lambda store, east: store.ledger.leave(east.session),
    "joins again": lambda store, east: ManualMesh(store.ledger, east.record),
    "is lost": lambda store, _: expire_all(store),
    "gets it by a plan": lambda store, east: (target_update(store.ledger, ("east", SHOP, 5)), east.heartbeat()),
}


@pytest.mark.parametrize("withdraw", WITHDRAWALS.values(), ids=WITHDRAWALS)
def test_quota_is_contested_until_the_other_tenant(store, withdraw):
    store.ledger.configure(tree(own=4))
    west, east = ManualMesh(store.ledger, record()), ManualMesh(store.ledger, record("east"))
    ask(west, 8)
    assert ask(east, 5, SHOP) == Granted(slots=4)
    west.release(LAB, A100)
    assert is_contested(west)
    withdraw(store, east)
    assert not is_contested(ManualMesh(store.ledger, record("north")))


def test_demand_of_another_size_still_contests(west, east):
    wants(east, SHOP)
    east.heartbeat(demands=(QuotaDemand(tenant=SHOP, flavor=A100, slot=gpu(2)),))
    assert is_contested(west)
    wants(east)
    assert not is_contested(west)


def test_demand_on_two_meshes_is_counted_on_both(ledger, west, east):
    north = ManualMesh(ledger, record("north"))
    wants(west, SHOP)
    wants(east, SHOP)
    wants(west)
    assert is_contested(north)
    wants(east)
    assert not is_contested(north)


def test_own_demand_elsewhere_contests_nothing(west, east):
    wants(east, LAB)
    assert ask(west, 6) == Granted(slots=6)


def test_demand_for_another_flavor_contests_nothing(west, east):
    wants(east, SHOP, flavor=H100)
    assert ask(west, 6) == Granted(slots=6)


def test_demand_of_two_tenants_contests_both(west, east):
    wants(east, LAB, SHOP)
    assert is_contested(west)
    wants(east, LAB, SHOP)
    assert is_contested(west, SHOP)


def test_each_resource_is_compared_with_the_own_quota(store):
    pool, own = {(A100, name): Quota(nominal=90_000) for name in ("cpu", "gpu")}, {(A100, "gpu"): Quota(nominal=40_000)}
    teams = (Tenant(path=path, parent=ACME, quotas=own) for path in (LAB, SHOP))
    store.ledger.configure(TenantTree([Tenant(path=ACME, parent=None, quotas=pool), *teams]))
    west, east = ManualMesh(store.ledger, record()), ManualMesh(store.ledger, record("east"))
    slot = ResourceSet.of({"cpu": 1, "gpu": 1})
    wants(east, SHOP)
    assert ask(west, slot=slot) == replace(REFUSED, resource="cpu")
    wants(east)
    assert ask(west, slot=slot) == Granted(slots=1)


def asked(mesh, *rows):
    """Ask for (tenant, slots) in one call, and return the granted slots."""
    demands = tuple(QuotaDemand(tenant=tenant, flavor=A100, slot=ONE_GPU, slots=slots) for tenant, slots in rows)
    answers = mesh.ledger.acquire(mesh.session, demands).answers
    return [answer.slots if isinstance(answer, Granted) else answer.reason for answer in answers]


@pytest.mark.parametrize(
    ("rows", "granted"),
    [
        pytest.param([(LAB, 6), (SHOP, 2)], [6, 2], id="only one borrows"),
        pytest.param([(LAB, 6), (SHOP, 5)], [4, 4], id="both borrow"),
        pytest.param([(BATCH, 1), (LAB, 6)], [Reason.QUOTA_CONTESTED, 4], id="without own quota"),
        pytest.param([(LAB, 6), (TenantPath("nobody"), 6)], [6, Reason.TENANT_UNKNOWN], id="an unknown tenant borrows nothing"),
    ],
)
def test_requests_in_one_call_contest_each_other(store, rows, granted):
    store.ledger.configure(TenantTree([*tree().tenants.values(), Tenant(path=BATCH, parent=ACME)]))
    assert asked(ManualMesh(store.ledger, record()), *rows) == granted


def test_promise_of_a_plan_is_never_contested(ledger, west, east):
    wants(east, SHOP)
    ask(west, 4)
    target_update(ledger, ("west", LAB, 6))
    assert isinstance(ask(west, 3), LookAgain)
    assert ask(west, 3) == Granted(slots=2)
    assert ask(west, 1) == REFUSED


def test_contested_quota_is_notified_once_in_a_while(ledger, west, east, store):
    ask(west, 4)
    ask(west, 9, SHOP)
    store.advance(10 * CONTESTED_MS)
    assert notifications_of(store) == 0
    ask(east)
    west.release(SHOP, A100)
    ask(east)
    assert notifications_of(store) == 1
    store.advance(10 * CONTESTED_MS)
    ask(east)
    assert notifications_of(store) == 1


def test_plan_notifies_a_mesh_whose_lease_can_grow(ledger, west, east, store):
    ask(west, 8)
    cursor = store.queue.notifications(MeshId("east"), "", 0)[0]
    target_update(ledger, ("west", LAB, 7), ("east", SHOP, 1))
    assert store.queue.notifications(MeshId("east"), cursor, 0)[1] == ()
    west.heartbeat()
    west.obey(LAB, A100)
    target_update(ledger, ("west", LAB, 5), ("east", SHOP, 3))
    assert store.queue.notifications(MeshId("east"), cursor, 0)[1] == (Notification(kind=NotificationKind.STAGE, subject=""),)
