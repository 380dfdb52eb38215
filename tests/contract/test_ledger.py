"""What every lease ledger promises; run over memory and over a real Redis."""

import threading
from dataclasses import replace

import pytest
import redis

from federation.errors import SessionLost, StoreUnavailable, UnknownTenant
from federation.leases import Lease, LeaseRefused, Session
from federation.snapshot import MeshRecord, PoolRecord
from federation.store.keys import Keys
from federation.store.redis_client import connect
from federation.store.redis_ledger import RedisLedger
from federation.tenants import Quota, Tenant, TenantTree
from mesh.errors import AmountError, RuntimeDoorError
from mesh.ids import FlavorName, LeaseId, MeshId, PoolName, TenantPath
from mesh.reasons import Reason
from mesh.resources import AMOUNT_MAX, ResourceSet

A100 = FlavorName("a100")
ACME, LAB, SHOP = TenantPath("acme"), TenantPath("acme/lab"), TenantPath("acme/shop")
ONE_GPU = ResourceSet.of({"gpu": 1})


def tree(*, lab=4, shop=4, own=0, lab_borrows=None, shop_lends=None) -> TenantTree:
    """Two teams under one company; GPUs."""

    def quota(gpus, **limits):
        return {(A100, "gpu"): Quota(nominal=gpus * 10_000, **{name: units and units * 10_000 for name, units in limits.items()})}

    return TenantTree(
        [
            Tenant(path=ACME, parent=None, quotas=quota(own)),
            Tenant(path=LAB, parent=ACME, quotas=quota(lab, borrowing_limit=lab_borrows), functions=("lab:*",)),
            Tenant(path=SHOP, parent=ACME, quotas=quota(shop, lending_limit=shop_lends), pickled_code=True),
        ]
    )


def record(mesh="west") -> MeshRecord:
    pool = PoolRecord(pool=PoolName("p"), flavor=A100, capacity=ResourceSet.of({"gpu": 8, "memory": "4GiB"}))
    return MeshRecord(mesh=MeshId(mesh), labels={"zone": mesh}, pools=(pool,), cluster="c" * 8)


@pytest.fixture
def ledger(store):
    store.ledger.configure(tree())
    return store.ledger


@pytest.fixture
def west(ledger) -> Session:
    return ledger.join(record("west"))


def acquire(ledger, session, lease="one", tenant=LAB, *, want=1, slot=ONE_GPU, flavor=A100):
    return ledger.acquire(session, LeaseId(lease), tenant, flavor, slot, want)


def gpus(ledger, tenant) -> int:
    """Whole GPUs that the ledger charges to the node."""
    return ledger.snapshot().usage.get((tenant, A100, "gpu"), 0) // 10_000


# ---- never over-granted


def test_a_lease_holds_what_was_wanted_when_it_is_there(ledger, west):
    lease = acquire(ledger, west, want=3)
    assert isinstance(lease, Lease)
    assert (lease.slots, lease.slot, lease.tenant, lease.mesh, lease.flavor) == (3, ONE_GPU, LAB, "west", A100)
    assert (gpus(ledger, LAB), gpus(ledger, ACME)) == (3, 3)


def test_a_lease_is_smaller_than_wanted_when_the_tree_has_less(ledger, west):
    assert acquire(ledger, west, want=100).slots == 8


def test_nothing_is_granted_beyond_what_siblings_may_lend(store):
    store.ledger.configure(tree(shop_lends=1))
    session = store.ledger.join(record())
    assert acquire(store.ledger, session, want=100).slots == 5
    refused = acquire(store.ledger, session, "two")
    assert refused == LeaseRefused(reason=Reason.QUOTA_EXHAUSTED, tenant=LAB, flavor=A100, resource="gpu", wanted=10_000, available=0)
    assert acquire(store.ledger, session, "three", SHOP, want=100).slots == 3


def test_nothing_is_granted_beyond_the_borrowing_limit(store):
    store.ledger.configure(tree(lab_borrows=2))
    assert acquire(store.ledger, store.ledger.join(record()), want=100).slots == 6


