"""Contract of stage queues, on memory and a real Redis."""

import threading
from dataclasses import replace

import pytest
import redis
from ledger_stores import redis_store

from federation.dispatch import RESUMED_MAX, STAGE_MESSAGES, Claim, ClaimStatus, HeldClaim, Notification, NotificationKind, digest_of
from federation.errors import (
    BatchTooLarge,
    EarlierReportsLost,
    EpochChanged,
    LeaseLost,
    LedgerRecovering,
    SessionLost,
    StaleFence,
    TooManyClaims,
)
from federation.leases import LeaseTerms
from federation.manual_mesh import ManualMesh
from federation.snapshot import MeshRecord
from federation.store.redis.keys import Keys
from federation.store.redis.ledger import RedisLedger
from federation.store.redis.queue import RedisStageQueue
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.ids import FlavorName, MeshId, NodeId, RunId, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.values import Encoding, StoredValue
from mesh.core.wire import decode
from mesh.errors import MeshError
from mesh.preemption.stage_preemption import PreemptionPolicy
from mesh.stages.call_shapes import Shape
from mesh.stages.calls import Calls, numbers
from mesh.stages.messages import (
    Failure,
    InputLost,
    NodeFailed,
    NodeStarted,
    NodeSucceeded,
    StageEnded,
    StageLost,
    StageStarted,
    StageWaiting,
)
from mesh.stages.spec import StageSpec, StageTasks, TaskKind, TaskSpec

CPU, LAB, RUN = FlavorName("cpu"), TenantPath("lab"), RunId("run-1")
WEST, EAST = MeshId("west"), MeshId("east")
ONE, TWO, THREE = StageId("run-1/s1"), StageId("run-1/s2"), StageId("run-1/s3")
SLOT = ResourceSet.of({"cpu": 1, "memory": "1GiB"})
VALUE = StoredValue(sha256="ab" * 32, size_bytes=3, encoding=Encoding.JSON, uri="file:///x")


def spec(stage=ONE, *, run=RUN, priority=0) -> StageSpec:
    task = TaskSpec(
        node=NodeId("a"), attempt=1, function="call:m:f", args=({"$tuple": [1, None]}, "ü"), resources=SLOT, ray_options={"max_retries": 0}
    )
    return StageSpec(
        stage=stage,
        run=run,
        tenant=LAB,
        tasks=(task,),
        slot=SLOT,
        width=2,
        priority=priority,
        created_ms=1_700_000_000_000,
        preemption=PreemptionPolicy(takes=True, takes_newer=True, min_run_ms=7, flavors=("spot", "standard"), in_order=True),
        runtime_env={"env_vars": {}},
    )


def record(mesh) -> MeshRecord:
    return MeshRecord(mesh=MeshId(mesh), labels={}, pools=(), cluster="c")


@pytest.fixture
def west(store) -> ManualMesh:
    quotas = {(CPU, "cpu"): Quota(nominal=100_000), (CPU, "memory"): Quota(nominal=10 * 2**30)}
    store.ledger.configure(TenantTree([Tenant(path=LAB, parent=None, quotas=quotas)]))
    return ManualMesh(store.ledger, record(WEST))


def pay(mesh, slots=1):
    """Acquire more of the lease that pays for stages."""
    mesh.acquire(LAB, CPU, SLOT, slots)
    return mesh.lease(LAB, CPU)


def take(store, mesh, stage=ONE):
    """Claim the stage under the known lease."""
    return store.queue.claim(mesh.session, stage, mesh.lease(LAB, CPU))


def claimed(store, mesh, stage=ONE) -> Claim:
    """Submit, pay for and claim a stage."""
    store.queue.submit(mesh.record.mesh, spec(stage))
    pay(mesh)
    return take(store, mesh, stage).claim


def inbox(store):
    """Drain the inbox and return its messages about stages, in order."""
    entries = store.queue.inbox(0)
    store.queue.acknowledge(tuple(entry.entry for entry in entries))
    assert all(entry.kind == "stage" and entry.run == RUN for entry in entries)
    return [message for entry in entries for message in decode(STAGE_MESSAGES, entry.body)]


def started(claim) -> StageStarted:
    return StageStarted(stage=claim.stage, mesh=claim.mesh, incarnation=claim.incarnation, cluster="c", slots=1, token=claim.token)


# ---- submit and wait


def test_submitting_twice_queues_once(store):
    assert store.queue.submit(WEST, spec()) is True
    assert store.queue.submit(WEST, spec()) is False
    assert store.queue.submit(EAST, spec()) is False
    assert [queued.stage for queued in store.queue.waiting(WEST)] == [ONE]
    assert store.queue.waiting(EAST) == ()


def test_queued_stage_carries_what_a_mesh_must_know(store):
    store.queue.submit(WEST, spec(priority=7))
    (queued,) = store.queue.waiting(WEST)
    assert (queued.stage, queued.run, queued.tenant, queued.width, queued.priority) == (ONE, RUN, LAB, 2, 7)
    assert queued.slot == ResourceSet({"cpu": 10_000, "memory": 2**30})
    assert queued.created_ms == 1_700_000_000_000
    assert queued.preemption == spec().preemption
    assert queued.reason is Reason.WAITING_IN_QUEUE


def test_queued_stage_keeps_when_it_was_queued(store):
    store.queue.submit(WEST, spec())
    store.advance(1_500)
    store.queue.submit(WEST, spec(TWO))
    first, second = store.queue.waiting(WEST)
    assert second.queued_ms - first.queued_ms >= 1_500
    heads = store.queue.heads_of(WEST, (ONE, TWO))
    assert heads == (first, second)
    (now_ms,) = {head.queued_ms + head.waited_ms for head in heads}  # A mesh reads the store's clock from it.
    assert now_ms >= second.queued_ms


def test_mesh_is_notified_of_changed_settings(store):
    cursor, _ = store.queue.notifications(WEST, "", 0)
    store.queue.notify(WEST, NotificationKind.SETTINGS)
    assert store.queue.notifications(WEST, cursor, 0)[1] == (Notification(kind=NotificationKind.SETTINGS, subject=""),)


