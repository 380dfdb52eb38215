"""A child mesh: joins the ledger, takes stages from its queue, has them run, tells what became of them.

One thread calls `beat` when it is due and hands in mail and reports; nothing here waits. The scheduler decides inside
the mesh's pools, the host runs, and each stage is paid for by the lease of its tenant: the ledger is asked only for what
the leases at hand do not cover, and what lies idle goes back after a while, or as soon as others want it. What the ledger
takes away is given up: the last and least urgent stages stop, and then it is told. A stage that waits while less urgent ones of its
own tenant run has these stopped (`making_way`), and what they free is held for it.

While the store does not answer, what there is to tell is kept and told later, in order, and by this process' own clock less and
less may be done (`deadlines`): nothing new, then what runs is asked to stop, then all work ends at once, as it does when the
session is lost: the leases that paid for it are no longer ours. The host's watchdogs see to that when this process cannot.
A ledger that may have forgotten something begins an epoch: it is told all that is held, and work goes on.

Work outlives this process. One that has just begun looks for what its predecessor left, takes over its session with claims and
leases, and goes on (`adoption`); where that cannot be, it stops what it found and begins anew.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import partial

import structlog

from federation.adoption import Adoption, StageNote, adoption_of, seen_in, written
from federation.balance import LeaseBalance, LeaseKey, sum_of
from federation.blobs import BlobStore
from federation.deadlines import Permission
from federation.dispatch import FIRST_LETTER, Claim, ClaimedStage, Mail, MailKind, StageQueue
from federation.errors import (
    BatchTooLarge,
    CallRejected,
    EpochChanged,
    FutureToken,
    HoldingsWanted,
    LeaseLost,
    LedgerLearning,
    SessionLost,
    StaleBeat,
    StaleFence,
    StoreUnavailable,
    TooManyClaims,
)
from federation.leases import ROWS_MAX, Granted, LeaseLedger, LeaseRefused, LookAgain, Session, Told, Want
from federation.making_way import Leaving, MakingWay, WayMade, words_of
from federation.snapshot import MeshRecord, PoolRecord
from federation.tenure import Tenure
from federation.wanting import wanted
from mesh import admission_events as events
from mesh.admission import StageAdmission, Workload, WorkloadState
from mesh.admission_decisions import AcquireLease, AdmissionDecision, ExplainWaiting, ReleaseLease, StartWorkload
from mesh.clock import Clock
from mesh.giving_way import Occupant
from mesh.hosting import LAST_WORD, Delivered, Found, HostReport, StageHost
from mesh.ids import NodeId, PoolName, RunId, StageId, TenantPath
from mesh.messages import NodeFailed, StageEnded, StageLost, StageMessage
from mesh.pools import PoolSpec
from mesh.reasons import Reason
from mesh.resources import ResourceSet
from mesh.values import StoredValue

log = structlog.get_logger(__name__)

#: Queued stages that are looked at together.
LOOK_LIMIT = 4096
#: Batch number of the word that a stage has started; the host's reports count on from there.
STARTED = 1
#: Every so many heartbeats the claims are compared with the store's, in case a letter went astray.
BEATS_PER_COMPARISON = 5
#: So many heartbeats long a lease may lie idle while nobody else wants quota.
IDLE_BEATS = 2
#: For so many stages others are stopped at a look; the rest has its turn at the next.
WAYS_PER_LOOK = 64
#: So many decisions are carried out before it is asked whether a heartbeat is due, which then goes first.
DONE_AT_ONCE = 16
_NEVER_MS = 2**53
#: Will not be taken however often it is said.
_NEVER = (BatchTooLarge, CallRejected)
#: Not now: asked again at a later beat.
_NOT_NOW = (StoreUnavailable, EpochChanged, LedgerLearning, LeaseLost, TooManyClaims)


@dataclass(slots=True)
class _Running:
    """A stage that this mesh has claimed."""

    claim: Claim
    run: RunId
    delivered: set[NodeId] = field(default_factory=set)
    cancelled: bool = False
    gives_way: bool = False  #: What it holds is wanted for others; it is being stopped, to run again later.
    gives_way_because: Reason = Reason.QUOTA_RECLAIMED
    is_disowned: bool = False  #: The store knows the claim no more: nothing of it is told, but until it has stopped it is paid for.
    priority: int = 0
    started_ms: int = 0  #: On this process' own clock.


class ChildMesh:
    """One mesh, from join to leave.

    Args:
        record: What the mesh tells of itself; use of its pools is filled in with each heartbeat.
        host: Has to report through `take_report`, on the thread that calls everything else.
        heartbeat_ms: How often `beat` renews the session.
    """

    def __init__(
        self,
        *,
        record: MeshRecord,
        ledger: LeaseLedger,
        queue: StageQueue,
        blobs: BlobStore,
        host: StageHost,
        clock: Clock,
        heartbeat_ms: int,
    ) -> None:
        self._record = record
        self._ledger = ledger
        self._queue = queue
        self._blobs = blobs
        self._host = host
        self._clock = clock
        self._heartbeat_ms = heartbeat_ms
        self._tenure = Tenure()
        self._may_go_on = True  #: With what an earlier process of the mesh has left: as long as this one has had no session.
        self._due_ms = 0
        self._beats = 0
        self._is_cut_off = False  #: The store did not answer a question since the last heartbeat.
        self._scheduler = self._new_scheduler()
        self._running: dict[StageId, _Running] = {}
        self._untold: deque[Callable[[], None]] = deque()
        self._undone: deque[AcquireLease | StartWorkload] = deque()  #: Decided and not carried out.
        self._is_carrying_out = False
        self._unexplained: dict[StageId, ExplainWaiting] = {}  #: The last word of why each waits, as far as it was not told.
        self._balance = LeaseBalance()
        self._headroom: dict[LeaseKey, dict[str, int]] = {}  #: By how much less the ledger would have let a lease grow, as long.
        self._refused: dict[tuple[LeaseKey, ResourceSet], LeaseRefused] = {}  #: Since the queue was last looked at; not asked again.

    # -- the session ---------------------------------------------------------------------------------------------------

    def due_in_ms(self) -> int:
        """When `beat` wants to be called."""
        return max(0, self._due_ms - self._clock.monotonic_ms())

    def beat(self) -> None:
        """Renew the session, or begin one; tell what could not be told; look at the queue."""
        self._host.stamp()
        sent_ms = self._clock.monotonic_ms()
        self._due_ms = sent_ms + self._heartbeat_ms
        if self._tenure.session is not None and self._permission(sent_ms) is Permission.OVER:  # This process was paused: nothing is ours.
            self._look_at_the_clock(sent_ms)
        try:
            if self._tenure.session is None:
                self._join(sent_ms)
            else:
                self._renew(sent_ms)
        except SessionLost as lost:
            self._lose_session(str(lost))
            self._due_ms = sent_ms
            return
        except (StoreUnavailable, EpochChanged, HoldingsWanted, StaleBeat, BatchTooLarge) as gone:
            # BatchTooLarge: more is held than may be told. When our time is over all of it ends, and this process does not.
            log.warning("the ledger does not answer", mesh=self._record.mesh, error=str(gone))
            self._look_at_the_clock(sent_ms)
            return
        self._beats += 1
        self._guard(self._tell)
        self._guard(self._look)
        self._guard(self._give_back_idle)
        if self._beats % BEATS_PER_COMPARISON == 0:
            self._guard(self._compare)
        self._look_at_the_clock(self._clock.monotonic_ms())

    def _join(self, sent_ms: int) -> None:
        found = self._host.find() if self._may_go_on else None
        adoption = self._inherit(found) if found is not None else None
        if adoption is None:
            self._tenure.begin(self._ledger.join(self._now(), seen=self._tenure.seen))
        self._may_go_on = False
        session = self._held_session()
        self._take_in(session.told)
        log.info("joined", mesh=self._record.mesh, incarnation=session.incarnation, goes_on=adoption is not None)
        self._note_renewal(sent_ms)
        if adoption is not None:
            self._go_on(adoption)

    def _renew(self, sent_ms: int) -> None:
        told, beat = self._tenure.renew(self._ledger, self._now(), self._balance, self._now_wanted)
        self._take_in(told, [(ack.tenant, ack.flavor) for ack in beat.acks])
        self._note_renewal(sent_ms)

    def _take_in(self, told: Told, named: Iterable[LeaseKey] = ()) -> None:
        """What any answer of the ledger tells; what it takes away is given up."""
        self._tenure.take_in(told)
        self._balance.take_in(told, named)
        for limit, spent in self._balance.overdrawn():
            self._give_way(limit, spent)

    def _give_way(self, limit: ResourceSet, spent: dict[StageId, ResourceSet]) -> None:
        """Stop the least urgent, of those the last started, until what remains is within the limit."""
        running = [(stage, self._running[stage]) for stage in spent if stage in self._running]
        remaining = sum_of(amounts for stage, amounts in spent.items() if not self._gives_way(stage))
        for stage, record in sorted(running, key=lambda item: (item[1].priority, -item[1].claim.token)):
            if remaining <= limit:
                return
            if not record.gives_way:
                log.warning("a stage gives way: its quota is wanted back", mesh=self._record.mesh, stage=stage)
                self._ask_to_stop(record)
                remaining -= spent[stage]

    def _ask_to_stop(self, running: _Running) -> None:
        """It is no longer paid for, though nobody has cancelled it: it runs again later."""
        running.gives_way = True
        self._host.cancel(running.claim.stage)

    def _gives_way(self, stage: StageId) -> bool:
        return stage in self._running and self._running[stage].gives_way

    def _now_wanted(self) -> tuple[Want, ...]:
        return wanted(self._scheduler, self._balance)

    def _note_renewal(self, sent_ms: int) -> None:
        """The ledger has answered what was sent then: every moment counts from there, here and for the watchdogs of the nodes."""
        self._is_cut_off = False
        self._tenure.prove(sent_ms)
        deadlines = self._tenure.deadlines
        self._host.prove(self._held_session().incarnation, deadlines.stop_ms, deadlines.over_ms, self._tenure.since)

    def _permission(self, now_ms: int) -> Permission:
        return self._tenure.permission(now_ms)

    def _look_at_the_clock(self, now_ms: int) -> None:
        """Do what the time without an answer asks for, and be called when it asks for more."""
        if self._tenure.session is None:
            return
        permission = self._permission(now_ms)
        if permission is Permission.OVER:
            self._lose_session("it could not be renewed in time")
            return
        if permission is Permission.STOPPING:
            for stage, running in self._running.items():
                if not running.gives_way and not running.cancelled:
                    log.warning("a stage is stopped: its lease cannot be proved any more", mesh=self._record.mesh, stage=stage)
                    self._ask_to_stop(running)
        change_ms = self._tenure.next_change_ms(now_ms)
        if change_ms is not None:
            self._due_ms = min(self._due_ms, now_ms + change_ms)

    def leave(self) -> None:
        """Stop all work and end the session, so that its quota is free at once."""
        self._host.stop_all()
        session, self._tenure.session = self._tenure.session, None
        if session is not None:
            self._host.leave(session.incarnation)
            self._ledger.leave(session)

    def _lose_session(self, why: str) -> None:
        log.warning("session lost: all work stops", mesh=self._record.mesh, why=why, stages=sorted(self._running))
        self._host.stop_all()
        self._tenure.end()
        self._running.clear()
        self._untold.clear()
        self._undone.clear()
        self._unexplained.clear()
        self._balance = LeaseBalance()
        self._refused.clear()
        self._headroom.clear()
        self._scheduler = self._new_scheduler()

    def _new_scheduler(self) -> StageAdmission:
        pools = self._record.pools
        return StageAdmission(tuple(PoolSpec(pool=pool.pool, flavor=pool.flavor, capacity=pool.capacity) for pool in pools))

    def _now(self) -> MeshRecord:
        pools: list[PoolRecord] = [replace(pool, used=self._scheduler.ledger.pools[pool.pool].in_use) for pool in self._record.pools]
        return replace(self._record, pools=tuple(pools))

    def _guard(self, work: Callable[[], None]) -> None:
        """Do it; a store that does not answer is tried again at the next beat, a lost session stops everything."""
        try:
            if self._tenure.session is not None:
                work()
        except SessionLost as lost:
            self._lose_session(str(lost))
            self._due_ms = 0
        except EpochChanged:
            self._due_ms = 0  # The next heartbeat tells what we hold.
        except _NOT_NOW as gone:
            log.warning("the store does not answer", mesh=self._record.mesh, error=str(gone))

    # -- what an earlier process has left ------------------------------------------------------------------------------

    def _inherit(self, found: Found) -> Adoption | None:
        """Take over the session of what was found. None: that cannot be, and all of it was stopped."""
        try:
            session = self._ledger.join(self._now(), adopt=found.incarnation, seen=seen_in(found))
            claims = self._queue.claims_of(session)
        except (SessionLost, LedgerLearning, FutureToken) as refused:
            log.warning("what was found may not go on: all of it stops", mesh=self._record.mesh, why=str(refused), stages=len(found.stages))
            self._host.stop_all()
            return None
        self._tenure.begin(session, found.since)
        capacity = {pool.pool: pool.capacity for pool in self._record.pools}
        return adoption_of(found, claims, capacity=capacity, leases={(lease.tenant, lease.flavor) for lease in session.told.leases})

    def _go_on(self, adoption: Adoption) -> None:
        """As if this process had started them: first what it knows of each is put in its place, then the host may speak."""
        for heirloom in adoption.stages:
            claimed, stage = heirloom.claimed, heirloom.claimed.claim.stage
            running = self._running[stage] = _running_of(claimed, self._clock.monotonic_ms())
            running.gives_way = heirloom.gives_way
            self._carry_out(self._scheduler.handle(heirloom.found))
            if heirloom.payer is not None:
                self._balance.spend(stage, heirloom.payer, heirloom.amounts, self._clock.monotonic_ms())
            self._untold.append(self._telling_start(running, heirloom.holder, heirloom.note))
        self._host.go_on(frozenset(self._running))
        self._take_in(self._tenure.told)  # Now that it is known what is spent.
        for claimed in adoption.missing:
            self._untold.append(partial(self._tell_lost, claimed.claim, Reason.WORKER_LOST))
        for heirloom in adoption.stages:
            self._guard(partial(self._catch_up, heirloom.claimed))
        self._guard(self._forget_what_was_missed)

    def _catch_up(self, claimed: ClaimedStage) -> None:
        """What was delivered before is harmless again; what was said since nobody listened is heard now."""
        running = self._running[claimed.claim.stage]
        if claimed.cancelled:
            self._cancel(running)
        elif running.gives_way:  # It was asked by a process that may have died before it saw to it that the stage ends.
            self._host.cancel(claimed.claim.stage)
        self._bring(running, claimed.inputs)

    def _forget_what_was_missed(self) -> None:
        _, letters = self._queue.mail(self._record.mesh, FIRST_LETTER, 0)
        needed = {running.run for running in self._running.values()}
        for run in {letter.subject for letter in letters if letter.kind is MailKind.FORGET} - needed:
            self._host.forget(RunId(run))

    # -- what comes in -------------------------------------------------------------------------------------------------

    def take_mail(self, letters: Iterable[Mail]) -> None:
        """Letters from the root."""
        letters = tuple(letters)
        kinds = {letter.kind for letter in letters}
        for letter in letters:
            if letter.kind is MailKind.FORGET:
                self._host.forget(RunId(letter.subject))
            elif letter.kind is MailKind.INPUT and letter.subject in self._running:
                self._guard(partial(self._bring_inputs, StageId(letter.subject)))
            elif letter.kind is MailKind.CANCEL and letter.subject in self._running:
                self._cancel(self._running[StageId(letter.subject)])
        if MailKind.STAGE in kinds or MailKind.CANCEL in kinds:
            self._guard(self._look)
        if MailKind.LEASE in kinds:
            self._guard(self._give_back_now)
        if MailKind.PLAN in kinds:
            self._due_ms = 0

    def take_report(self, report: HostReport) -> None:
        """What the host tells of a stage."""
        running = self._running.get(report.stage)
        if running is None:
            self._host.confirm(report.stage, report.number)
            return
        over = any(isinstance(message, (StageEnded, StageLost)) for message in report.messages)
        messages = _of_one_that_gave_way(running, report.messages) if running.gives_way and not running.cancelled else report.messages
        self._untold.append(self._telling(running, STARTED + report.number, messages, report.blobs))
        if over:
            del self._running[report.stage]
            self._untold.append(lambda: self._carry_out(self._scheduler.handle(events.WorkloadEnded(workload=report.stage))))
        self._guard(self._tell)
        if over and running.gives_way:
            self._due_ms = 0  # Somebody waits to hear that what was wanted back is free.

    def _telling(self, running: _Running, batch: int, messages: tuple[StageMessage, ...], blobs: dict[str, bytes]) -> Callable[[], None]:
        def tell() -> None:
            try:
                if not running.is_disowned:
                    for sha256, data in blobs.items():
                        self._blobs.put(running.run, sha256, data)
                    self._queue.report(running.claim, batch, messages)
            except StaleFence:
                self._disown(running)
            except _NEVER as refused:
                self._give_up(running, str(refused))
            self._host.confirm(running.claim.stage, batch - STARTED)

        return tell

    def _give_up(self, running: _Running, why: str) -> None:
        """The root will never hear what became of the stage: it is lost, so that it is tried again elsewhere and others are heard."""
        log.error("a report is refused for good; its stage is lost", mesh=self._record.mesh, stage=running.claim.stage, why=why)
        self._tell_lost(running.claim, Reason.REPORT_REFUSED)
        self._disown(running)

    def _disown(self, running: _Running) -> None:
        """The store knows of no such claim. What it took stays on the books until the host says that it has stopped: whoever
        counted it as free before would let two stages run on one unit of quota."""
        running.is_disowned = True
        if self._running.get(running.claim.stage) is running:  # Else the host has told its end already, and that comes in turn.
            log.warning("a stage is no longer ours", mesh=self._record.mesh, stage=running.claim.stage)
            self._ask_to_stop(running)

    def _telling_start(self, running: _Running, holder: int, note: StageNote) -> Callable[[], None]:
        return self._telling(running, STARTED, (note.started(running.claim, holder, self._record.cluster),), {})

    def _tell(self) -> None:
        while self._untold:
            self._untold[0]()
            if self._untold:
                self._untold.popleft()

    # -- the queue -----------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        self._refused.clear()
        self._headroom.clear()
        self._carry_out(())
        if self._undone:
            return  # The last look is not over yet, and a heartbeat is due.
        waiting = self._queue.waiting(self._record.mesh, LOOK_LIMIT)
        there = {stage.stage for stage in waiting}
        news: list[events.AdmissionEvent] = [
            events.WorkloadOffered(
                workload=stage.stage,
                tenant=stage.tenant,
                slot=ResourceSet(stage.slot),
                width=stage.width,
                priority=stage.priority,
                yielding=stage.yielding,
            )
            for stage in waiting
            if stage.stage not in self._scheduler.workloads
        ]
        gone: set[StageId] = set()
        if len(waiting) < LOOK_LIMIT:
            gone = {name for name in self._scheduler.workloads if name not in there and name not in self._running}
            news.extend(events.WorkloadWithdrawn(workload=name) for name in sorted(gone))
        self._end_promises(gone)
        self._carry_out(self._scheduler.handle(*news, events.RoomMayHaveCome()))
        if not self._undone:
            self._make_way()

    # -- the urgent before the less urgent of one tenant ---------------------------------------------------------------

    def _end_promises(self, gone: AbstractSet[StageId]) -> None:
        """What was to come free in time and did not is anybody's again; nothing is held for those that have gone."""
        now_ms = self._clock.monotonic_ms()
        gathering = [one for one in self._scheduler.workloads.values() if one.state is WorkloadState.GATHERING]
        late = [one.offer.workload for one in gathering if one.until_ms <= now_ms]
        if late:
            log.warning("room was not free in time", mesh=self._record.mesh, stages=sorted(late))
            self._carry_out(self._scheduler.handle(*(events.PromiseEnded(workload=stage) for stage in late)))
        still = {stage for stage, one in self._scheduler.workloads.items() if one.state is WorkloadState.GATHERING}
        self._balance.drop_holds(still - gone)

    def _make_way(self) -> None:
        """Stop less urgent stages for those of their own tenant that wait, and keep the room for these."""
        known = self._scheduler.workloads.values()
        is_wanted = any(one.state is WorkloadState.QUEUED and one.offer.yielding.takes for one in known)
        if not is_wanted or self._permission(self._clock.monotonic_ms()) is not Permission.PROVED:
            return
        making_way = self._making_way()
        in_vain: set[tuple[TenantPath, ResourceSet]] = set()  #: For the less urgent of equal needs there are only fewer to stop.
        ways = tried = 0
        for workload in tuple(making_way.waiting()):
            if ways == WAYS_PER_LOOK or self._has_to_beat(tried):
                return
            need = (workload.offer.tenant, workload.offer.slot)
            if need in in_vain or workload.state is not WorkloadState.QUEUED:
                continue
            tried += 1
            way = making_way.way_for(workload, self._grants)
            if way is None or any(victim.stage not in self._running for victim in way.victims):
                in_vain.add(need)
            else:
                ways += 1
                self._promise(way)
                making_way = making_way.after(way)

    def _making_way(self) -> MakingWay:
        holding = {stage: running for stage, running in self._running.items() if self._scheduler.ledger.pools_of(stage)}
        leaving = {stage for stage, running in holding.items() if running.gives_way or running.cancelled}
        return MakingWay(
            admission=self._scheduler,
            balance=self._balance,
            occupants=tuple(self._occupant(stage) for stage in holding if stage not in leaving),
            leaving=tuple(
                Leaving(stage=stage, pool=self._pool_of(stage), amounts=self._scheduler.ledger.held_by(stage)) for stage in leaving
            ),
            now_ms=self._clock.monotonic_ms(),
            headroom=self._headroom,
        )

    def _pool_of(self, stage: StageId) -> PoolName:
        return self._scheduler.ledger.pools_of(stage)[0]

    def _occupant(self, stage: StageId) -> Occupant:
        running = self._running[stage]
        return Occupant(
            stage=stage,
            tenant=self._scheduler.workloads[stage].offer.tenant,
            priority=running.priority,
            pool=self._pool_of(stage),
            amounts=self._scheduler.ledger.held_by(stage),
            started_ms=running.started_ms,
            token=running.claim.token,
        )

    def _grants(self, workload: Workload, pool: PoolSpec, amounts: ResourceSet) -> bool:
        """Does the lease grow by so much, without anybody's stopping?"""
        offer, key = workload.offer, (workload.offer.tenant, pool.flavor)
        self._balance.hold(offer.workload, key, offer.slot)  # What is granted is not idle.
        wanted = AcquireLease(workload=offer.workload, tenant=offer.tenant, pool=pool.pool, flavor=pool.flavor, slot=amounts, want=1)
        refused = self._ask(wanted, key, 1, is_missing=True)
        if refused is not None:
            self._balance.drop_hold(offer.workload)
        return refused is None

    def _promise(self, way: WayMade) -> None:
        until_ms = self._clock.monotonic_ms() + way.hold_ms
        self._balance.hold(way.stage, way.key, way.slot)
        for victim in way.victims:
            log.info("a stage gives way to a more urgent one", mesh=self._record.mesh, stage=victim.stage, to=way.stage)
            running = self._running[victim.stage]
            running.gives_way_because = Reason.LOWER_IN_QUEUE
            self._ask_to_stop(running)
        promised = events.RoomPromised(
            workload=way.stage,
            pool=way.pool,
            victims=frozenset(victim.stage for victim in way.victims),
            until_ms=until_ms,
            detail=words_of(way.victims),
        )
        self._carry_out(self._scheduler.handle(promised))

    # -- deciding and paying -------------------------------------------------------------------------------------------

    def _carry_out(self, decisions: Iterable[AdmissionDecision]) -> None:
        """Do what was decided, and what is decided then; what comes up meanwhile has its turn after it.

        Not longer than until the next heartbeat is due: the rest is done after that one. However much one tenant has queued, the
        session by which the work of all lives is renewed.
        """
        self._note(decisions)
        if not self._is_carrying_out:
            self._is_carrying_out = True
            try:
                self._work_off()
            finally:
                self._is_carrying_out = False
            self._guard(self._explain_waiting)

    def _note(self, decisions: Iterable[AdmissionDecision]) -> None:
        for decision in decisions:
            if isinstance(decision, ReleaseLease):
                self._note(self._put_back(decision.workload))
            elif isinstance(decision, ExplainWaiting):
                self._unexplained[decision.workload] = decision
            else:
                self._undone.append(decision)

    def _work_off(self) -> None:
        done, scheduler = 0, self._scheduler
        while self._undone and not self._has_to_beat(done):
            decision, done = self._undone.popleft(), done + 1
            follows = self._start(decision) if isinstance(decision, StartWorkload) else scheduler.handle(self._acquire(decision))
            if self._scheduler is not scheduler:  # The session was lost meanwhile: what was decided under it is void.
                return
            self._note(follows)

    def _has_to_beat(self, done: int) -> bool:
        return done >= DONE_AT_ONCE and self.due_in_ms() == 0

    def _explain_waiting(self) -> None:
        told = 0
        while self._unexplained and not self._has_to_beat(told):
            stage, explanation = next(iter(self._unexplained.items()))
            if stage in self._scheduler.workloads and stage not in self._running:
                with contextlib.suppress(*_NEVER):  # Words for people hold nobody up.
                    self._queue.explain(self._held_session(), stage, explanation.reason, explanation.detail)
                told += 1
            self._unexplained.pop(stage)

    def _tell_in_turn(self) -> None:
        """Tell, unless this is called from within telling: then it comes in turn anyway."""
        if len(self._untold) == 1:
            self._tell()

    def _put_back(self, stage: StageId) -> list[AdmissionDecision]:
        """What the stage took may be spent on those that wait for it."""
        key = self._balance.put_back(stage, self._clock.monotonic_ms())
        if key is None:
            return []
        for refused in [refused for refused in self._refused if refused[0] == key]:
            del self._refused[refused]
        self._headroom.pop(key, None)
        return self._scheduler.handle(events.RoomMayHaveCome())

    def _give_back_now(self) -> None:
        self._offer(0)

    def _give_back_idle(self) -> None:
        self._offer(0 if self._tenure.told.others_want else IDLE_BEATS * self._heartbeat_ms)

    def _offer(self, idle_ms: int, keep: LeaseKey | None = None) -> bool:
        """Give back what lies idle for so long; was there any?"""
        parts = self._balance.offer_idle(self._clock.monotonic_ms(), idle_ms, keep, self._is_waited_for)[:ROWS_MAX]
        if parts:
            self._take_in(self._ledger.release(self._held_session(), parts), [(part.tenant, part.flavor) for part in parts])
        return bool(parts)

    def _is_waited_for(self, key: LeaseKey) -> bool:
        """Could a stage that does not run yet use the lease?"""
        tenant, _ = key
        known = self._scheduler.workloads.values()
        return any(one.offer.tenant == tenant and one.state is not WorkloadState.RUNNING for one in known)

    def _acquire(self, wanted: AcquireLease) -> events.LeaseGranted | events.LeaseRefused:
        """Pay from the lease of the tenant, which the ledger makes larger when it does not cover all that is wanted."""
        key = (wanted.tenant, wanted.flavor)
        if self._permission(self._clock.monotonic_ms()) is not Permission.PROVED:
            detail = "the session has not been renewed for too long to begin anything new"
            return events.LeaseRefused(workload=wanted.workload, reason=Reason.LEDGER_UNREACHABLE, detail=detail)
        if not wanted.slot:
            return events.LeaseGranted(workload=wanted.workload, slots=wanted.want, token=0)
        short = wanted.want - self._balance.room(key, wanted.slot, wanted.workload)
        refused = self._ask(wanted, key, short) if short > 0 else None
        slots = min(wanted.want, self._balance.room(key, wanted.slot, wanted.workload))
        if slots == 0 and self._balance.holds_for_others(key, wanted.slot, wanted.workload):
            detail = f"what the lease of {wanted.tenant} has left is set aside for more urgent work, for which others stop"
            return events.LeaseRefused(workload=wanted.workload, reason=Reason.ROOM_RESERVED, detail=detail)
        if slots == 0:
            return refused or events.LeaseRefused(workload=wanted.workload, reason=Reason.QUOTA_EXHAUSTED, detail="the lease has changed")
        self._balance.spend(wanted.workload, key, wanted.slot.times(slots), self._clock.monotonic_ms())
        lease = self._balance.lease(key)
        return events.LeaseGranted(workload=wanted.workload, slots=slots, token=lease.token if lease is not None else 0)

    def _ask(self, wanted: AcquireLease, key: LeaseKey, slots: int, *, is_missing: bool = False) -> events.LeaseRefused | None:
        """Ask the ledger for more; None when it granted some. `is_missing`: the slot is what is missing, whatever lies idle."""
        if self._is_cut_off:  # Asking for each queued stage in turn would take longer than our session lives.
            return events.LeaseRefused(
                workload=wanted.workload, reason=Reason.LEDGER_UNREACHABLE, detail="it did not answer the last question"
            )
        refused = self._refused.get((key, wanted.slot))
        try:
            if refused is None:
                refused = self._ask_for(key, wanted.slot, slots, wanted.workload, is_missing=is_missing)
        except EpochChanged:
            self._due_ms, self._is_cut_off = 0, True
            return events.LeaseRefused(workload=wanted.workload, reason=Reason.LEDGER_LEARNING, detail="the ledger began another epoch")
        except StoreUnavailable as gone:
            self._is_cut_off = True
            return events.LeaseRefused(workload=wanted.workload, reason=Reason.LEDGER_UNREACHABLE, detail=str(gone))
        if refused is None:
            return None
        self._refused[key, wanted.slot] = refused
        return events.LeaseRefused(workload=wanted.workload, reason=refused.reason, detail=refused.in_words())

    def _ask_for(self, key: LeaseKey, slot: ResourceSet, slots: int, stage: StageId, *, is_missing: bool) -> LeaseRefused | None:
        """Up to three questions: another one when the lease was not as we thought, after we gave back what lay idle ourselves, or
        for further slots when the first needed only a part, since the rest of it lay idle."""
        refused: LeaseRefused | None = None
        self._offer(_NEVER_MS)  # What was offered and not answered may be taken or not: now we ask, so we have to know.
        for _ in range(3):
            missing = slot if is_missing else self._balance.missing(key, slot, stage)
            more = slots if missing == slot else 1
            answer = self._question(key, missing, more, stage)
            if isinstance(answer, Granted) and more < slots:
                slots -= more
                continue
            if isinstance(answer, Granted) or (not is_missing and self._balance.room(key, slot, stage) >= slots):
                return None
            refused = _of_whole_slot(answer, slot, missing) if isinstance(answer, LeaseRefused) else None
            if refused is not None and not (refused.reason is Reason.QUOTA_EXHAUSTED and self._offer(0, keep=key)):
                break
        return refused

    def _question(self, key: LeaseKey, slot: ResourceSet, slots: int, stage: StageId) -> Granted | LookAgain | LeaseRefused:
        pays_for = max(map(self._priority_of, (stage, *self._balance.paid(key))))
        want = replace(self._balance.want(key, slot, slots, self._priority_of(stage)), pays_for=pays_for)
        self._tenure.wants = None  # Whatever the answer, and if there is none: what the ledger has noted may be different now.
        acquired = self._ledger.acquire(self._held_session(), (want,))
        (answer,) = acquired.answers
        self._take_in(acquired.told, [key] if isinstance(answer, LookAgain) else [])
        if isinstance(answer, LeaseRefused) and answer.reason is Reason.QUOTA_EXHAUSTED:
            self._headroom.setdefault(key, {})[answer.resource] = answer.available
        return answer

    def _priority_of(self, stage: StageId) -> int:
        workload = self._scheduler.workloads.get(stage)
        return workload.offer.priority if workload is not None else 0

    def _held_session(self) -> Session:
        if self._tenure.session is None:
            raise SessionLost(f"mesh {self._record.mesh} has no session")
        return self._tenure.session

    def _start(self, decision: StartWorkload) -> list[AdmissionDecision]:
        try:
            claimed = self._queue.claim(self._held_session(), decision.workload, self._balance.payer(decision.workload))
            blobs = self._blobs.get(claimed.spec.run, claimed.blobs()) if claimed is not None else {}
        except _NOT_NOW as gone:
            log.warning("a claim was not answered", stage=decision.workload, error=str(gone))
            self._due_ms = 0 if isinstance(gone, EpochChanged) else self._due_ms
            claimed = None  # If it was taken in all the same, `_compare` gives it back.
        if claimed is None:
            return self._scheduler.handle(events.WorkloadWithdrawn(workload=decision.workload))
        running = self._running[decision.workload] = _running_of(claimed, self._clock.monotonic_ms())
        running.delivered.update(claimed.inputs)
        flavor = self._scheduler.ledger.pools[decision.pool].spec.flavor
        note = StageNote(claim=claimed.claim.token, pool=decision.pool, flavor=flavor, slots=decision.slots, token=decision.token)
        inputs = {node: _delivered(value, blobs) for node, value in claimed.inputs.items()}
        holder = self._host.start(claimed.spec, decision.slots, claimed.claim.token, blobs, inputs, written(note))
        self._untold.append(self._telling_start(running, holder, note))
        self._guard(self._tell_in_turn)
        if claimed.cancelled:
            self._cancel(running)
        return []

    def _bring_inputs(self, stage: StageId) -> None:
        if not self._running[stage].is_disowned:
            self._bring(self._running[stage], self._queue.inputs_of(stage))

    def _bring(self, running: _Running, inputs: dict[NodeId, StoredValue | None]) -> None:
        fresh = {node: value for node, value in inputs.items() if node not in running.delivered}
        inline = tuple(value.sha256 for value in fresh.values() if value is not None and value.uri is None)
        blobs = self._blobs.get(running.run, inline) if inline else {}
        for node, value in fresh.items():
            running.delivered.add(node)
            self._host.deliver(running.claim.stage, node, _delivered(value, blobs))

    def _cancel(self, running: _Running) -> None:
        if not running.cancelled:
            running.cancelled = True
            self._host.cancel(running.claim.stage)

    def _compare(self) -> None:
        """Hold what runs here against what the store says that we have claimed."""
        if self._untold:
            return  # The store does not know yet what we know.
        claims = self._queue.claims_of(self._held_session())
        for stage in sorted(self._running.keys() - {claimed.claim.stage for claimed in claims}):
            if not self._running[stage].is_disowned:  # The store has lost its last second, or somebody has closed the claim.
                self._disown(self._running[stage])
        for claimed in claims:
            running = self._running.get(claimed.claim.stage)
            if running is None:
                self._tell_lost(claimed.claim, Reason.LEDGER_UNREACHABLE)
                continue
            self._bring(running, claimed.inputs)
            if claimed.cancelled:
                self._cancel(running)

    def _tell_lost(self, claim: Claim, reason: Reason) -> None:
        """Give the claim back: its answer or its end got lost on the way, its runner is dead, or what it told is never taken."""
        with contextlib.suppress(StaleFence):  # Its run was forgotten since we asked.
            self._queue.report(claim, LAST_WORD, (_lost(claim, reason),))