def test_two_meshes_share_one_tree(ledger, west):
    east = ledger.join(record("east"))
    assert acquire(ledger, west, want=5).slots == 5
    assert acquire(ledger, east, want=5).slots == 3
    assert acquire(ledger, east, "two").reason is Reason.QUOTA_EXHAUSTED


def test_a_tenant_with_children_may_hold_leases_itself(ledger, west):
    assert acquire(ledger, west, tenant=ACME, want=6).slots == 6
    assert acquire(ledger, west, "two", want=6).slots == 2


def test_what_can_never_fit_is_named_so(ledger, west):
    refused = acquire(ledger, west, slot=ResourceSet.of({"gpu": 9}))
    assert (refused.reason, refused.wanted, refused.available) == (Reason.QUOTA_TOO_SMALL, 90_000, 80_000)


def test_what_the_borrowing_limit_never_allows_is_named_so(store):
    store.ledger.configure(tree(lab_borrows=2))
    session = store.ledger.join(record())
    assert acquire(store.ledger, session, slot=ResourceSet.of({"gpu": 7})).reason is Reason.QUOTA_TOO_SMALL
    acquire(store.ledger, session, "two", want=6)
    assert acquire(store.ledger, session, slot=ResourceSet.of({"gpu": 6})).reason is Reason.QUOTA_EXHAUSTED


def test_a_resource_without_quota_can_never_be_held(ledger, west):
    refused = acquire(ledger, west, slot=ResourceSet.of({"gpu": 1, "cpu": 1}))
    assert (refused.reason, refused.resource, refused.available) == (Reason.QUOTA_TOO_SMALL, "cpu", 0)
    assert acquire(ledger, west, flavor=FlavorName("h100")).reason is Reason.QUOTA_TOO_SMALL


def test_the_tightest_resource_of_the_slot_decides(store):
    key = (A100, "memory")
    both = {(A100, "gpu"): Quota(nominal=80_000), key: Quota(nominal=5 * 2**30)}
    store.ledger.configure(TenantTree([Tenant(path=LAB, parent=None, quotas=both)]))
    session = store.ledger.join(record())
    assert acquire(store.ledger, session, want=8, slot=ResourceSet.of({"gpu": 1, "memory": "2GiB"})).slots == 2
    refused = acquire(store.ledger, session, "two", slot=ResourceSet.of({"gpu": 1, "memory": "2GiB"}))
    assert (refused.resource, refused.wanted, refused.available) == ("memory", 2 * 2**30, 2**30)