def test_higher_priority_goes_first_then_earlier_arrival(store):
    order = [(StageId("s-z"), 0), (StageId("s-b"), 5), (StageId("s-a"), 0), (StageId("s-y"), 5), (StageId("s-c"), -3)]
    for stage, priority in order:
        store.queue.submit(WEST, spec(stage, priority=priority))
    assert [queued.stage for queued in store.queue.waiting(WEST)] == ["s-b", "s-y", "s-z", "s-a", "s-c"]
    assert [queued.stage for queued in store.queue.waiting(WEST, limit=2)] == ["s-b", "s-y"]


def test_queue_lists_all_names_in_order_and_requested_specs(store, west):
    for stage, priority in ((ONE, 0), (TWO, 5), (THREE, 0)):
        store.queue.submit(WEST, spec(stage, priority=priority))
    assert (store.queue.queued(WEST), store.queue.queued(EAST)) == ((TWO, ONE, THREE), ())
    assert store.queue.heads_of(WEST, (THREE, TWO)) == tuple(
        queued for stage in (THREE, TWO) for queued in store.queue.waiting(WEST) if queued.stage == stage
    )
    pay(west)
    take(store, west, ONE)
    store.queue.cancel(TWO)
    store.queue.explain(west.session, (THREE,), Reason.POOL_BUSY, "full")
    assert store.queue.queued(WEST) == (THREE,)
    assert [queued.reason for queued in store.queue.heads_of(WEST, (ONE, TWO, THREE, StageId("ghost")))] == [Reason.POOL_BUSY]


def test_mesh_sees_nothing_queued_elsewhere(store):
    store.queue.submit(WEST, spec())
    assert store.queue.heads_of(EAST, (ONE,)) == ()


def test_changed_reason_is_reported_once(store, west):
    store.queue.submit(WEST, spec())
    store.queue.explain(west.session, (ONE,), Reason.QUOTA_EXHAUSTED, "1 CPU short")
    store.queue.explain(west.session, (ONE,), Reason.QUOTA_EXHAUSTED, "2 CPU short")
    store.queue.explain(west.session, (ONE,), Reason.POOL_BUSY, "full")
    assert store.queue.waiting(WEST)[0].reason is Reason.POOL_BUSY
    assert inbox(store) == [
        StageWaiting(stage=ONE, reason=Reason.QUOTA_EXHAUSTED, detail="1 CPU short"),
        StageWaiting(stage=ONE, reason=Reason.POOL_BUSY, detail="full"),
    ]


def test_stages_with_one_reason_are_explained_together(store, west):
    for stage in (ONE, TWO):
        store.queue.submit(WEST, spec(stage))
    store.queue.explain(west.session, (TWO,), Reason.POOL_BUSY, "full")
    store.queue.explain(west.session, (ONE, StageId("ghost"), TWO), Reason.POOL_BUSY, "still full")
    assert [(message.stage, message.detail) for message in inbox(store)] == [(TWO, "full"), (ONE, "still full")]


def test_only_the_queueing_mesh_explains_a_stage(store, west):
    east = ManualMesh(store.ledger, record(EAST))
    claimed(store, west)
    store.queue.submit(WEST, spec(TWO))
    store.queue.explain(west.session, (ONE,), Reason.POOL_BUSY, "")
    store.queue.explain(east.session, (TWO,), Reason.POOL_BUSY, "")
    store.queue.explain(west.session, (THREE,), Reason.POOL_BUSY, "")
    west.leave()
    store.queue.explain(west.session, (TWO,), Reason.POOL_BUSY, "")
    assert [message for message in inbox(store) if isinstance(message, StageWaiting)] == []


# ---- claim


@pytest.mark.every_form
def test_a_claim_brings_the_spec_and_the_inputs_so_far(store, west):
    store.queue.submit(WEST, spec())
    store.queue.deliver(ONE, NodeId("x"), VALUE)
    lease = pay(west)
    taken = take(store, west, ONE)
    assert taken.spec == spec()
    assert (taken.inputs, taken.cancelled) == ({"x": VALUE}, False)
    assert (taken.claim.stage, taken.claim.mesh, taken.claim.incarnation) == (ONE, WEST, west.session.incarnation)
    assert taken.claim.token > lease.token
    assert store.queue.waiting(WEST) == ()


def test_the_same_session_claims_the_same_again(store, west):
    claim = claimed(store, west)
    assert take(store, west, ONE).claim == claim


def test_a_stage_of_another_mesh_cannot_be_claimed(store, west):
    east = ManualMesh(store.ledger, record(EAST))
    pay(east)
    store.queue.submit(WEST, spec())
    assert take(store, east, ONE) is None
    assert take(store, east, StageId("nobody knows it")) is None


def test_a_claim_needs_the_lease_that_pays_as_the_ledger_has_it(store, west):
    store.queue.submit(WEST, spec())
    lease = pay(west)
    for payer in (None, replace(lease, token=lease.token + 1), replace(lease, flavor=FlavorName("another"))):
        with pytest.raises(LeaseLost):
            store.queue.claim(west.session, ONE, payer)
    assert [queued.stage for queued in store.queue.waiting(WEST)] == [ONE]


def test_a_stage_that_takes_nothing_needs_no_lease(store, west):
    store.queue.submit(WEST, replace(spec(), slot=ResourceSet()))
    assert store.queue.claim(west.session, ONE, None) is not None


def test_one_lease_pays_for_many_stages(store, west):
    first, second = claimed(store, west, ONE), claimed(store, west, TWO)
    assert first.token < second.token


def test_no_claim_in_an_earlier_epoch_or_while_recovering(store, west):
    store.queue.submit(WEST, spec())
    store.queue.submit(WEST, spec(TWO))
    pay(west)
    before = take(store, west)
    store.restart()
    with pytest.raises(EpochChanged):
        take(store, west)
    west.claim_all()
    with pytest.raises(LedgerRecovering):
        take(store, west, TWO)
    assert take(store, west) == before
    store.queue.report(before.claim, 1, (StageEnded(stage=ONE),))
    assert inbox(store) == [StageEnded(stage=ONE)]


def test_hard_revoke_fences_claims_but_accepts_their_loss(store, west):
    claim = claimed(store, west)
    store.ledger.revoke(tenant=LAB, hard=True)
    with pytest.raises(StaleFence):
        store.queue.report(claim, 1, (StageEnded(stage=ONE),))
    lost = StageLost(stage=ONE, mesh=WEST, incarnation=claim.incarnation, reason=Reason.QUOTA_RECLAIMED)
    store.queue.report(claim, 1, (lost,))
    assert inbox(store) == [lost]