def _running_of(claimed: ClaimedStage, now_ms: int) -> _Running:
    """One that is found running may be asked to stop no sooner than one that starts now: how long it runs is not known."""
    return _Running(claim=claimed.claim, run=claimed.spec.run, priority=claimed.spec.priority, started_ms=now_ms)


def _of_whole_slot(refused: LeaseRefused, slot: ResourceSet, missing: ResourceSet) -> LeaseRefused:
    """The answer to the question for what is missing, in words of whole slots: what lies idle may be taken as well."""
    short = refused.resource
    return replace(refused, wanted=slot[short], available=max(0, refused.available) + slot[short] - missing[short]) if short else refused


def _delivered(value: StoredValue | None, blobs: dict[str, bytes]) -> Delivered:
    return None if value is None else (value, blobs.get(value.sha256) if value.uri is None else None)


def _lost(claim: Claim, reason: Reason) -> StageLost:
    return StageLost(stage=claim.stage, mesh=claim.mesh, incarnation=claim.incarnation, reason=reason)


def _of_one_that_gave_way(running: _Running, messages: tuple[StageMessage, ...]) -> tuple[StageMessage, ...]:
    """It did not end and nobody has cancelled it: what was stopped runs again when there is quota."""
    lost = _lost(running.claim, running.gives_way_because)
    kept = [message for message in messages if not (isinstance(message, NodeFailed) and message.failure.reason is Reason.CANCELLED_BY_USER)]
    return tuple(lost if isinstance(message, StageEnded) else message for message in kept)