@pytest.mark.parametrize(
    ("nominal", "unit", "slots"),
    [
        pytest.param(AMOUNT_MAX, 1, AMOUNT_MAX, id="the largest amount is granted to the last unit"),
        pytest.param(AMOUNT_MAX, 3, AMOUNT_MAX // 3, id="a quotient of sixteen digits is exact"),
        pytest.param(3 * (AMOUNT_MAX // 3) - 1, AMOUNT_MAX // 3, 2, id="one unit less than three slots makes two"),
        pytest.param(123_456_789_012_345_678 % AMOUNT_MAX, 1, 123_456_789_012_345_678 % AMOUNT_MAX, id="sixteen digits survive"),
    ],
)
def test_amounts_are_exact_up_to_the_largest(store, nominal, unit, slots):
    store.ledger.configure(TenantTree([Tenant(path=LAB, parent=None, quotas={(A100, "memory"): Quota(nominal=nominal)})]))
    session = store.ledger.join(record())
    lease = acquire(store.ledger, session, want=AMOUNT_MAX, slot=ResourceSet({"memory": unit}))
    assert lease.slots == slots
    assert store.ledger.snapshot().usage == {(LAB, A100, "memory"): slots * unit}
    assert store.ledger.release(session, LeaseId("one"))
    assert store.ledger.snapshot().usage == {}


def test_a_slot_of_nothing_costs_nothing(ledger, west):
    assert acquire(ledger, west, want=3, slot=ResourceSet()).slots == 3
    assert ledger.snapshot().usage == {}


def test_wanting_no_slot_is_an_error(ledger, west):
    with pytest.raises(AmountError, match="at least 1"):
        acquire(ledger, west, want=0)


def test_racing_meshes_are_never_granted_more_than_there_is(ledger):
    sessions = [ledger.join(record(f"mesh-{number}")) for number in range(4)]
    granted: list[int] = []

    def ask(session: Session) -> None:
        answers = [acquire(ledger, session, f"lease-{number}") for number in range(5)]
        granted.extend(answer.slots for answer in answers if isinstance(answer, Lease))

    threads = [threading.Thread(target=ask, args=(session,)) for session in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(granted) == 8
    assert gpus(ledger, ACME) == 8


# ---- tokens


def test_tokens_only_rise(ledger, west):
    first = acquire(ledger, west)
    east = ledger.join(record("east"))
    second = acquire(ledger, east, "two")
    assert west.incarnation < first.token < east.incarnation < second.token


def test_the_same_lease_id_is_the_same_lease(ledger, west):
    first = acquire(ledger, west, want=2)
    assert acquire(ledger, west, want=4) == first
    assert gpus(ledger, LAB) == 2


def test_a_lease_id_that_was_given_back_gets_a_new_token(ledger, west):
    first = acquire(ledger, west)
    ledger.release(west, first.lease)
    assert acquire(ledger, west).token > first.token


# ---- giving back


def test_a_released_lease_returns_to_every_node(ledger, west):
    acquire(ledger, west, want=6)
    assert ledger.release(west, LeaseId("one"))
    assert ledger.snapshot().usage == {}
    assert ledger.snapshot().leases == ()


def test_releasing_twice_is_harmless(ledger, west):
    acquire(ledger, west, "one", want=2)
    acquire(ledger, west, "two", want=2)
    assert ledger.release(west, LeaseId("one")) is True
    assert ledger.release(west, LeaseId("one")) is False
    assert gpus(ledger, LAB) == 2


def test_a_mesh_cannot_release_the_lease_of_another(ledger, west):
    acquire(ledger, west)
    east = ledger.join(record("east"))
    assert ledger.release(east, LeaseId("one")) is False
    assert gpus(ledger, LAB) == 1


def test_leaving_gives_everything_back_and_is_harmless_again(ledger, west):
    acquire(ledger, west, "one", want=3)
    acquire(ledger, west, "two", SHOP, want=3)
    ledger.leave(west)
    ledger.leave(west)
    assert ledger.snapshot().usage == {}
    assert ledger.snapshot().meshes == ()


def test_a_second_join_ends_the_first_session(ledger, west):
    acquire(ledger, west, want=3)
    again = ledger.join(record("west"))
    assert again.incarnation > west.incarnation
    assert ledger.snapshot().usage == {}
    for late in (lambda: ledger.heartbeat(west, record()), lambda: acquire(ledger, west), lambda: ledger.release(west, LeaseId("one"))):
        with pytest.raises(SessionLost):
            late()
    ledger.leave(west)
    assert [view.incarnation for view in ledger.snapshot().meshes] == [again.incarnation]


# ---- sessions in time


def test_a_session_tells_its_time_to_live(west, store):
    assert west.ttl_ms == store.ttl_ms


def test_a_session_never_known_is_lost(ledger):
    stranger = Session(mesh=MeshId("nowhere"), incarnation=7, ttl_ms=1)
    with pytest.raises(SessionLost):
        ledger.heartbeat(stranger, record("nowhere"))
    ledger.leave(stranger)


def test_a_session_that_has_run_out_may_not_acquire(ledger, west, store):
    store.advance(store.ttl_ms + 1)
    with pytest.raises(SessionLost):
        acquire(ledger, west)
    assert [view.alive for view in ledger.snapshot().meshes] == [False]


def test_a_late_heartbeat_before_the_sweep_brings_the_session_back(ledger, west, store):
    acquire(ledger, west, want=2)
    store.advance(store.ttl_ms + 1)
    assert ledger.sweep().meshes == ()
    ledger.heartbeat(west, record())
    assert acquire(ledger, west, "two").slots == 1
    assert gpus(ledger, LAB) == 3


def test_a_sweep_spares_sessions_within_the_grace(ledger, west, store):
    acquire(ledger, west)
    store.advance(store.ttl_ms + store.grace_ms - 60_000)
    swept = ledger.sweep()
    assert (swept.meshes, swept.leases) == ((), 0)
    assert gpus(ledger, LAB) == 1


def test_a_sweep_takes_back_everything_of_the_overdue_and_nothing_of_the_others(ledger, west, store):
    acquire(ledger, west, "one", want=2)
    acquire(ledger, west, "two", SHOP)
    store.advance(store.ttl_ms)
    east = ledger.join(record("east"))
    acquire(ledger, east, want=2)
    store.advance(store.grace_ms + 1)
    swept = ledger.sweep()
    assert (swept.meshes, swept.leases) == (("west",), 2)
    assert (gpus(ledger, LAB), gpus(ledger, SHOP), gpus(ledger, ACME)) == (2, 0, 2)
    with pytest.raises(SessionLost):
        ledger.heartbeat(west, record())
    assert ledger.sweep().meshes == ()


def test_a_swept_mesh_stays_visible_and_may_join_again(ledger, west, store):
    store.advance(store.ttl_ms + store.grace_ms + 1)
    ledger.sweep()
    assert [(view.record.mesh, view.alive) for view in ledger.snapshot().meshes] == [("west", False)]
    ledger.join(record())
    assert [view.alive for view in ledger.snapshot().meshes] == [True]


# ---- tenants and configuration


def test_an_unknown_tenant_is_told_the_nearest(ledger, west):
    with pytest.raises(UnknownTenant, match="acme/lab"):
        acquire(ledger, west, tenant=TenantPath("acme/lap"))


def test_a_cut_takes_nothing_and_grants_nothing_until_use_has_fallen(ledger, west):
    acquire(ledger, west, "one", want=3)
    acquire(ledger, west, "two", want=3)
    ledger.configure(tree(lab=2, shop=2))
    assert gpus(ledger, LAB) == 6
    assert acquire(ledger, west, "three").available == 0
    ledger.release(west, LeaseId("one"))
    assert acquire(ledger, west, "three", want=9).slots == 1


def test_configuring_the_same_tree_again_changes_nothing(ledger, west):
    acquire(ledger, west, want=6)
    before = ledger.snapshot()
    ledger.configure(tree())
    after = ledger.snapshot()
    assert (after.usage, after.tree, after.leases) == (before.usage, before.tree, before.leases)


def test_a_raised_lending_limit_moves_the_charge(store):
    store.ledger.configure(tree(shop_lends=0))
    session = store.ledger.join(record())
    acquire(store.ledger, session, tenant=SHOP, want=4)
    assert gpus(store.ledger, ACME) == 0
    store.ledger.configure(tree(shop_lends=3))
    assert gpus(store.ledger, ACME) == 3


def test_a_vanished_tenant_keeps_its_row_while_it_is_charged(ledger, west):
    acquire(ledger, west, want=3)
    ledger.configure(TenantTree([tree().tenant(ACME), tree().tenant(SHOP)]))
    snapshot = ledger.snapshot()
    assert snapshot.usage == {(LAB, A100, "gpu"): 30_000, (ACME, A100, "gpu"): 30_000}
    assert snapshot.tree.tenant(LAB).quotas == {(A100, "gpu"): Quota(borrowing_limit=0)}
    with pytest.raises(UnknownTenant):
        acquire(ledger, west, "two")
    assert acquire(ledger, west, "three", SHOP, want=9).slots == 1
    ledger.release(west, LeaseId("one"))
    assert list(ledger.snapshot().tree.tenants) == [ACME, SHOP]


def test_a_whole_branch_may_vanish_while_it_is_charged(ledger, west):
    acquire(ledger, west, want=3)
    other = TenantPath("other")
    ledger.configure(TenantTree([Tenant(path=other, parent=None)]))
    ledger.configure(TenantTree([Tenant(path=other, parent=None)]))
    snapshot = ledger.snapshot()
    assert snapshot.usage == {(LAB, A100, "gpu"): 30_000, (ACME, A100, "gpu"): 30_000}
    assert list(snapshot.tree.tenants) == [ACME, LAB, other]
    ledger.leave(west)
    assert ledger.snapshot().usage == {}


# ---- the snapshot


def test_the_snapshot_gives_back_the_tree_the_records_and_the_leases(ledger, west, store):
    lease = acquire(ledger, west, want=2)
    present = replace(record(), draining=True, tenants=("acme",))
    store.advance(5_000)
    ledger.heartbeat(west, present)
    store.advance(30_000)
    snapshot = ledger.snapshot()
    assert snapshot.tree == tree()
    (view,) = snapshot.meshes
    assert (view.record, view.incarnation, view.alive) == (present, west.incarnation, True)
    assert 30_000 <= view.heartbeat_age_ms < 60_000
    (held,) = snapshot.leases
    assert (held.lease, held.amounts, held.token) == ("one", lease.amounts, lease.token)
    assert snapshot.tree.recompute(snapshot.leases) == snapshot.usage


def test_an_empty_ledger_has_an_empty_snapshot(store):
    snapshot = store.ledger.snapshot()
    assert (snapshot.usage, snapshot.meshes, snapshot.leases, list(snapshot.tree.tenants)) == ({}, (), (), [])


def test_names_may_hold_what_a_pattern_would_take_for_a_command(store):
    key = (FlavorName("a-100.%d"), "node:10.0.0.1")
    path = TenantPath('%s "x"/ü')
    store.ledger.configure(TenantTree([Tenant(path=path, parent=None, quotas={key: Quota(nominal=5)})]))
    session = store.ledger.join(record("m%s"))
    assert store.ledger.acquire(session, LeaseId("l|%d"), path, key[0], ResourceSet({key[1]: 2}), 9).slots == 2
    assert store.ledger.snapshot().usage == {(path, *key): 4}
    assert store.ledger.snapshot().leases[0].lease == "l|%d"


# ---- Redis only


def test_a_server_that_does_not_answer_is_told_as_such(tmp_path):
    ledger = RedisLedger(connect(f"unix://{tmp_path}/nobody.sock", timeout_ms=100), Keys(), ttl_ms=1, grace_ms=1)
    with pytest.raises(StoreUnavailable, match="sweep"):
        ledger.sweep()


def test_a_server_that_lost_its_scripts_is_given_them_again(redis_server: redis.Redis):
    ledger = RedisLedger(redis_server, Keys("contract"), ttl_ms=60_000, grace_ms=1)
    ledger.configure(tree())
    session = ledger.join(record())
    assert acquire(ledger, session).slots == 1
    redis_server.script_flush()
    assert acquire(ledger, session, "two").slots == 1


def test_a_server_without_memory_left_grants_nothing_and_still_renews_and_takes_back(redis_server: redis.Redis):
    ledger = RedisLedger(redis_server, Keys("contract"), ttl_ms=60_000, grace_ms=1)
    ledger.configure(tree())
    session = ledger.join(record())
    acquire(ledger, session, want=4)
    acquire(ledger, session, "two")
    redis_server.config_set("maxmemory", 1)
    try:
        with pytest.raises(StoreUnavailable):
            acquire(ledger, session, "three")
        ledger.heartbeat(session, record())
        assert ledger.release(session, LeaseId("one"))
        assert gpus(ledger, LAB) == 1
        ledger.leave(session)
        assert ledger.snapshot().usage == {}
    finally:
        redis_server.config_set("maxmemory", 0)


def test_a_key_that_is_not_ours_is_garbage_and_not_an_outage(redis_server: redis.Redis):
    redis_server.set(Keys("contract").sessions, "not a hash")
    with pytest.raises(RuntimeDoorError) as broken:
        RedisLedger(redis_server, Keys("contract"), ttl_ms=1, grace_ms=1).sweep()
    assert not isinstance(broken.value, StoreUnavailable)


def test_shards_do_not_see_each_other(redis_server: redis.Redis):
    one = RedisLedger(redis_server, Keys("one"), ttl_ms=60_000, grace_ms=1)
    two = RedisLedger(redis_server, Keys("two"), ttl_ms=60_000, grace_ms=1)
    for ledger in (one, two):
        ledger.configure(tree())
    assert acquire(one, one.join(record()), want=8).slots == 8
    assert acquire(two, two.join(record()), want=8).slots == 8
