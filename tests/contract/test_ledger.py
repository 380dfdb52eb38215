"""What every lease ledger promises; run over memory, over Redis by scripts, and over Redis by functions."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import redis
from faults.server import Server
from ledger_stores import redis_store
from patience import eventually

from federation.dispatch import Mail, MailKind
from federation.errors import (
    BatchTooLarge,
    EpochChanged,
    ForeignLedger,
    ForgedReceipt,
    FutureToken,
    HoldingsWanted,
    LedgerLearning,
    LinkRefused,
    PlannerSuperseded,
    QuotaExceeded,
    SessionExpired,
    SessionLost,
    SessionSuperseded,
    SessionUnknown,
    StaleBeat,
    StoreUnavailable,
    TenantCycle,
    TreeChanged,
    UnfitName,
    UnknownTenant,
)
from federation.leases import ROWS_MAX, Aim, Beat, Granted, Kept, Lease, LeaseRefused, LeaseTerms, LookAgain, Session, Want
from federation.snapshot import MeshRecord, PoolRecord
from federation.store.keys import Keys
from federation.store.redis_client import connect
from federation.store.redis_ledger import RedisLedger
from federation.store.redis_queue import RedisStageQueue
from federation.store.testing import servers
from federation.tenants import Quota, Tenant, TenantTree
from federation.testing import HandMesh
from mesh.errors import AmountError, RuntimeDoorError
from mesh.ids import FlavorName, MeshId, NodeId, PoolName, RunId, StageId, TenantPath
from mesh.messages import StageEnded
from mesh.reasons import Reason
from mesh.resources import AMOUNT_MAX, ResourceSet
from mesh.stages import StageSpec

A100 = FlavorName("a100")
ACME, LAB, SHOP = TenantPath("acme"), TenantPath("acme/lab"), TenantPath("acme/shop")
ONE_GPU = ResourceSet.of({"gpu": 1})
TERMS = LeaseTerms(ttl_ms=60_000, grace_ms=1)


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
def west(ledger) -> HandMesh:
    return HandMesh(ledger, record("west"))


@pytest.fixture
def east(ledger) -> HandMesh:
    return HandMesh(ledger, record("east"))


def gpu(count) -> ResourceSet:
    return ResourceSet.of({"gpu": count})


def ask(mesh, want=1, tenant=LAB, *, slot=ONE_GPU, flavor=A100, priority=0):
    return mesh.acquire(tenant, flavor, slot, want, priority)


def gpus(ledger, tenant) -> int:
    """Whole GPUs that the ledger charges to the node."""
    return ledger.snapshot().usage.get((tenant, A100, "gpu"), 0) // 10_000


def aim(ledger, *aims):
    """Apply a plan of (mesh, tenant, whole GPUs)."""
    planner = ledger.elect("planner", 10**9)
    version = ledger.snapshot().version
    return ledger.plan_apply(
        planner, version, tuple(Aim(mesh=MeshId(mesh), tenant=tenant, flavor=A100, target=gpu(count)) for mesh, tenant, count in aims)
    )


# ---- never over-granted


def test_a_lease_holds_what_was_wanted_when_it_is_there(ledger, west):
    assert ask(west, 3) == Granted(slots=3)
    lease = west.lease(LAB, A100)
    assert (lease.held, lease.target, lease.tenant, lease.mesh, lease.flavor) == (gpu(3), gpu(3), LAB, "west", A100)
    assert lease.token > 0
    assert (gpus(ledger, LAB), gpus(ledger, ACME)) == (3, 3)


def test_a_lease_grows_under_its_token_and_each_change_has_a_version(ledger, west):
    ask(west, 2)
    first = west.lease(LAB, A100)
    ask(west, 1)
    second = west.lease(LAB, A100)
    assert (second.held, second.token) == (gpu(3), first.token)
    assert second.version > first.version
    assert gpus(ledger, LAB) == 3


UNFIT = {
    "a bar": "gpu|10000|gpu|10000|gpu",
    "a newline": "gpu\n1",
    "another end of line": "gpu\u20281",
    "a control character": "gpu\x1c1",
    "nothing": "",
}


@pytest.mark.parametrize("name", UNFIT.values(), ids=UNFIT)
@pytest.mark.parametrize("part", ["resource", "tenant", "flavor"])
def test_a_name_that_would_shift_the_fields_of_a_row_is_refused_wherever_it_stands(ledger, west, part, name):
    ask(west)
    before = ledger.snapshot().leases
    about = {"tenant": LAB, "flavor": A100} | ({} if part == "resource" else {part: name})
    amounts = ResourceSet({name: 10_000}) if part == "resource" else ONE_GPU
    want = Want(**about, slot=amounts, slots=4, version=west.lease(LAB, A100).version)
    claim = replace(west.lease(LAB, A100), **about, held=amounts)
    for say in (
        lambda: ledger.acquire(west.session, (want,)),
        lambda: west.beat(wants=(want,)),
        lambda: west.beat(claims=(claim,)),
        lambda: ledger.release(west.session, (Kept(**about, version=1, amounts=amounts),)),
    ):
        with pytest.raises((UnfitName, LinkRefused, ForgedReceipt)):
            say()
    seen = ledger.snapshot()
    assert (seen.leases, seen.wants, ledger.audit()) == (before, (), ())


def test_fewer_slots_are_granted_than_wanted_when_the_tree_has_less(ledger, west):
    assert ask(west, 100) == Granted(slots=8)


def test_nothing_is_granted_beyond_what_siblings_may_lend(store):
    store.ledger.configure(tree(shop_lends=1))
    west = HandMesh(store.ledger, record())
    assert ask(west, 100).slots == 5
    assert ask(west) == LeaseRefused(reason=Reason.QUOTA_EXHAUSTED, tenant=LAB, flavor=A100, resource="gpu", wanted=10_000, available=0)
    assert ask(west, 100, SHOP).slots == 3


def test_nothing_is_granted_beyond_the_borrowing_limit(store):
    store.ledger.configure(tree(lab_borrows=2))
    assert ask(HandMesh(store.ledger, record()), 100).slots == 6


def test_two_meshes_share_one_tree(west, east):
    assert ask(west, 5).slots == 5
    assert ask(east, 5).slots == 3
    assert ask(east).reason is Reason.QUOTA_EXHAUSTED


def test_a_tenant_with_children_may_hold_leases_itself(west):
    assert ask(west, 6, ACME).slots == 6
    assert ask(west, 6).slots == 2


def test_what_can_never_fit_is_named_so(west):
    refused = ask(west, slot=gpu(9))
    assert (refused.reason, refused.wanted, refused.available) == (Reason.QUOTA_TOO_SMALL, 90_000, 80_000)


def test_what_the_borrowing_limit_never_allows_is_named_so(store):
    store.ledger.configure(tree(lab_borrows=2))
    west = HandMesh(store.ledger, record())
    assert ask(west, slot=gpu(7)).reason is Reason.QUOTA_TOO_SMALL
    ask(west, 6)
    assert ask(west, slot=gpu(6)).reason is Reason.QUOTA_EXHAUSTED


def test_a_resource_without_quota_can_never_be_held(west):
    refused = ask(west, slot=ResourceSet.of({"gpu": 1, "cpu": 1}))
    assert (refused.reason, refused.resource, refused.available) == (Reason.QUOTA_TOO_SMALL, "cpu", 0)
    assert ask(west, flavor=FlavorName("h100")).reason is Reason.QUOTA_TOO_SMALL


def test_the_tightest_resource_of_the_slot_decides(store):
    both = {(A100, "gpu"): Quota(nominal=80_000), (A100, "memory"): Quota(nominal=5 * 2**30)}
    store.ledger.configure(TenantTree([Tenant(path=LAB, parent=None, quotas=both)]))
    west = HandMesh(store.ledger, record())
    slot = ResourceSet.of({"gpu": 1, "memory": "2GiB"})
    assert ask(west, 8, slot=slot).slots == 2
    refused = ask(west, slot=slot)
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
    west = HandMesh(store.ledger, record())
    assert ask(west, AMOUNT_MAX, slot=ResourceSet({"memory": unit})).slots == slots
    assert store.ledger.snapshot().usage == {(LAB, A100, "memory"): slots * unit}
    west.release(LAB, A100)
    assert store.ledger.snapshot().usage == {}


def test_wanting_no_slot_is_an_error(west):
    with pytest.raises(AmountError, match="at least 1"):
        ask(west, 0)


def test_more_wants_than_others_should_wait_for_are_refused_whole(ledger, west):
    want = Want(tenant=LAB, flavor=A100, slot=ONE_GPU)
    with pytest.raises(BatchTooLarge):
        ledger.acquire(west.session, (want,) * (ROWS_MAX + 1))
    assert gpus(ledger, LAB) == 0


def test_many_wants_are_answered_in_order_each_after_the_one_before(ledger, west):
    wants = [Want(tenant=tenant, flavor=A100, slot=ONE_GPU, slots=slots) for tenant, slots in ((LAB, 6), (SHOP, 3), (ACME, 1))]
    acquired = ledger.acquire(west.session, tuple(wants))
    assert [answer.slots if isinstance(answer, Granted) else answer.reason for answer in acquired.answers] == [
        6,
        2,
        Reason.QUOTA_EXHAUSTED,
    ]
    assert {(lease.tenant, lease.held) for lease in acquired.told.leases} == {(LAB, gpu(6)), (SHOP, gpu(2))}


def test_racing_meshes_are_never_granted_more_than_there_is(ledger):
    meshes = [HandMesh(ledger, record(f"mesh-{number}")) for number in range(4)]
    granted: list[int] = []

    def race(mesh: HandMesh) -> None:
        answers = [ask(mesh) for _ in range(5)]
        granted.extend(answer.slots for answer in answers if isinstance(answer, Granted))

    threads = [threading.Thread(target=race, args=(mesh,)) for mesh in meshes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(granted) == 8
    assert gpus(ledger, ACME) == 8


# ---- tokens and versions


def test_tokens_only_rise(west, east):
    ask(west)
    ask(east)
    tokens = [west.session.incarnation, east.session.incarnation, west.lease(LAB, A100).token, east.lease(LAB, A100).token]
    assert tokens == sorted(set(tokens))


def test_a_question_that_is_carried_out_twice_grants_once(ledger, west):
    want = Want(tenant=LAB, flavor=A100, slot=ONE_GPU, slots=2)
    ledger.acquire(west.session, (want,))
    again = ledger.acquire(west.session, (want,))
    assert again.answers == (LookAgain(),)
    assert [lease.held for lease in again.told.leases] == [gpu(2)]
    assert gpus(ledger, LAB) == 2


def test_a_lease_that_was_given_back_whole_gets_a_new_token(west):
    ask(west)
    first = west.lease(LAB, A100).token
    west.release(LAB, A100)
    ask(west)
    assert west.lease(LAB, A100).token > first


def test_a_token_from_the_future_is_refused_so_that_nobody_burns_the_space(ledger, west, store):
    if not store.believes_tokens:
        west.session = replace(west.session, mark=2**53 - 1)
        west.beat()
        ask(west)
        assert HandMesh(ledger, record(), seen=2**53 - 1).session.incarnation < 2**52
        return
    with pytest.raises(FutureToken):
        ledger.heartbeat(replace(west.session, mark=2**53 - 1), record(), Beat(number=1))
    with pytest.raises(FutureToken):
        ledger.join(record(), seen=2**53 - 1)


# ---- giving back


def test_what_is_given_back_returns_to_every_node(ledger, west):
    ask(west, 6)
    west.release(LAB, A100)
    assert (ledger.snapshot().usage, ledger.snapshot().leases) == ({}, ())


def test_a_part_may_be_given_back(ledger, west):
    ask(west, 6)
    west.release(LAB, A100, gpu(2))
    assert (gpus(ledger, LAB), west.lease(LAB, A100).held) == (2, gpu(2))


def test_giving_back_twice_or_under_an_old_version_changes_nothing(ledger, west):
    ask(west, 2)
    old = west.lease(LAB, A100)
    ask(west, 2)
    told = ledger.release(west.session, (Kept(tenant=LAB, flavor=A100, version=old.version, amounts=gpu(0)),))
    assert (told.leases, gpus(ledger, LAB)) == ((), 4)
    west.release(LAB, A100, gpu(3))
    assert west.release(LAB, A100, gpu(3)).learn_ms == 0
    assert gpus(ledger, LAB) == 3


def test_giving_back_more_than_is_held_keeps_what_is_held(ledger, west):
    ask(west, 2)
    west.release(LAB, A100, gpu(5))
    assert gpus(ledger, LAB) == 2


def test_a_mesh_cannot_give_back_the_lease_of_another(ledger, west, east):
    ask(west)
    ledger.release(east.session, (Kept(tenant=LAB, flavor=A100, version=west.lease(LAB, A100).version, amounts=gpu(0)),))
    assert gpus(ledger, LAB) == 1


def test_leaving_gives_everything_back_and_is_harmless_again(ledger, west):
    ask(west, 3)
    ask(west, 3, SHOP)
    west.leave()
    west.leave()
    assert (ledger.snapshot().usage, ledger.snapshot().meshes) == ({}, ())


# ---- joining again


def test_a_second_join_fences_the_first_session_and_leaves_its_leases_to_run_out(store, ledger, west):
    ask(west, 3)
    again = HandMesh(ledger, record("west"))
    assert again.session.incarnation > west.session.incarnation
    for late in (west.beat, lambda: ask(west), lambda: west.release(LAB, A100)):
        with pytest.raises(SessionSuperseded):
            late()
    west.leave()
    assert [view.incarnation for view in ledger.snapshot().meshes] == [again.session.incarnation]
    assert (gpus(ledger, LAB), again.leases) == (3, {})
    assert [lease.incarnation for lease in ledger.snapshot().leases] == [west.session.incarnation]
    ask(again)
    store.advance(store.ttl_ms)
    again.beat()
    store.advance(store.grace_ms + 1)
    assert ledger.sweep().leases == 1
    assert gpus(ledger, LAB) == 1


def test_what_a_plan_had_promised_to_the_earlier_session_is_free_again(ledger, west, east, store):
    ask(west, 1)
    aim(ledger, ("west", LAB, 8))
    assert ask(east, 1, SHOP).reason is Reason.QUOTA_EXHAUSTED
    cursor, _ = store.queue.mail(MeshId("east"), "", 0)
    HandMesh(ledger, record("west"))
    assert store.queue.mail(MeshId("east"), cursor, 0)[1] == (Mail(kind=MailKind.STAGE, subject=""),)
    assert ask(east, 8, SHOP) == Granted(slots=7)
    assert [(view.amounts, view.target) for view in ledger.snapshot().leases if view.incarnation] == [(gpu(1), gpu(1))]
    assert ledger.audit() == ()


def test_a_new_agent_takes_over_the_leases_of_the_session_that_it_names(ledger, west):
    ask(west, 3)
    heir = HandMesh(ledger, record("west"), adopt=west.session.incarnation)
    assert heir.lease(LAB, A100) == west.lease(LAB, A100)
    assert gpus(ledger, LAB) == 3
    heir.release(LAB, A100, gpu(1))
    assert gpus(ledger, LAB) == 1


def test_the_session_that_was_gone_on_with_may_not_speak_any_more(ledger, west):
    HandMesh(ledger, record("west"), adopt=west.session.incarnation)
    for late in (west.beat, lambda: ask(west), lambda: west.release(LAB, A100)):
        with pytest.raises(SessionSuperseded):
            late()


def test_of_a_session_that_was_never_known_superseded_or_has_run_out_nothing_is_taken_over(store, ledger, west):
    ask(west, 3)
    with pytest.raises(SessionUnknown):
        ledger.join(record("nowhere"), adopt=west.session.incarnation)
    with pytest.raises(SessionSuperseded):
        ledger.join(record("west"), adopt=west.session.incarnation - 1)
    store.advance(store.ttl_ms)
    with pytest.raises(SessionExpired):
        ledger.join(record("west"), adopt=west.session.incarnation)
    assert [view.incarnation for view in ledger.snapshot().meshes] == [west.session.incarnation]
    assert gpus(ledger, LAB) == 3


def test_an_heir_whose_first_answer_was_lost_may_ask_again_until_it_has_spoken(ledger, west):
    ask(west, 2)
    first = HandMesh(ledger, record("west"), adopt=west.session.incarnation)
    second = HandMesh(ledger, record("west"), adopt=west.session.incarnation)
    assert second.session.incarnation > first.session.incarnation
    assert second.lease(LAB, A100).held == gpu(2)
    with pytest.raises(SessionSuperseded):
        first.beat()
    second.beat()
    with pytest.raises(SessionSuperseded):
        ledger.join(record("west"), adopt=west.session.incarnation)


def test_a_mesh_that_has_joined_anew_since_leaves_no_heir_of_the_earlier_session(ledger, west):
    HandMesh(ledger, record("west"), adopt=west.session.incarnation)
    HandMesh(ledger, record("west"))
    with pytest.raises(SessionSuperseded):
        ledger.join(record("west"), adopt=west.session.incarnation)


def test_while_the_ledger_learns_nobody_takes_over_what_it_may_remember_wrongly(ledger, west, store):
    ask(west, 2)
    store.restart()
    with pytest.raises(LedgerLearning):
        ledger.join(record("west"), adopt=west.session.incarnation)
    assert west.claim_all().learn_ms > 0


# ---- sessions in time


def test_a_session_tells_its_time_to_live(west, store):
    assert west.session.ttl_ms == store.ttl_ms


def test_a_session_never_known_is_unknown(ledger, west):
    stranger = replace(west.session, mesh=MeshId("nowhere"))
    with pytest.raises(SessionUnknown):
        ledger.heartbeat(stranger, record("nowhere"), Beat(number=1))
    ledger.leave(stranger)


def test_a_session_speaks_to_the_ledger_that_it_joined_and_to_no_other(ledger, west):
    with pytest.raises(ForeignLedger):
        ledger.heartbeat(replace(west.session, ledger="another"), record(), Beat(number=1))


def test_a_session_that_has_run_out_may_not_acquire(ledger, west, store):
    store.advance(store.ttl_ms + 1)
    with pytest.raises(SessionExpired):
        ask(west)
    assert [view.alive for view in ledger.snapshot().meshes] == [False]


def test_a_late_heartbeat_before_the_sweep_brings_the_session_back(ledger, west, store):
    ask(west, 2)
    store.advance(store.ttl_ms + 1)
    assert ledger.sweep().meshes == ()
    west.beat()
    assert ask(west).slots == 1
    assert gpus(ledger, LAB) == 3


def test_a_sweep_spares_sessions_within_the_grace(ledger, west, store):
    ask(west)
    store.advance(store.ttl_ms + store.grace_ms - 60_000)
    swept = ledger.sweep()
    assert (swept.meshes, swept.leases) == ((), 0)
    assert gpus(ledger, LAB) == 1


def test_a_sweep_takes_back_everything_of_the_overdue_and_nothing_of_the_others(ledger, west, store):
    ask(west, 2)
    ask(west, 1, SHOP)
    store.advance(store.ttl_ms)
    east = HandMesh(ledger, record("east"))
    ask(east, 2)
    store.advance(store.grace_ms + 1)
    swept = ledger.sweep()
    assert (swept.meshes, swept.leases, swept.is_more_due) == (("west",), 2, False)
    assert (gpus(ledger, LAB), gpus(ledger, SHOP), gpus(ledger, ACME)) == (2, 0, 2)
    with pytest.raises(SessionLost):
        west.beat()
    assert ledger.sweep().meshes == ()


def test_a_sweep_does_about_as_much_as_it_may_and_says_that_more_is_due(ledger, store):
    for name in "abc":
        ask(HandMesh(ledger, record(name)))
    store.advance(store.ttl_ms + store.grace_ms + 1)
    first = ledger.sweep(limit=1)
    assert (first.meshes, first.is_more_due) == (("a",), True)
    assert ledger.sweep(limit=5).meshes == ("b", "c")


def test_sweeps_that_say_that_more_is_due_end_every_overdue_session_whatever_it_holds(ledger, store):
    for name in "abcd":
        HandMesh(ledger, record(name))
    store.advance(store.ttl_ms + store.grace_ms + 1)
    ended = []
    while (swept := ledger.sweep(limit=1)).is_more_due:
        ended += swept.meshes
    assert [*ended, *swept.meshes] == [*"abcd"]


def test_a_swept_mesh_stays_visible_and_may_join_again(ledger, west, store):
    store.advance(store.ttl_ms + store.grace_ms + 1)
    ledger.sweep()
    assert [(view.record.mesh, view.alive) for view in ledger.snapshot().meshes] == [("west", False)]
    HandMesh(ledger, record())
    assert [view.alive for view in ledger.snapshot().meshes] == [True]


def test_a_mesh_that_has_not_come_back_for_a_day_is_forgotten_and_what_it_held_is_an_old_receipt(ledger, west, store):
    ask(west, 2)
    HandMesh(ledger, record("east"))
    for days in range(100):
        store.advance(900_001)
        ledger.sweep()
        if days == 50:
            HandMesh(ledger, record("east"))
    assert [view.record.mesh for view in ledger.snapshot().meshes] == ["east"]
    with pytest.raises(SessionUnknown):
        west.beat()
    store.restart()
    west.claim_all()  # The ledger learns, so it hears whom it does not know; what is claimed it has itself seen given back.
    assert gpus(ledger, ACME) == 0


# ---- heartbeats


def test_a_heartbeat_that_a_later_one_has_overtaken_is_stale(ledger, west, store):
    late = replace(west.session)
    west.beat()
    west.beat()
    store.advance(store.ttl_ms - 1)
    with pytest.raises(StaleBeat):
        ledger.heartbeat(late, record(), Beat(number=1))
    store.advance(2)
    assert [view.alive for view in ledger.snapshot().meshes] == [False]


def test_the_same_heartbeat_again_is_answered_and_renews_nothing(ledger, west, store):
    west.beat()
    store.advance(store.ttl_ms - 1)
    ledger.heartbeat(west.session, record(), Beat(number=1))
    store.advance(2)
    assert [view.alive for view in ledger.snapshot().meshes] == [False]


def test_a_heartbeat_tells_each_change_until_it_was_seen(ledger, west):
    ask(west, 3)
    ask(west, 1, SHOP)
    ledger.revoke(tenant=LAB)
    unseen = west.session
    for _ in range(2):
        west.number += 1
        told = ledger.heartbeat(unseen, record(), Beat(number=west.number))
        assert [(lease.tenant, lease.target) for lease in told.leases] == [(LAB, gpu(0))]
    assert west.beat().leases != ()
    assert west.beat().leases == ()


# ---- shrinking in two steps


def test_what_a_plan_lowers_stays_charged_until_the_mesh_says_that_it_obeys(ledger, west):
    ask(west, 4)
    aim(ledger, ("west", LAB, 1))
    assert gpus(ledger, LAB) == 4
    assert [(lease.held, lease.target, lease.shrink_ms is not None) for lease in west.beat().leases] == [(gpu(4), gpu(1), True)]
    west.obey(LAB, A100)
    assert (gpus(ledger, LAB), west.lease(LAB, A100).held) == (1, gpu(1))


def test_a_plan_tells_by_mail_only_whom_it_takes_something_from(ledger, west, east, store):
    ask(west, 4)
    cursors = {mesh: store.queue.mail(MeshId(mesh), "", 0)[0] for mesh in ("west", "east")}
    aim(ledger, ("west", LAB, 1), ("east", SHOP, 2))
    letters = {mesh: store.queue.mail(MeshId(mesh), cursor, 0)[1] for mesh, cursor in cursors.items()}
    assert letters == {"west": (Mail(kind=MailKind.PLAN, subject=""),), "east": ()}


def test_a_word_of_obedience_about_an_older_version_is_not_heard(ledger, west):
    ask(west, 1)
    before = west.lease(LAB, A100)
    ask(west, 3)
    aim(ledger, ("west", LAB, 1))
    stale = Kept(tenant=LAB, flavor=A100, version=before.version, amounts=gpu(1))
    west.beat(acks=(stale,))
    assert gpus(ledger, LAB) == 4


def test_a_word_of_obedience_that_does_not_reach_the_target_is_not_heard(ledger, west):
    ask(west, 4)
    aim(ledger, ("west", LAB, 1))
    west.beat()
    west.beat(acks=(Kept(tenant=LAB, flavor=A100, version=west.lease(LAB, A100).version, amounts=gpu(2)),))
    assert gpus(ledger, LAB) == 4


def test_a_lease_that_shrinks_is_granted_nothing(ledger, west):
    ask(west, 2)
    aim(ledger, ("west", LAB, 1))
    west.beat()
    assert ask(west).reason is Reason.QUOTA_EXHAUSTED


def test_who_does_not_obey_loses_what_is_above_the_target_after_its_time(ledger, west, store):
    ask(west, 4)
    aim(ledger, ("west", LAB, 1))
    store.advance(store.ttl_ms)
    west.beat()
    assert west.lease(LAB, A100).shrink_ms == 0
    store.advance(store.grace_ms - 60_000)
    assert ledger.sweep().leases == 0
    store.advance(60_001)
    assert ledger.sweep().leases == 1
    assert gpus(ledger, LAB) == 1


def test_what_one_gives_up_for_another_by_plan_is_taken_by_nobody_else(ledger, west, east):
    ask(west, 8)
    aim(ledger, ("west", LAB, 5), ("east", SHOP, 3))
    west.beat()
    west.obey(LAB, A100)
    assert gpus(ledger, ACME) == 5
    other = HandMesh(ledger, record("other"))
    assert ask(other, 9, SHOP).reason is Reason.QUOTA_EXHAUSTED
    assert [(lease.tenant, lease.held) for lease in east.beat().leases] == [(SHOP, gpu(3))]
    assert gpus(ledger, ACME) == 8


def test_a_planned_lease_grows_as_room_comes(ledger, west, east):
    ask(west, 8)
    aim(ledger, ("west", LAB, 4), ("east", SHOP, 4))
    assert [lease.held for lease in east.beat().leases] == [gpu(0)]
    west.beat()
    west.release(LAB, A100, gpu(6))
    assert [lease.held for lease in east.beat().leases] == [gpu(2)]
    west.release(LAB, A100, gpu(4))
    assert [lease.held for lease in east.beat().leases] == [gpu(4)]
    assert east.beat().leases == ()


def test_a_lease_that_grows_by_plan_is_as_urgent_as_what_is_wanted_of_it(ledger, west, east):
    ask(west, 8, priority=1)
    ask(east, 2, SHOP, priority=5)
    aim(ledger, ("west", LAB, 4), ("east", SHOP, 4))
    west.beat()
    west.release(LAB, A100, gpu(4))
    east.beat()
    assert {lease.tenant: lease.priority for lease in ledger.snapshot().leases} == {LAB: 1, SHOP: 5}


def test_a_plan_beyond_the_limits_changes_nothing(ledger, west, east):
    ask(west, 4)
    with pytest.raises(QuotaExceeded):
        aim(ledger, ("west", LAB, 5), ("east", SHOP, 4))
    assert [lease.target for lease in ledger.snapshot().leases] == [gpu(4)]
    assert ask(east, 4).slots == 4


def test_only_the_elected_plans_and_only_for_the_tree_that_is_in_force(ledger, west, store):
    first = ledger.elect("one", 60_000)
    assert ledger.elect("two", 60_000) is None
    assert ledger.elect("one", 60_000) == first
    version = ledger.snapshot().version
    with pytest.raises(PlannerSuperseded):
        ledger.plan_apply(first + 1, version, ())
    with pytest.raises(TreeChanged):
        ledger.plan_apply(first, version + 1, ())
    assert ledger.plan_apply(first, version, ()) + 1 == ledger.plan_apply(first, version, ())
    store.advance(60_001)
    with pytest.raises(PlannerSuperseded):
        ledger.plan_apply(first, version, ())
    assert ledger.elect("two", 60_000) > first


def test_a_plan_for_a_mesh_without_a_session_is_refused(ledger):
    with pytest.raises(SessionUnknown):
        aim(ledger, ("nowhere", LAB, 1))


def test_revoking_aims_at_nothing_and_hard_changes_the_token(ledger, west, east):
    ask(west)
    ask(east)
    before = west.lease(LAB, A100)
    assert ledger.revoke(mesh=MeshId("west")) == 1
    west.beat()
    assert (west.lease(LAB, A100).target, west.lease(LAB, A100).token) == (gpu(0), before.token)
    assert ledger.revoke(tenant=LAB, flavor=A100, hard=True) == 2
    west.beat()
    assert west.lease(LAB, A100).token > before.token
    assert gpus(ledger, LAB) == 2
    west.obey(LAB, A100)
    assert gpus(ledger, LAB) == 1
    assert ledger.revoke(tenant=SHOP) == 0


# ---- wants


def test_what_was_not_granted_is_wanted_until_it_is_granted_or_withdrawn(ledger, west, east, store):
    ask(west, 6)
    ask(east, 5, SHOP, priority=3)
    (want,) = ledger.snapshot().wants
    assert (want.mesh, want.tenant, want.slot, want.slots, want.priority) == ("east", SHOP, ONE_GPU, 3, 3)
    assert west.beat().others_want
    assert not east.beat().others_want
    store.advance(1_000)
    assert ledger.snapshot().wants[0].waiting_ms >= 1_000
    west.release(LAB, A100, gpu(3))
    assert ask(east, 3, SHOP).slots == 3
    assert ledger.snapshot().wants == ()
    ask(east, 9, SHOP)
    east.beat(wants=())
    assert ledger.snapshot().wants == ()


def test_a_want_stands_when_less_urgent_work_is_refused_the_same_lease(ledger, west, east):
    ask(west, 6)
    ask(east, 5, SHOP, priority=3)
    ask(east, 9, SHOP, priority=2)
    assert [(want.slots, want.priority) for want in ledger.snapshot().wants] == [(3, 3)]
    ask(east, 4, SHOP, priority=4)
    assert [(want.slots, want.priority) for want in ledger.snapshot().wants] == [(4, 4)]


def test_a_lease_is_as_urgent_as_the_most_urgent_work_that_it_pays_for(ledger, west):
    def grow(priority, pays_for):
        (lease,) = ledger.snapshot().leases
        want = Want(tenant=LAB, flavor=A100, slot=ONE_GPU, priority=priority, version=lease.version, pays_for=pays_for)
        ledger.acquire(west.session, (want,))
        return ledger.snapshot().leases[0].priority

    ask(west, 1, priority=4)
    assert grow(-2, 4) == 4
    assert grow(-2, -1) == -1
    assert grow(7, None) == 7


def test_a_heartbeat_tells_all_that_a_mesh_wants(ledger, west):
    west.beat(wants=(Want(tenant=LAB, flavor=A100, slot=ONE_GPU, slots=2), Want(tenant=SHOP, flavor=A100, slot=ONE_GPU)))
    west.beat()
    assert [(want.tenant, want.slots) for want in ledger.snapshot().wants] == [(LAB, 2), (SHOP, 1)]
    west.beat(wants=(Want(tenant=SHOP, flavor=A100, slot=ONE_GPU),))
    assert [want.tenant for want in ledger.snapshot().wants] == [SHOP]
    west.leave()
    assert ledger.snapshot().wants == ()


# ---- epochs and learning


def learning(store, ledger, *meshes):
    """The server restarts, and every mesh says what it holds."""
    store.restart()
    for mesh in meshes:
        mesh.claim_all()


def test_after_a_restart_no_call_of_the_earlier_epoch_is_carried_out(ledger, west, store):
    ask(west, 2)
    store.restart()
    for late in (lambda: west.beat(claims=()), lambda: ask(west), lambda: west.release(LAB, A100)):
        with pytest.raises(EpochChanged) as changed:
            late()
    assert changed.value.epoch > west.session.epoch
    assert 0 < changed.value.learn_ms <= store.ttl_ms + store.grace_ms
    assert gpus(ledger, LAB) == 2


def test_a_ledger_that_learns_grants_nothing_and_takes_nothing_back(ledger, west, east, store):
    ask(west, 2)
    ask(east, 2)
    learning(store, ledger, west)
    assert ask(west).reason is Reason.LEDGER_LEARNING
    with pytest.raises(LedgerLearning):
        aim(ledger, ("west", LAB, 3))
    store.advance(store.ttl_ms + store.grace_ms - 5_000)
    swept = ledger.sweep()
    assert (swept.meshes, swept.leases) == ((), 0)
    assert swept.learn_ms > 0
    assert gpus(ledger, LAB) == 4
    store.advance(5_001)
    assert ledger.sweep().meshes == ("east", "west")


def test_work_goes_on_while_the_ledger_learns(ledger, west, store):
    ask(west, 2)
    learning(store, ledger, west)
    assert west.told.learn_ms > 0
    west.release(LAB, A100, gpu(1))
    assert gpus(ledger, LAB) == 1
    with pytest.raises(HoldingsWanted):
        west.beat()
    west.number += 1
    for _ in range(4):
        store.advance(store.ttl_ms // 2)
        told = west.claim_all()
    assert (told.learn_ms, gpus(ledger, LAB)) == (0, 1)
    assert ask(west).slots == 1


def test_a_lost_grant_comes_back_as_a_claim(ledger, west, east, store):
    ask(west)
    kept = store.keep()
    ask(west, 4)
    ask(east, 2, SHOP)
    store.lose(kept)
    assert gpus(ledger, ACME) == 1
    west.claim_all()
    east.claim_all()
    assert (gpus(ledger, LAB), gpus(ledger, SHOP), gpus(ledger, ACME)) == (5, 2, 7)
    assert ledger.audit() == ()


def test_a_lease_whose_plan_was_lost_is_told_anew_to_a_mesh_that_has_obeyed_the_plan(ledger, west, store):
    ask(west, 3)
    kept = store.keep()
    planner = ledger.elect("p", store.ttl_ms)
    ledger.plan_apply(planner, ledger.snapshot().version, (Aim(mesh=MeshId("west"), tenant=LAB, flavor=A100, target=gpu(2)),))
    west.beat()
    planned = west.lease(LAB, A100)
    assert (planned.held, planned.target) == (gpu(3), gpu(2))
    store.lose(kept)
    west.claim_all()
    told = west.lease(LAB, A100)
    assert (told.held, told.target, told.version > planned.version) == (gpu(3), gpu(3), True)


def test_a_lost_session_comes_back_with_its_claims(ledger, west, store):
    kept = store.keep()
    east = HandMesh(ledger, record("east"))
    ask(east, 2)
    store.lose(kept)
    east.claim_all()
    assert gpus(ledger, LAB) == 2
    assert [view.incarnation for view in ledger.snapshot().meshes if view.record.mesh == "east"] == [east.session.incarnation]


def test_a_lost_release_is_not_held_any_more_after_the_mesh_has_spoken(ledger, west, store):
    ask(west, 3)
    kept = store.keep()
    west.release(LAB, A100)
    store.lose(kept)
    assert gpus(ledger, LAB) == 3
    west.claim_all()
    assert gpus(ledger, LAB) == 0


def given_back(west) -> Lease:
    """A lease as it was before the mesh gave it back."""
    ask(west, 4)
    lease = west.lease(LAB, A100)
    west.release(LAB, A100)
    return lease


def claim(mesh, *leases) -> None:
    mesh.leases = {(lease.tenant, lease.flavor): lease for lease in leases}
    mesh.claim_all()


def test_an_old_receipt_brings_nothing_back_that_the_ledger_has_seen_given_back(ledger, west, east, store):
    old = given_back(west)
    ask(east, 8)
    store.restart()
    claim(west, old)
    claim(west, old)
    assert (gpus(ledger, ACME), ledger.audit()) == (8, ())


def test_nor_does_it_in_a_later_session_or_after_the_last_one_has_left(ledger, west, store):
    old = given_back(west)
    again = HandMesh(ledger, record("west"))
    store.restart()
    claim(again, old)
    assert gpus(ledger, LAB) == 0
    again.leave()
    claim(again, old)
    claim(again, old)
    assert gpus(ledger, LAB) == 0


def test_nor_after_something_was_given_back_while_the_ledger_learns(ledger, west, store):
    old = given_back(west)
    ask(west, tenant=SHOP)
    store.restart()
    claim(west, west.lease(SHOP, A100))
    west.release(SHOP, A100)
    claim(west, old)
    assert gpus(ledger, ACME) == 0


def test_what_was_lost_comes_back_whatever_was_changed_since_the_ledger_learns(ledger, west, store):
    ask(west, 1, SHOP)
    kept = store.keep()
    ask(west, 3)
    lost = west.lease(LAB, A100)
    store.lose(kept)
    ledger.revoke(tenant=SHOP)
    store.restart()
    claim(west, west.lease(SHOP, A100), lost)
    assert gpus(ledger, LAB) == 3


def test_what_an_heir_took_over_comes_back_when_all_is_lost(ledger, west, store):
    kept = store.keep()
    east = HandMesh(ledger, record("east"))
    ask(east, 2)
    heir = HandMesh(ledger, record("east"), adopt=east.session.incarnation)
    store.lose(kept)
    heir.claim_all()
    heir.claim_all()
    assert gpus(ledger, LAB) == 2


def test_what_comes_back_may_exceed_the_quota_and_then_nothing_grows(ledger, west, east, store):
    ask(west, 5)
    kept = store.keep()
    west.release(LAB, A100)
    ask(east, 6)
    store.lose(kept)
    east.claim_all()
    assert gpus(ledger, ACME) == 11
    store.advance(store.ttl_ms)
    east.claim_all()
    assert ask(east).reason is Reason.LEDGER_LEARNING
    store.advance(store.grace_ms + 1)
    east.claim_all()
    ledger.sweep()
    assert (gpus(ledger, ACME), ask(east, 5).slots) == (6, 2)


def test_tokens_do_not_repeat_after_lost_writes(ledger, west, store):
    kept = store.keep()
    ask(west)
    lost = west.lease(LAB, A100).token
    store.lose(kept)
    west.leases.clear()
    west.claim_all()
    store.advance(store.ttl_ms)
    west.claim_all()
    store.advance(store.grace_ms + 1)
    west.claim_all()
    ask(west)
    assert west.lease(LAB, A100).token > lost


def test_a_token_that_the_ledger_has_not_given_out_proves_lost_writes(ledger, west, store):
    ahead = replace(west.session, mark=west.session.incarnation + 30_000_000)
    if store.believes_tokens:
        with pytest.raises(EpochChanged):
            ledger.heartbeat(ahead, record(), Beat(number=1))
        assert ledger.snapshot().learn_ms > 0
    else:
        ledger.heartbeat(ahead, record(), Beat(number=1))
        HandMesh(ledger, record(), seen=ahead.mark)
        assert ledger.snapshot().learn_ms == 0


def test_a_clock_that_is_set_back_begins_an_epoch(ledger, west, store):
    ask(west, 2)
    store.advance(-60_000)
    with pytest.raises(EpochChanged):
        west.beat()
    west.claim_all()
    assert ask(west).reason is Reason.LEDGER_LEARNING


def test_a_claim_that_the_root_has_not_signed_is_refused(ledger, west, store):
    ask(west, 1)
    store.restart()
    west.claim_all()
    if west.lease(LAB, A100).receipt:
        larger = replace(west.lease(LAB, A100), held=gpu(8))
        with pytest.raises(ForgedReceipt):
            west.beat(claims=(larger,))
    assert gpus(ledger, LAB) == 1


# ---- the lease clock


@pytest.fixture
def careful(careful_store):
    careful_store.ledger.configure(tree())
    return careful_store


def test_a_clock_that_leaps_ahead_ends_no_session(careful):
    west = HandMesh(careful.ledger, record())
    ask(west, 2)
    for _ in range(2):
        careful.advance(3_600_000)
        assert careful.ledger.sweep().meshes == ()
    west.beat()
    assert gpus(careful.ledger, LAB) == 2


def test_a_second_leap_within_one_time_to_live_counts_for_nothing(careful):
    west = HandMesh(careful.ledger, record())
    for _ in range(1_000):
        careful.advance(3_000)
        careful.ledger.sweep()
    west.beat()
    assert [view.alive for view in careful.ledger.snapshot().meshes] == [True]


def test_steady_time_counts_in_full(careful):
    HandMesh(careful.ledger, record())
    for _ in range((careful.ttl_ms + careful.grace_ms) // 1_900):
        careful.advance(1_900)
        careful.ledger.sweep()
    careful.advance(1_900)
    careful.ledger.sweep()
    assert [view.alive for view in careful.ledger.snapshot().meshes] == [False]


# ---- tenants and configuration


def test_a_tenant_that_is_not_there_is_refused_by_name(west):
    assert ask(west, tenant=TenantPath("acme/lap")) == LeaseRefused(
        reason=Reason.TENANT_UNKNOWN, tenant=TenantPath("acme/lap"), flavor=A100
    )


def test_a_cut_takes_nothing_and_grants_nothing_until_use_has_fallen(ledger, west):
    ask(west, 6)
    assert ledger.configure(tree(lab=2, shop=2)).over == (f"{ACME}|{A100}|gpu",)
    assert gpus(ledger, LAB) == 6
    assert ask(west).available == 0
    west.release(LAB, A100, gpu(3))
    assert ask(west, 9).slots == 1


def test_what_a_tenant_keeps_is_its_own_whatever_deficit_a_cut_has_left_above_it(store):
    """To be granted, to be planned, and to grow; what it does not keep has to wait."""
    store.ledger.configure(tree(lab=4, shop=4, shop_lends=1))
    west, east = HandMesh(store.ledger, record("west")), HandMesh(store.ledger, record("east"))
    ask(west, 4)
    store.ledger.configure(tree(lab=0, shop=4, shop_lends=1))
    assert ask(east, 2, SHOP) == Granted(slots=2)
    aim(store.ledger, ("east", SHOP, 3))
    east.beat()
    assert east.lease(SHOP, A100).held == gpu(3)
    assert ask(east, 1, SHOP).available == 0
    with pytest.raises(QuotaExceeded):
        aim(store.ledger, ("east", SHOP, 4))
    assert (gpus(store.ledger, SHOP), gpus(store.ledger, ACME)) == (3, 4)


def test_configuring_the_same_tree_again_changes_nothing_but_the_version(ledger, west):
    ask(west, 6)
    before = ledger.snapshot()
    assert ledger.configure(tree()).version == before.version + 1
    after = ledger.snapshot()
    assert (after.usage, after.tree, after.leases) == (before.usage, before.tree, before.leases)


def test_a_tree_replaces_only_the_one_that_it_was_made_from(ledger):
    version = ledger.snapshot().version
    ledger.configure(tree(lab=5), expected=version)
    with pytest.raises(TreeChanged):
        ledger.configure(tree(lab=6), expected=version)
    assert ledger.snapshot().tree == tree(lab=5)


def test_a_raised_lending_limit_moves_the_charge(store):
    store.ledger.configure(tree(shop_lends=0))
    ask(HandMesh(store.ledger, record()), 4, SHOP)
    assert gpus(store.ledger, ACME) == 0
    store.ledger.configure(tree(shop_lends=3))
    assert gpus(store.ledger, ACME) == 3


def test_a_vanished_tenant_keeps_its_row_while_it_is_charged(ledger, west):
    ask(west, 3)
    ledger.configure(TenantTree([tree().tenant(ACME), tree().tenant(SHOP)]))
    snapshot = ledger.snapshot()
    assert snapshot.usage == {(LAB, A100, "gpu"): 30_000, (ACME, A100, "gpu"): 30_000}
    assert snapshot.tree.tenant(LAB).quotas == {(A100, "gpu"): Quota(borrowing_limit=0)}
    assert ask(west).reason is Reason.TENANT_UNKNOWN
    assert ask(west, 9, SHOP).slots == 1
    west.release(LAB, A100)
    assert list(ledger.snapshot().tree.tenants) == [ACME, SHOP]


def test_a_tenant_that_was_promised_something_when_it_vanished_is_still_told(ledger, west):
    ask(west, 8, SHOP)
    aim(ledger, ("west", SHOP, 6), ("west", LAB, 2))
    ledger.configure(TenantTree([Tenant(path=ACME, parent=None), Tenant(path=SHOP, parent=ACME)]))
    seen = ledger.snapshot()
    assert LAB in [lease.tenant for lease in seen.leases]
    assert LAB in seen.tree.tenants
    assert ledger.audit() == ()


def test_a_whole_branch_may_vanish_while_it_is_charged(ledger, west):
    ask(west, 3)
    other = TenantPath("other")
    ledger.configure(TenantTree([Tenant(path=other, parent=None)]))
    ledger.configure(TenantTree([Tenant(path=other, parent=None)]))
    snapshot = ledger.snapshot()
    assert snapshot.usage == {(LAB, A100, "gpu"): 30_000, (ACME, A100, "gpu"): 30_000}
    assert list(snapshot.tree.tenants) == [ACME, LAB, other]
    west.leave()
    assert ledger.snapshot().usage == {}


def test_a_tenant_moves_under_another_parent_with_what_it_holds(ledger, west):
    ask(west, 3)
    version = ledger.snapshot().version
    with pytest.raises(TenantCycle):
        ledger.reparent(ACME, LAB, expected=version)
    with pytest.raises(UnknownTenant):
        ledger.reparent(LAB, TenantPath("nobody"), expected=version)
    with pytest.raises(TreeChanged):
        ledger.reparent(LAB, SHOP, expected=version + 1)
    ledger.reparent(LAB, SHOP, expected=version)
    assert (gpus(ledger, LAB), gpus(ledger, SHOP), gpus(ledger, ACME)) == (3, 3, 3)
    assert ledger.snapshot().tree.tenant(LAB).parent == SHOP


def test_a_move_that_leaves_a_node_over_its_limits_needs_force(ledger, west):
    ask(west, 8)
    version = ledger.snapshot().version
    with pytest.raises(QuotaExceeded):
        ledger.reparent(SHOP, None, expected=version)
    assert ledger.snapshot().version == version
    assert ledger.reparent(SHOP, None, expected=version, force=True).over == (f"{ACME}|{A100}|gpu",)


# ---- looking


def test_the_snapshot_gives_back_the_tree_the_records_and_the_leases(ledger, west, store):
    ask(west, 2, priority=4)
    west.record = replace(record(), draining=True, tenants=("acme",))
    store.advance(5_000)
    west.beat()
    store.advance(30_000)
    snapshot = ledger.snapshot()
    assert snapshot.tree == tree()
    (view,) = snapshot.meshes
    assert (view.record, view.incarnation, view.alive) == (west.record, west.session.incarnation, True)
    assert 30_000 <= view.heartbeat_age_ms < 60_000
    (held,) = snapshot.leases
    assert (held.lease, held.amounts, held.target, held.priority) == ("west:acme/lab:a100", gpu(2), gpu(2), 4)
    assert (held.token, held.version) == (west.lease(LAB, A100).token, west.lease(LAB, A100).version)
    assert snapshot.tree.recompute(snapshot.leases) == snapshot.usage
    assert (snapshot.epoch, snapshot.learn_ms) == (west.session.epoch, 0)


def test_an_empty_ledger_has_an_empty_snapshot(store):
    snapshot = store.ledger.snapshot()
    assert (snapshot.usage, snapshot.meshes, snapshot.leases, list(snapshot.tree.tenants)) == ({}, (), (), [])


def test_the_story_of_a_lease_tells_every_change_of_it(ledger, west, east):
    ask(west, 2)
    ask(east, 1, SHOP)
    ledger.revoke(mesh=MeshId("west"))
    west.beat()
    west.obey(LAB, A100)
    assert [(chapter.verb, chapter.lease.held) for chapter in ledger.story(mesh=MeshId("west"))] == [
        ("grant", gpu(2)),
        ("revoke", gpu(2)),
        ("shrink", gpu(0)),
    ]
    assert [chapter.verb for chapter in ledger.story(tenant=SHOP)] == ["grant"]
    assert len(ledger.story(limit=1)) == 1


def test_the_story_tells_of_epochs(ledger, west, store):
    store.restart()
    west.claim_all()
    (chapter,) = ledger.story()
    assert (chapter.verb, chapter.lease) == ("epoch", None)
    assert "restarted" in chapter.why


def test_an_audit_of_a_sound_ledger_finds_nothing(ledger, west, east):
    ask(west, 5)
    ask(east, 2, SHOP)
    west.release(LAB, A100, gpu(1))
    assert ledger.audit() == ()


def test_names_may_hold_what_a_pattern_would_take_for_a_command(store):
    key = (FlavorName("a-100.%d"), "node:10.0.0.1")
    path = TenantPath('%s "x"/ü')
    store.ledger.configure(TenantTree([Tenant(path=path, parent=None, quotas={key: Quota(nominal=5)})]))
    mesh = HandMesh(store.ledger, record("m%s"))
    assert mesh.acquire(path, key[0], ResourceSet({key[1]: 2}), 9).slots == 2
    assert store.ledger.snapshot().usage == {(path, *key): 4}
    assert mesh.lease(path, key[0]).held == ResourceSet({key[1]: 4})


# ---- Redis only


def redis_ledger(client, shard="contract", **told) -> RedisLedger:
    return RedisLedger(client, Keys(shard), terms=TERMS, founding=True, **told)


def test_a_server_that_does_not_answer_is_told_as_such(tmp_path):
    ledger = redis_ledger(connect(f"unix://{tmp_path}/nobody.sock", timeout_ms=100))
    with pytest.raises(StoreUnavailable, match="sweep"):
        ledger.sweep()


def test_a_server_that_lost_its_scripts_is_given_them_again(redis_server: redis.Redis):
    ledger = redis_ledger(redis_server)
    ledger.configure(tree())
    west = HandMesh(ledger, record())
    assert ask(west).slots == 1
    redis_server.script_flush()
    assert ask(west).slots == 1


def test_a_ledger_that_may_have_had_holders_learns_when_it_is_founded(redis_server: redis.Redis):
    ledger = RedisLedger(redis_server, Keys("contract"), terms=TERMS)
    ledger.configure(tree())
    assert ask(HandMesh(ledger, record())).reason is Reason.LEDGER_LEARNING


def test_an_empty_server_is_told_what_is_held_when_the_ledger_has_an_id_that_lasts(redis_server: redis.Redis):
    ledger = RedisLedger(redis_server, Keys("contract"), terms=TERMS, uid="ours", founding=False)
    founder = RedisLedger(redis_server, Keys("contract"), terms=TERMS, uid="ours", founding=True)
    founder.configure(tree())
    west = HandMesh(ledger, record())
    ask(west, 3)
    redis_server.flushall()
    west.ledger = ledger
    west.claim_all()
    ledger.configure(tree())
    assert gpus(ledger, LAB) == 3
    assert ledger.audit() == ()


@pytest.fixture(params=["redis_server", "newer_redis_process"], ids=["scripts", "functions"])
def filling(request: pytest.FixtureRequest) -> Iterator[redis.Redis]:
    """A server, whose memory a test may let be full; by scripts, and by functions where it has them."""
    client = request.getfixturevalue(request.param)
    client.flushall()
    yield client
    client.config_set("maxmemory", 0)


def test_a_server_without_memory_left_grants_nothing_and_still_renews_and_takes_back(filling: redis.Redis):
    ledger, queue = redis_ledger(filling), RedisStageQueue(filling, Keys("contract"))
    ledger.configure(tree())
    west = HandMesh(ledger, record())
    ask(west, 4)
    stages = [StageSpec(stage=StageId(f"s{each}"), run=RunId("r"), tenant=LAB, tasks=(), slot=ONE_GPU, width=1) for each in range(4)]
    for stage in stages[:3]:
        queue.submit(MeshId("west"), stage)
    claimed = queue.claim(west.session, StageId("s0"), west.lease(LAB, A100))
    assert claimed is not None
    filling.config_set("maxmemory", 1)
    for grows in (
        lambda: ask(west, 1),
        lambda: HandMesh(ledger, record("east")),
        lambda: queue.submit(MeshId("west"), stages[3]),
        lambda: queue.claim(west.session, StageId("s1"), west.lease(LAB, A100)),
        lambda: queue.deliver(StageId("s0"), NodeId("n"), None),
        lambda: queue.report(claimed.claim, 1, (StageEnded(stage=StageId("s0")),)),
    ):
        with pytest.raises(StoreUnavailable, match="cannot serve now"):
            grows()
    west.beat()
    west.beat(wants=())
    west.release(LAB, A100, gpu(1))
    assert gpus(ledger, LAB) == 1
    assert ledger.elect("planner", 1_000) is not None
    queue.cancel(StageId("s1"))
    assert [stage.stage for stage in queue.waiting(MeshId("west"))] == ["s2"]
    assert [stage.spec.stage for stage in queue.claims_of(west.session)] == ["s0"]
    queue.forget(RunId("r"), (MeshId("west"),))
    assert (queue.waiting(MeshId("west")), queue.take_back_overdue(), queue.orphans()) == ((), (), ())
    assert ledger.revoke(tenant=LAB) == 1
    ledger.sweep()
    west.leave()
    assert ledger.snapshot().usage == {}


def test_a_key_that_is_not_ours_is_garbage_and_not_an_outage(redis_server: redis.Redis):
    ledger = redis_ledger(redis_server)
    ledger.sweep()
    redis_server.set(Keys("contract").due, "not a sorted set")
    with pytest.raises(RuntimeDoorError) as broken:
        ledger.sweep()
    assert not isinstance(broken.value, StoreUnavailable)


def test_an_audit_names_a_node_whose_sum_was_tampered_with(redis_server: redis.Redis):
    ledger = redis_ledger(redis_server)
    ledger.configure(tree())
    ask(HandMesh(ledger, record()), 2)
    redis_server.hset(Keys("contract").tree, f"use|{ACME}|{A100}", "gpu|10000|20000")
    (mismatch,) = ledger.audit()
    assert (mismatch.tenant, mismatch.kept, mismatch.counted) == (ACME, 10_000, 20_000)


def test_shards_do_not_see_each_other(redis_server: redis.Redis):
    one, two = redis_ledger(redis_server, "one"), redis_ledger(redis_server, "two")
    for ledger in (one, two):
        ledger.configure(tree())
        assert ask(HandMesh(ledger, record()), 8).slots == 8


def test_the_log_is_bounded_by_changes_and_not_by_calls(redis_server: redis.Redis):
    ledger = RedisLedger(redis_server, Keys("log"), terms=TERMS, founding=True)
    teams = [TenantPath(f"acme/t{number}") for number in range(23)]
    ledger.configure(TenantTree([tree(own=23).tenants[ACME], *(Tenant(path=path, parent=ACME) for path in teams)]))
    west = HandMesh(ledger, record())
    ledger.acquire(west.session, tuple(Want(tenant=path, flavor=A100, slot=ONE_GPU, slots=1) for path in teams))
    entries = redis_server.xrange(Keys("log").lease_log)
    assert max(len(fields[b"changes"].splitlines()) for _, fields in entries) <= 5
    assert [chapter.lease.tenant for chapter in ledger.story()] == teams


def test_of_what_earlier_sessions_held_no_mark_is_left(redis_server: redis.Redis):
    store = redis_store(redis_server)
    store.ledger.configure(tree())
    for _ in range(3):
        ask(HandMesh(store.ledger, record()))
    store.advance(store.ttl_ms + store.grace_ms + 1)
    store.ledger.sweep()
    assert {name.split(b"|")[0] for name in redis_server.hkeys(Keys("contract").marks)} == {b"west"}


def test_every_key_of_a_shard_has_its_hash_tag(redis_server: redis.Redis):
    ledger = redis_ledger(redis_server)
    ledger.configure(tree())
    ask(HandMesh(ledger, record()), 9)
    assert all(key.startswith(b"{q:contract}:") for key in redis_server.keys("*"))


def test_a_session_never_given_out_by_anybody_is_of_no_use(ledger):
    made_up = Session(mesh=MeshId("west"), incarnation=7, ttl_ms=1)
    with pytest.raises(ForeignLedger):
        ledger.heartbeat(made_up, record(), Beat(number=1))


def test_a_lease_for_people_has_a_name(west):
    ask(west)
    assert isinstance(west.lease(LAB, A100), Lease)
    assert west.lease(LAB, A100).lease == "west:acme/lab:a100"


@pytest.fixture(params=list(servers()))
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Server, Server]]:
    """A master, and a replica that follows it."""
    binary = servers()[request.param]
    master = Server(tmp_path / "master", binary=binary, repl_diskless_sync_delay="0")
    replica = Server(tmp_path / "replica", binary=binary, replicaof=f"127.0.0.1 {master.port}")
    eventually(lambda: replica.client.info("replication")["master_link_status"] == "up")
    yield master, replica
    replica.close()
    master.close()


def test_a_grant_is_told_when_a_replica_has_it(pair: tuple[Server, Server]):
    master, replica = pair
    keys = Keys("contract")
    ledger = RedisLedger(connect(master.url, timeout_ms=30_000), keys, terms=TERMS, founding=True, copy_wait_ms=20_000)
    ledger.configure(tree())
    west = HandMesh(ledger, record())
    leases = keys.leases(west.record.mesh)
    replica.freeze()
    with ThreadPoolExecutor(max_workers=1) as apart:
        answer = apart.submit(ask, west)
        eventually(lambda: master.client.hlen(leases) == 1)
        assert not answer.done()
        replica.thaw()
        assert answer.result(30) == Granted(slots=1)
    assert replica.client.hgetall(leases) == master.client.hgetall(leases)


def test_a_grant_that_no_replica_has_in_time_stands(pair: tuple[Server, Server]):
    master, replica = pair
    ledger = RedisLedger(master.client, Keys("contract"), terms=TERMS, founding=True, copy_wait_ms=1)
    ledger.configure(tree())
    west = HandMesh(ledger, record())
    replica.freeze()
    assert ask(west) == Granted(slots=1)
    assert gpus(ledger, LAB) == 1
    replica.kill()
    assert ask(west) == Granted(slots=1)
    assert gpus(ledger, LAB) == 2