def test_a_session_that_has_run_out_may_not_claim(store, west):
    store.queue.submit(WEST, spec())
    pay(west)
    store.advance(store.ttl_ms + 1)
    with pytest.raises(SessionLost):
        take(store, west, ONE)
    west.heartbeat()
    assert take(store, west, ONE) is not None


def test_later_of_two_sessions_of_a_mesh_wins(store, west):
    store.queue.submit(WEST, spec())
    pay(west)
    later = ManualMesh(store.ledger, record(WEST))
    pay(later)
    with pytest.raises(SessionLost):
        take(store, west, ONE)
    assert take(store, later, ONE).claim.incarnation == later.session.incarnation


def test_racing_claims_of_one_session_are_one_claim(store, west):
    store.queue.submit(WEST, spec())
    pay(west)
    tokens: list[int] = []
    threads = [threading.Thread(target=lambda: tokens.append(take(store, west, ONE).claim.token)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tokens) == 4
    assert len(set(tokens)) == 1


def test_claims_of_returns_current_claims(store, west):
    first, second = claimed(store, west, ONE), claimed(store, west, TWO)
    store.queue.deliver(TWO, NodeId("x"), None)
    store.queue.cancel(TWO)
    now = store.queue.claims_of(west.session)
    assert [(held.claim, held.inputs, held.cancelled) for held in now] == [(first, {}, False), (second, {"x": None}, True)]
    store.queue.report(first, 1, (StageEnded(stage=ONE),))
    assert [held.claim for held in store.queue.claims_of(west.session)] == [second]
    west.leave()
    assert store.queue.claims_of(west.session) == ()


def test_claims_of_skips_a_damaged_stage(store, west):
    first = claimed(store, west, ONE)
    one = numbers((0,))
    calls = Calls((NodeId("a"),), ("call:m:f",), (Shape((), {}),), function=one, shape=one, kind=one, inputs=numbers(()))
    damaged = StageTasks(calls, (TaskKind(),), attempts={}, exported=frozenset(), checkpoints={}, text="damaged")
    store.queue.submit(WEST, replace(spec(TWO), tasks=damaged))
    pay(west)
    with pytest.raises(MeshError):
        take(store, west, TWO)
    assert [held.claim for held in store.queue.claims_of(west.session)] == [first]


# ---- report


@pytest.mark.every_form
def test_every_message_reaches_the_inbox_as_it_was_said(store, west):
    claim = claimed(store, west)
    failure = Failure(reason=Reason.USER_ERROR, type_name="builtins.ValueError", message="nö", pickled=VALUE)
    said = (
        started(claim),
        NodeStarted(stage=ONE, node=NodeId("a"), attempt=1, started_ms=5),
        NodeSucceeded(stage=ONE, node=NodeId("a"), attempt=1, started_ms=5, finished_ms=6, worker="h:1", stored=VALUE),
        NodeFailed(stage=ONE, node=NodeId("b"), attempt=2, started_ms=5, finished_ms=6, failure=failure),
        InputLost(stage=ONE, node=NodeId("x")),
        StageEnded(stage=ONE),
    )
    store.queue.report(claim, 1, said)
    assert inbox(store) == list(said)


@pytest.mark.every_form
def test_batch_takes_effect_once(store, west):
    claim = claimed(store, west)
    store.queue.report(claim, 1, (started(claim),))
    store.queue.report(claim, 1, (started(claim),))
    store.queue.report(claim, 2, ())
    store.queue.report(claim, 2, (started(claim),))
    assert inbox(store) == [started(claim)]


def test_batch_after_a_lost_one_waits_until_that_is_resent(store, west):
    claim = claimed(store, west)
    first, second, third = (NodeStarted(stage=ONE, node=NodeId(node), attempt=1, started_ms=1) for node in "abc")
    taken = store.queue.report(claim, 1, (first,))
    before = store.keep()
    lost = store.queue.report(claim, 2, (second,), after=taken)
    store.lose(before)
    inbox(store)
    with pytest.raises(EarlierReportsLost):
        store.queue.report(claim, 3, (third,), after=lost)
    assert inbox(store) == []
    store.queue.report(claim, 1, (first,))
    assert store.queue.report(claim, 2, (second,), after=taken) == lost
    store.queue.report(claim, 3, (third,), after=lost)
    assert inbox(store) == [second, third]


def test_lost_end_is_resent_with_one_effect(store, west):
    claim = claimed(store, west)
    taken = store.queue.report(claim, 1, (started(claim),))
    before = store.keep()
    store.queue.report(claim, 2, (StageEnded(stage=ONE),), after=taken)
    store.lose(before)
    inbox(store)
    for _ in range(2):
        store.queue.report(claim, 1, (started(claim),))
        store.queue.report(claim, 2, (StageEnded(stage=ONE),))
    assert inbox(store) == [StageEnded(stage=ONE)]
    west.claim_all()
    assert store.queue.claims_of(west.session) == ()


# ---- claims that the store has lost


def held(claim, west, **but) -> HeldClaim:
    """Return the claim as an honest mesh reports it."""
    known = {"spec": digest_of(spec(claim.stage)), "lease": west.lease(LAB, CPU), "is_whole": True}
    return HeldClaim(claim=claim, **{**known, **but})


def lost_claim(store, west) -> Claim:
    """Return a claim that the recovering ledger has lost, after the mesh reported its leases."""
    store.queue.submit(WEST, spec())
    pay(west)
    before = store.keep()
    claim = take(store, west).claim
    store.advance(1)
    store.lose(before)
    inbox(store)
    west.claim_all()
    return claim


CURRENT, GONE, UNKNOWN = ClaimStatus(is_current=True), ClaimStatus(is_current=False), ClaimStatus(is_current=False, may_come=True)


def test_claim_that_was_not_lost_keeps_its_reports(store, west):
    claim = claimed(store, west)
    taken = store.queue.report(claim, 3, (started(claim),))
    assert store.queue.resume(west.session, (held(claim, west),)) == (ClaimStatus(is_current=True, batch=taken),)
    store.restart()
    west.claim_all()
    assert store.queue.resume(west.session, (held(claim, west),)) == (ClaimStatus(is_current=True, batch=taken),)


def test_lost_claim_is_restored_with_its_token_in_recovery(store, west):
    claim = lost_claim(store, west)
    assert store.queue.claims_of(west.session) == ()
    for _ in range(2):  # The first answer may be lost.
        assert store.queue.resume(west.session, (held(claim, west),)) == (CURRENT,)
    (again,) = store.queue.claims_of(west.session)
    assert (again.claim, again.spec, store.queue.queued(WEST)) == (claim, spec(), ())
    store.queue.report(claim, 1, (StageEnded(stage=ONE),))
    assert inbox(store) == [StageEnded(stage=ONE)]
    assert store.queue.claims_of(west.session) == ()


def test_restored_claim_counts_against_its_lease_until_its_end(store, west):
    claim = lost_claim(store, west)
    store.queue.resume(west.session, (held(claim, west),))
    store.advance(store.ttl_ms)
    west.claim_all()
    store.advance(store.grace_ms + 1)
    west.claim_all()
    for stage in (TWO, THREE):
        store.queue.submit(WEST, spec(stage))
    assert take(store, west, TWO) is not None
    with pytest.raises(TooManyClaims):
        take(store, west, THREE)
    store.queue.report(claim, 1, (StageEnded(stage=ONE),))
    assert take(store, west, THREE) is not None


def test_when_learning_is_over_nothing_is_claimed_again(store, west):
    claim = lost_claim(store, west)
    store.advance(store.ttl_ms)
    west.claim_all()
    store.advance(store.grace_ms + 1)
    west.claim_all()
    assert store.queue.resume(west.session, (held(claim, west),)) == (GONE,)
    later = take(store, west).claim
    assert later.token > claim.token
    assert store.queue.resume(west.session, (held(claim, west),)) == (GONE,)
    with pytest.raises(StaleFence):
        store.queue.report(claim, 1, (StageEnded(stage=ONE),))


def test_later_claim_wins_over_a_restored_one(store, west):
    claim = lost_claim(store, west)
    store.advance(store.ttl_ms)
    west.claim_all()
    store.advance(store.grace_ms + 1)
    west.claim_all()
    later = take(store, west).claim
    store.restart()
    west.claim_all()
    assert store.queue.resume(west.session, (held(claim, west), held(later, west))) == (GONE, CURRENT)
    assert [each.claim for each in store.queue.claims_of(west.session)] == [later]


@pytest.mark.parametrize(
    "but",
    [
        pytest.param({"spec": "0" * 40}, id="another spec"),
        pytest.param({"is_whole": False}, id="a part that cannot be reported again"),
        pytest.param({"lease": None}, id="no lease"),
    ],
)
def test_nothing_else_is_claimed_again(store, west, but):
    claim = lost_claim(store, west)
    assert store.queue.resume(west.session, (held(claim, west, **but),)) == (GONE,)
    assert (store.queue.claims_of(west.session), store.queue.queued(WEST)) == ((), (ONE,))


def test_claim_is_not_restored_under_a_reusable_token(store, west):
    claim = lost_claim(store, west)
    forged = replace(claim, token=west.session.epoch)
    assert store.queue.resume(west.session, (held(forged, west),)) == (GONE,)


def test_claim_under_a_revoked_lease_is_not_restored(store, west):
    claim = lost_claim(store, west)
    paid_by = west.lease(LAB, CPU)
    store.ledger.revoke(tenant=LAB, hard=True)
    assert store.queue.resume(west.session, (held(claim, west, lease=paid_by),)) == (GONE,)


def test_ended_stage_is_claimed_again_without_a_lease(store, west):
    claim = lost_claim(store, west)
    west.release(LAB, CPU)
    assert store.queue.resume(west.session, (held(claim, west, lease=None, has_ended=True),)) == (CURRENT,)
    store.queue.report(claim, 1, (started(claim),))
    store.queue.report(claim, 2, (StageEnded(stage=ONE),))
    assert inbox(store) == [started(claim), StageEnded(stage=ONE)]


def test_closed_claim_is_confirmed_only_if_it_ended(store, west):
    claim = claimed(store, west)
    taken = store.queue.report(claim, 2, (StageEnded(stage=ONE),))
    assert store.queue.resume(west.session, (held(claim, west, has_ended=True), held(claim, west))) == (
        ClaimStatus(is_current=True, batch=taken),
        GONE,
    )


@pytest.mark.parametrize("change", ["cancel", "elsewhere"])
def test_claim_on_a_stage_queued_elsewhere_is_not_restored(store, west, change):
    east = ManualMesh(store.ledger, record(EAST))
    claim = lost_claim(store, west)
    east.claim_all()
    if change == "cancel":
        store.queue.cancel(ONE)
        assert store.queue.resume(west.session, (held(claim, west),)) == (GONE,)
    else:
        foreign = replace(claim, mesh=EAST, incarnation=east.session.incarnation)
        assert store.queue.resume(east.session, (held(foreign, west, lease=None, has_ended=True),)) == (GONE,)
        assert store.queue.queued(WEST) == (ONE,)


def test_unknown_stage_may_come_while_the_ledger_recovers(store, west):
    store.queue.submit(WEST, spec(TWO))
    pay(west)
    before = store.keep()
    store.queue.submit(WEST, spec())
    claim = take(store, west).claim
    store.advance(1)
    store.lose(before)
    west.claim_all()
    assert store.queue.resume(west.session, (held(claim, west),)) == (UNKNOWN,)
    store.queue.submit(WEST, spec())
    assert store.queue.resume(west.session, (held(claim, west),)) == (CURRENT,)


def test_resume_needs_current_epoch_and_session_and_few_claims(store, west):
    claim = claimed(store, west)
    with pytest.raises(BatchTooLarge):
        store.queue.resume(west.session, (held(claim, west),) * (RESUMED_MAX + 1))
    store.restart()
    with pytest.raises(EpochChanged):
        store.queue.resume(west.session, (held(claim, west),))
    west.claim_all()
    earlier = west.session
    store.ledger.join(record(WEST))
    with pytest.raises(SessionLost):
        store.queue.resume(earlier, (held(claim, west),))


def test_last_batch_may_be_repeated_after_it_ended_the_claim(store, west):
    claim = claimed(store, west)
    store.queue.report(claim, 1, (StageEnded(stage=ONE),))
    store.queue.report(claim, 1, (StageEnded(stage=ONE),))
    assert inbox(store) == [StageEnded(stage=ONE)]
    with pytest.raises(StaleFence):
        store.queue.report(claim, 2, (StageEnded(stage=ONE),))
    assert inbox(store) == []


def test_a_mesh_may_say_itself_that_it_lost_the_stage(store, west):
    claim = claimed(store, west)
    lost = StageLost(stage=ONE, mesh=WEST, incarnation=west.session.incarnation, reason=Reason.WORKER_LOST)
    store.queue.report(claim, 1, (lost,))
    assert store.queue.claims_of(west.session) == ()
    west.leave()
    assert inbox(store) == [lost]


@pytest.mark.parametrize(
    "change", [{"token": 1}, {"incarnation": 1}, {"mesh": EAST}, {"stage": TWO}], ids=lambda change: f"another {next(iter(change))}"
)
def test_report_under_an_outdated_claim_writes_nothing(store, west, change):
    claim = claimed(store, west)
    forged = replace(claim, **change)
    with pytest.raises(StaleFence):
        store.queue.report(forged, 1, (StageEnded(stage=forged.stage),))
    assert inbox(store) == []
    assert [held.claim for held in store.queue.claims_of(west.session)] == [claim]


def test_a_claim_speaks_about_its_own_stage_only(store, west):
    claim = claimed(store, west)
    with pytest.raises(StaleFence):
        store.queue.report(claim, 1, (started(claim), StageEnded(stage=TWO)))
    assert inbox(store) == []


# ---- lost with the session


def test_sweep_loses_claimed_stages_and_refuses_late_reports(store, west):
    first, second = claimed(store, west, ONE), claimed(store, west, TWO)
    store.queue.submit(WEST, spec(THREE))
    store.queue.report(second, 1, (StageEnded(stage=TWO),))
    inbox(store)
    store.advance(store.ttl_ms + store.grace_ms + 1)
    swept = store.ledger.sweep()
    assert (swept.meshes, swept.leases, swept.stages) == ((WEST,), 1, (ONE,))
    assert inbox(store) == [StageLost(stage=ONE, mesh=WEST, incarnation=west.session.incarnation, reason=Reason.LEASE_EXPIRED)]
    with pytest.raises(StaleFence):
        store.queue.report(first, 1, (StageEnded(stage=ONE),))
    assert inbox(store) == []
    assert [queued.stage for queued in store.queue.waiting(WEST)] == [THREE]
    assert store.ledger.snapshot().usage == {}


@pytest.mark.parametrize(
    ("end", "reason"), [("leave", Reason.MESH_LEFT), ("join again", Reason.LEASE_EXPIRED)], ids=["leave", "join again"]
)
def test_the_end_of_a_session_loses_its_stages(store, west, end, reason):
    claim = claimed(store, west)
    if end == "leave":
        west.leave()
    else:
        store.ledger.join(record(WEST))
    assert inbox(store) == [StageLost(stage=ONE, mesh=WEST, incarnation=west.session.incarnation, reason=reason)]
    with pytest.raises(StaleFence):
        store.queue.report(claim, 1, (started(claim),))


def test_resumed_session_keeps_tokens_and_batch_numbers(store, west):
    claim = claimed(store, west)
    store.queue.report(claim, 1, (NodeStarted(stage=ONE, node=NodeId("a"), attempt=1, started_ms=1),))
    successor = ManualMesh(store.ledger, record(WEST), adopt=west.session.incarnation)
    (own,) = store.queue.claims_of(successor.session)
    assert own.claim == replace(claim, incarnation=successor.session.incarnation)
    end = (StageEnded(stage=ONE),)
    with pytest.raises(StaleFence):
        store.queue.report(claim, 2, end)
    for batch in (1, 2, 2):
        store.queue.report(own.claim, batch, end)
    assert [message.kind for entry in store.queue.inbox(0) for message in decode(STAGE_MESSAGES, entry.body)] == [
        "node_started",
        "stage_ended",
    ]
    assert (store.queue.claims_of(successor.session), store.queue.orphans()) == ((), ())


def test_report_of_an_expired_session_counts_until_the_sweep(store, west):
    claim = claimed(store, west)
    store.advance(store.ttl_ms + 1)
    store.queue.report(claim, 1, (StageEnded(stage=ONE),))
    assert inbox(store) == [StageEnded(stage=ONE)]


def test_the_snapshot_counts_waiting_and_claimed_stages(store, west):
    claimed(store, west)
    store.queue.submit(WEST, spec(TWO))
    store.queue.submit(WEST, spec(THREE))
    (view,) = store.ledger.snapshot().meshes
    assert (view.waiting, view.claimed) == (2, 1)


# ---- inputs


@pytest.mark.every_form
def test_input_is_delivered_once_with_one_notification(store, west):
    claimed(store, west)
    cursor, _ = store.queue.notifications(WEST, "", 0)
    store.queue.deliver(ONE, NodeId("x"), VALUE)
    store.queue.deliver(ONE, NodeId("x"), None)
    store.queue.deliver(ONE, NodeId("y"), None)
    assert store.queue.inputs_of(ONE) == {"x": VALUE, "y": None}
    assert store.queue.notifications(WEST, cursor, 0)[1] == (Notification(kind=NotificationKind.INPUT, subject=ONE),) * 2


def test_an_input_for_a_stage_that_has_ended_is_dropped(store, west):
    claim = claimed(store, west)
    store.queue.deliver(ONE, NodeId("x"), VALUE)
    store.queue.report(claim, 1, (StageEnded(stage=ONE),))
    store.queue.deliver(ONE, NodeId("y"), VALUE)
    store.queue.deliver(StageId("nobody knows it"), NodeId("y"), VALUE)
    assert store.queue.inputs_of(ONE) == {}
    assert store.queue.inputs_of(StageId("nobody knows it")) == {}


# ---- cancel and forget


@pytest.mark.every_form
def test_a_queued_stage_is_cancelled_at_once(store, west):
    store.queue.submit(WEST, spec())
    pay(west)
    store.queue.cancel(ONE)
    store.queue.cancel(ONE)
    assert inbox(store) == [StageEnded(stage=ONE)]
    assert store.queue.waiting(WEST) == ()
    assert take(store, west, ONE) is None
    assert store.queue.submit(WEST, spec()) is False


def test_cancelled_stage_is_marked_and_its_mesh_notified(store, west):
    claim = claimed(store, west)
    cursor, _ = store.queue.notifications(WEST, "", 0)
    store.queue.cancel(ONE)
    assert store.queue.notifications(WEST, cursor, 0)[1] == (Notification(kind=NotificationKind.CANCEL, subject=ONE),)
    assert store.queue.claims_of(west.session)[0].cancelled
    assert inbox(store) == []
    store.queue.report(claim, 1, (StageEnded(stage=ONE),))
    store.queue.cancel(ONE)
    store.queue.cancel(StageId("nobody knows it"))
    assert inbox(store) == [StageEnded(stage=ONE)]


def test_stage_is_remembered_until_its_run_is_forgotten(store, west):
    claim = claimed(store, west)
    store.queue.report(claim, 1, (started(claim), StageEnded(stage=ONE)))
    pay(west)
    for stage in (TWO, THREE):
        store.queue.submit(WEST, spec(stage))
    take(store, west, TWO)
    other = StageId("run-2/s1")
    store.queue.submit(WEST, spec(other, run=RunId("run-2")))
    everything = (ONE, TWO, StageId("run-1/nobody"), other, THREE)
    assert store.queue.remembered(WEST, everything) == (ONE, TWO, other, THREE)
    assert store.queue.remembered(EAST, everything) == ()
    store.queue.forget(RUN, ())
    assert store.queue.remembered(WEST, everything) == (other,)
    assert store.queue.remembered(WEST, ()) == ()


def test_forgetting_a_run_drops_its_stages_and_no_others(store, west):
    claim = claimed(store, west)
    store.queue.submit(WEST, spec(TWO))
    store.queue.submit(WEST, spec(StageId("run-2/s1"), run=RunId("run-2")))
    cursor, _ = store.queue.notifications(EAST, "", 0)
    store.queue.forget(RUN, (EAST,))
    store.queue.forget(RUN, ())
    assert [queued.stage for queued in store.queue.waiting(WEST)] == ["run-2/s1"]
    assert store.queue.claims_of(west.session) == ()
    assert store.queue.notifications(EAST, cursor, 0)[1] == (Notification(kind=NotificationKind.FORGET, subject=RUN),)
    with pytest.raises(StaleFence):
        store.queue.report(claim, 1, ())
    west.leave()
    assert inbox(store) == []


# ---- notifications


def test_only_what_comes_after_the_cursor_is_read(store):
    store.queue.submit(WEST, spec(ONE))
    cursor, notifications = store.queue.notifications(WEST, "", 60_000)
    assert notifications == ()
    store.queue.submit(WEST, spec(TWO))
    store.queue.submit(EAST, spec(THREE))
    cursor, notifications = store.queue.notifications(WEST, cursor, 0)
    assert notifications == (Notification(kind=NotificationKind.STAGE, subject=TWO),)
    assert store.queue.notifications(WEST, cursor, 0) == (cursor, ())


def test_first_cursor_without_notifications_misses_nothing(store):
    cursor, _ = store.queue.notifications(WEST, "", 60_000)
    store.queue.submit(WEST, spec())
    assert store.queue.notifications(WEST, cursor, 0)[1] == (Notification(kind=NotificationKind.STAGE, subject=ONE),)


def test_waiting_reader_is_woken_by_a_notification(store):
    cursor, _ = store.queue.notifications(WEST, "", 0)
    writer = threading.Thread(target=store.queue.submit, args=(WEST, spec()))
    writer.start()
    _, notifications = store.queue.notifications(WEST, cursor, 60_000)
    writer.join()
    assert notifications == (Notification(kind=NotificationKind.STAGE, subject=ONE),)


@pytest.mark.parametrize("cause", ["release", "leave", "sweep", "configure"])
def test_freed_capacity_wakes_meshes_that_wait_for_it(store, west, cause):
    east = ManualMesh(store.ledger, record(EAST))
    ManualMesh(store.ledger, record("idle"))
    pay(east, 10)
    pay(west)
    store.queue.submit(WEST, spec())
    cursor, idle = store.queue.notifications(WEST, "", 0)[0], store.queue.notifications(MeshId("idle"), "", 0)[0]
    if cause == "sweep":
        store.advance(store.ttl_ms + store.grace_ms + 1)
        west.heartbeat()
    cases = {
        "release": lambda: east.release(LAB, CPU),
        "leave": east.leave,
        "sweep": store.ledger.sweep,
        "configure": lambda: store.ledger.configure(store.ledger.snapshot().tree),
    }
    cases[cause]()
    assert store.queue.notifications(WEST, cursor, 0)[1] == (Notification(kind=NotificationKind.STAGE, subject=""),)
    assert store.queue.notifications(MeshId("idle"), idle, 0)[1] == ()


def test_release_wakes_a_few_meshes_of_the_same_flavor(store, west):
    other = FlavorName("gpu")
    quotas = {(flavor, name): Quota(nominal=SLOT[name]) for flavor in (CPU, other) for name in ("cpu", "memory")}
    store.ledger.configure(TenantTree([Tenant(path=LAB, parent=None, quotas=quotas)]))
    hands = [ManualMesh(store.ledger, record(f"m{number}")) for number in range(40)]
    pay(west)
    west.acquire(LAB, other, SLOT)
    for place, hand in enumerate(hands):
        hand.acquire(LAB, CPU if place else other, SLOT)
    before = [store.queue.notifications(hand.record.mesh, "", 0)[0] for hand in hands]

    def woken():
        return [place for place, hand in enumerate(hands) if store.queue.notifications(hand.record.mesh, before[place], 0)[1]]

    west.release(LAB, CPU)
    assert 1 <= len(woken()) <= 8
    assert 0 not in woken()
    west.release(LAB, other)
    assert 0 in woken()


def test_notifications_of_a_departed_mesh_are_dropped(store, west):
    cursor, _ = store.queue.notifications(WEST, "", 0)
    store.queue.submit(WEST, spec())
    west.leave()
    assert store.queue.notifications(WEST, cursor, 0)[1] == ()
    store.ledger.join(record(WEST))
    store.queue.submit(WEST, spec(TWO))
    assert store.queue.notifications(WEST, cursor, 0)[1] == (Notification(kind=NotificationKind.STAGE, subject=TWO),)


def test_unread_notifications_are_bounded(store):
    for number in range(1_500):
        store.queue.forget(RunId(f"run-{number}"), (WEST,))
    cursor, notifications = store.queue.notifications(WEST, "0-0", 0)
    assert 1_000 <= len(notifications) < 1_500
    assert notifications[-1].subject == "run-1499"
    assert store.queue.notifications(WEST, cursor, 0)[1] == ()


# ---- inbox


def test_entries_stay_in_order_until_they_are_acknowledged(store):
    for stage in (ONE, TWO, THREE):
        store.queue.submit(WEST, spec(stage))
        store.queue.cancel(stage)
    first, second, third = store.queue.inbox(60_000)
    ids = [tuple(map(int, entry.entry.split("-"))) for entry in (first, second, third)]
    assert ids == sorted(set(ids))
    assert store.queue.inbox(0, limit=2) == (first, second)
    store.queue.acknowledge((first.entry, third.entry))
    store.queue.acknowledge((first.entry,))
    store.queue.acknowledge(())
    assert store.queue.inbox(0) == (second,)
    store.queue.acknowledge((second.entry,))
    store.queue.submit(WEST, spec(StageId("later")))
    store.queue.cancel(StageId("later"))
    (later,) = store.queue.inbox(0)
    assert tuple(map(int, later.entry.split("-"))) > max(ids)


def test_empty_inbox_returns_at_once_without_waiting(store):
    assert store.queue.inbox(0) == ()
    assert store.queue.inbox(1) == ()


# ---- Redis only


def test_waiting_for_notifications_blocks_no_other_call(redis_server: redis.Redis):
    queue = RedisStageQueue(redis_server, Keys("contract"))
    cursor, _ = queue.notifications(WEST, "", 0)
    read: list[tuple[Notification, ...]] = []
    reader = threading.Thread(target=lambda: read.append(queue.notifications(WEST, cursor, 60_000)[1]))
    reader.start()
    for number in range(20):  # More calls than the reader could let pass on its own connection.
        queue.submit(EAST, spec(StageId(f"s-{number}")))
    queue.submit(WEST, spec())
    reader.join()
    assert read == [(Notification(kind=NotificationKind.STAGE, subject=ONE),)]


def test_forgotten_run_leaves_only_its_mark(redis_server: redis.Redis):
    keys = Keys("contract")
    ledger, queue = RedisLedger(redis_server, keys, terms=LeaseTerms(ttl_ms=60_000, grace_ms=1)), RedisStageQueue(redis_server, keys)
    queue.submit(WEST, spec())
    queue.deliver(ONE, NodeId("x"), VALUE)
    queue.forget(RUN, ())
    assert ledger.sweep().stages == ()
    assert {key.decode() for key in redis_server.keys("*")} == {keys.meta, keys.notifications(WEST), keys.stages_of(RUN)}
    assert redis_server.smembers(keys.stages_of(RUN)) == {b"!forgotten"}


def test_late_stage_of_a_forgotten_run_is_refused(store):
    store.queue.forget(RUN, ())
    assert not store.queue.submit(EAST, spec())
    assert store.queue.waiting(EAST) == ()
    store.queue.forget(RUN, (EAST,))  # A repeat is harmless.


# ---- claim limits


def test_mesh_may_claim_twice_its_lease_until_something_ends(store, west):
    pay(west)
    for stage in (ONE, TWO, THREE):
        store.queue.submit(WEST, spec(stage))
    first = take(store, west, ONE).claim
    take(store, west, TWO)
    with pytest.raises(TooManyClaims):
        take(store, west, THREE)
    assert take(store, west, ONE).claim == first
    assert [queued.stage for queued in store.queue.waiting(WEST)] == [THREE]
    store.queue.report(first, 1, (StageEnded(stage=ONE),))
    assert take(store, west, THREE) is not None


def test_claim_needs_a_lease_of_every_requested_resource(store, west):
    store.queue.submit(WEST, spec())
    west.acquire(LAB, CPU, ResourceSet.of({"cpu": 1}), 1)
    with pytest.raises(TooManyClaims):
        take(store, west)
    assert [queued.stage for queued in store.queue.waiting(WEST)] == [ONE]
    pay(west)
    assert take(store, west).claim.stage == ONE


@pytest.mark.parametrize("way", ["cancelled and reported", "forgotten", "lost with the session", "overdue"])
def test_however_a_claim_ends_it_counts_no_longer(store, west, way):
    pay(west)
    for stage in (ONE, TWO):
        store.queue.submit(WEST, replace(spec(stage), deadline_ms=1000))
    claims = [take(store, west, stage).claim for stage in (ONE, TWO)]
    if way == "cancelled and reported":
        for claim in claims:
            store.queue.cancel(claim.stage)
            store.queue.report(claim, 1, (StageEnded(stage=claim.stage),))
    elif way == "overdue":
        store.advance(1000)
        assert store.queue.take_back_overdue() == (ONE, TWO)
    elif way == "lost with the session":
        west.leave()
        west = ManualMesh(store.ledger, record(WEST))
        pay(west)
    else:
        store.queue.forget(RUN, ())
    for stage in (StageId("more/1"), StageId("more/2")):
        store.queue.submit(WEST, spec(stage, run=RunId("more")))
        assert take(store, west, stage) is not None
    store.queue.submit(WEST, spec(StageId("more/3"), run=RunId("more")))
    with pytest.raises(TooManyClaims):
        take(store, west, StageId("more/3"))


# ---- deadlines, ages


def test_stage_over_its_time_limit_is_cancelled(store, west):
    store.queue.submit(WEST, replace(spec(), deadline_ms=200_000))
    store.queue.submit(WEST, spec(TWO))
    pay(west, 2)
    claim, other = take(store, west, ONE).claim, take(store, west, TWO).claim
    cursor, _ = store.queue.notifications(WEST, "", 0)
    store.advance(100_000)
    assert store.queue.take_back_overdue() == ()
    store.advance(100_000)
    assert store.queue.take_back_overdue() == (ONE,)
    assert store.queue.take_back_overdue() == ()
    assert inbox(store) == [StageLost(stage=ONE, mesh=WEST, incarnation=claim.incarnation, reason=Reason.DEADLINE_EXCEEDED)]
    assert Notification(kind=NotificationKind.CANCEL, subject=ONE) in store.queue.notifications(WEST, cursor, 0)[1]
    with pytest.raises(StaleFence):
        store.queue.report(claim, 1, (StageEnded(stage=ONE),))
    assert [held.claim for held in store.queue.claims_of(west.session)] == [other]


def test_time_limit_ignores_queueing_and_ended_stages(store, west):
    store.queue.submit(WEST, replace(spec(), deadline_ms=5_000))
    store.advance(10_000)
    assert store.queue.take_back_overdue() == ()
    pay(west)
    claim = take(store, west).claim
    store.queue.report(claim, 1, (StageEnded(stage=ONE),))
    store.advance(10_000)
    assert store.queue.take_back_overdue() == ()


def test_nothing_is_overdue_while_the_ledger_learns(store, west):
    store.queue.submit(WEST, replace(spec(), deadline_ms=5_000))
    pay(west)
    take(store, west)
    store.restart()
    store.advance(10_000)
    assert store.queue.take_back_overdue() == ()


def test_oldest_and_youngest_of_many_claims_are_reported(store, west, monkeypatch):
    monkeypatch.setattr("federation.store.redis.queue.LOOKED_AT_MAX", 1)
    for number in range(140):  # A server keeps no order of so many by itself.
        stage = StageId(f"run-1/s{number}")
        store.queue.submit(WEST, replace(spec(stage), slot=NOTHING))
        assert store.queue.claim(west.session, stage, None) is not None
        if number == 0:
            store.advance(300_000)
            west.heartbeat()
    ages = store.queue.ages()[WEST]
    assert ages.claimed_ms == pytest.approx(300_000, abs=100_000)
    assert ages.claimed_ms_min == pytest.approx(0, abs=100_000)


def test_oldest_queued_and_claimed_stages_are_reported(store, west):
    ManualMesh(store.ledger, record(EAST))
    store.queue.submit(WEST, spec(ONE))
    store.advance(180_000)
    store.queue.submit(WEST, spec(TWO, priority=5))
    pay(west)
    store.advance(180_000)
    ages = store.queue.ages()
    assert ages[WEST].queued_ms == pytest.approx(360_000, abs=60_000)
    assert (ages[WEST].claimed_ms, ages[WEST].claimed_ms_min, ages[EAST].queued_ms, ages[EAST].claimed_ms) == (0, 0, 0, 0)
    take(store, west, ONE)
    store.advance(90_000)
    ages = store.queue.ages()
    assert ages[WEST].queued_ms == pytest.approx(270_000, abs=60_000)
    assert ages[WEST].claimed_ms == ages[WEST].claimed_ms_min == pytest.approx(90_000, abs=60_000)


# ---- exactly one effect


def test_second_end_of_a_stage_is_refused_by_name(store, west):
    claim = claimed(store, west)
    store.queue.report(claim, 1, (StageEnded(stage=ONE),))
    store.queue.report(claim, 1, (StageEnded(stage=ONE),))
    with pytest.raises(StaleFence, match="not current"):
        store.queue.report(claim, 2, (StageEnded(stage=ONE),))
    assert inbox(store) == [StageEnded(stage=ONE)]


def test_racing_reports_of_one_batch_have_one_effect(store, west):
    claim = claimed(store, west)
    threads = [threading.Thread(target=lambda: store.queue.report(claim, 1, (StageEnded(stage=ONE),))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert inbox(store) == [StageEnded(stage=ONE)]


def test_end_from_a_swept_session_is_too_late(store, west):
    claim = claimed(store, west)
    store.advance(store.ttl_ms + store.grace_ms + 1)
    store.ledger.sweep()
    with pytest.raises(StaleFence):
        store.queue.report(claim, 1, (StageEnded(stage=ONE),))
    assert inbox(store) == [StageLost(stage=ONE, mesh=WEST, incarnation=claim.incarnation, reason=Reason.LEASE_EXPIRED)]


# ---- audits


def test_a_sound_queue_has_no_orphans(store, west):
    assert store.queue.orphans() == ()
    claimed(store, west)
    store.queue.submit(EAST, spec(TWO))
    store.queue.submit(WEST, spec(THREE))
    store.queue.cancel(THREE)
    assert store.queue.orphans() == ()
    west.leave()
    assert store.queue.orphans() == ()


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        pytest.param(lambda client, keys: client.hdel(keys.sessions, WEST), "CLAIMED_WITHOUT_SESSION", id="a vanished session"),
        pytest.param(lambda client, keys: client.delete(keys.stage(ONE)), "INDEX_WITHOUT_RECORD", id="a vanished record"),
        pytest.param(lambda client, keys: client.hset(keys.stage(ONE), "state", "ended"), "INDEX_DISAGREES", id="a half-done end"),
        pytest.param(lambda client, keys: client.delete(keys.claimed(WEST)), "RECORD_WITHOUT_INDEX", id="a vanished set of claims"),
    ],
)
def test_orphan_is_found_and_left_alone(redis_server, damage, kind):
    store = redis_store(redis_server)
    quotas = {(CPU, "cpu"): Quota(nominal=100_000), (CPU, "memory"): Quota(nominal=10 * 2**30)}
    store.ledger.configure(TenantTree([Tenant(path=LAB, parent=None, quotas=quotas)]))
    claimed(store, ManualMesh(store.ledger, record(WEST)))
    damage(redis_server, Keys("contract"))
    for _ in range(2):
        assert [(orphan.kind.value, orphan.stage, orphan.mesh) for orphan in store.queue.orphans()] == [(kind, ONE, WEST)]


def test_a_queued_stage_that_no_queue_names_is_found(redis_server):
    store = redis_store(redis_server)
    store.queue.submit(WEST, spec())
    redis_server.delete(Keys("contract").ready(WEST))
    assert [orphan.kind.value for orphan in store.queue.orphans()] == ["RECORD_WITHOUT_INDEX"]


def test_amounts_of_sixteen_digits_are_counted_exactly(store):
    huge = 2**52 + 1
    quotas = {(CPU, "cpu"): Quota(nominal=100_000), (CPU, "memory"): Quota(nominal=huge)}
    store.ledger.configure(TenantTree([Tenant(path=LAB, parent=None, quotas=quotas)]))
    west, slot = ManualMesh(store.ledger, record(WEST)), ResourceSet({"memory": huge})
    west.acquire(LAB, CPU, slot)
    for number in range(4):
        stage = StageId(f"run-1/{number}")
        store.queue.submit(WEST, replace(spec(stage), slot=slot))
        claim = take(store, west, stage).claim
        store.queue.report(claim, 1, (StageEnded(stage=stage),))
    if store.client is not None:
        assert store.client.exists(Keys("contract").taken(WEST)) == 0
