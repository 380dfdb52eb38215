"""A child mesh: joins the ledger, takes stages from its queue, has them run, tells what became of them.

One thread calls `beat` when it is due and hands in mail and reports; nothing here waits. The scheduler decides inside
the mesh's pools, the ledger grants leases, the host runs. While the store does not answer, what there is to tell is kept
and told later, in order. When the session is lost, or has not been renewed for its time to live by this process' own
clock, all work stops at once: the leases that paid for it are no longer ours.
"""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial

import structlog

from federation.blobs import BlobStore
from federation.dispatch import Claim, ClaimedStage, Mail, MailKind, StageQueue
from federation.errors import SessionLost, StaleFence, StoreUnavailable, UnknownTenant
from federation.leases import LeaseLedger, LeaseRefused, Session
from federation.snapshot import MeshRecord, PoolRecord
from mesh import admission_events as events
from mesh.admission import StageAdmission
from mesh.admission_decisions import AcquireLease, AdmissionDecision, ExplainWaiting, ReleaseLease, StartWorkload
from mesh.clock import Clock
from mesh.hosting import Delivered, HostReport, StageHost
from mesh.ids import LeaseId, NodeId, RunId, StageId
from mesh.messages import StageEnded, StageLost, StageMessage, StageStarted
from mesh.pools import PoolSpec
from mesh.reasons import Reason
from mesh.resources import ResourceSet, format_units
from mesh.values import StoredValue

log = structlog.get_logger(__name__)

#: Queued stages that are looked at together.
LOOK_LIMIT = 4096
#: The part of its time to live after which a session that could not be renewed counts as lost here: clocks differ in rate.
OWN_PART_OF_TTL = 0.99
#: A batch number beyond all others: whatever the store has taken in of a claim that is given back, this comes after it.
LAST_BATCH = 2**31
#: Every so many heartbeats the claims are compared with the store's, in case a letter went astray.
BEATS_PER_COMPARISON = 5


@dataclass(slots=True)
class _Running:
    """A stage that this mesh has claimed."""

    claim: Claim
    run: RunId
    batch: int = 0  #: Of the last report.
    delivered: set[NodeId] = field(default_factory=set)
    cancelled: bool = False


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
        self._session: Session | None = None
        self._renewed_ms = 0
        self._due_ms = 0
        self._beats = 0
        self._is_cut_off = False  #: The store did not answer a question since the last heartbeat.
        self._scheduler = self._new_scheduler()
        self._running: dict[StageId, _Running] = {}
        self._untold: deque[Callable[[], None]] = deque()
        self._doubtful: set[LeaseId] = set()  #: Asked for, and no answer came: perhaps granted.

    # -- the session ---------------------------------------------------------------------------------------------------

    def due_in_ms(self) -> int:
        """When `beat` wants to be called."""
        return max(0, self._due_ms - self._clock.monotonic_ms())

    def beat(self) -> None:
        """Renew the session, or begin one; tell what could not be told; look at the queue."""
        sent_ms = self._clock.monotonic_ms()
        self._due_ms = sent_ms + self._heartbeat_ms
        try:
            if self._session is None:
                self._session = self._ledger.join(self._now())
                log.info("joined", mesh=self._record.mesh, incarnation=self._session.incarnation)
            else:
                self._ledger.heartbeat(self._session, self._now())
            self._renewed_ms = sent_ms
            self._is_cut_off = False
        except SessionLost:
            self._lose_session("the ledger has ended it")
            self._due_ms = sent_ms
            return
        except StoreUnavailable as gone:
            log.warning("the ledger does not answer", mesh=self._record.mesh, error=str(gone))
            self._look_at_the_clock(sent_ms)
            return
        self._beats += 1
        self._guard(self._tell)
        self._guard(self._clear_doubts)
        self._guard(self._look)
        if self._beats % BEATS_PER_COMPARISON == 0:
            self._guard(self._compare)
        self._look_at_the_clock(self._clock.monotonic_ms())

    def _look_at_the_clock(self, now_ms: int) -> None:
        if self._session is None:
            return
        over_ms = self._renewed_ms + math.ceil(self._session.ttl_ms * OWN_PART_OF_TTL)
        if now_ms >= over_ms:
            self._lose_session("it could not be renewed in time")
        else:
            self._due_ms = min(self._due_ms, over_ms)

    def leave(self) -> None:
        """Stop all work and end the session, so that its quota is free at once."""
        self._host.stop_all()
        session, self._session = self._session, None
        if session is not None:
            self._ledger.leave(session)

    def _lose_session(self, why: str) -> None:
        log.warning("session lost: all work stops", mesh=self._record.mesh, why=why, stages=sorted(self._running))
        self._host.stop_all()
        self._session = None
        self._running.clear()
        self._untold.clear()
        self._doubtful.clear()
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
            if self._session is not None:
                work()
        except SessionLost:
            self._lose_session("the ledger has ended it")
            self._due_ms = 0
        except StoreUnavailable as gone:
            log.warning("the store does not answer", mesh=self._record.mesh, error=str(gone))

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

    def take_report(self, report: HostReport) -> None:
        """What the host tells of a stage."""
        running = self._running.get(report.stage)
        if running is None:
            return
        over = any(isinstance(message, (StageEnded, StageLost)) for message in report.messages)
        self._untold.append(self._telling(running, report.messages, report.blobs))
        if over:
            del self._running[report.stage]
            self._untold.append(lambda: self._carry_out(self._scheduler.handle(events.WorkloadEnded(workload=report.stage))))
        self._guard(self._tell)

    def _telling(self, running: _Running, messages: tuple[StageMessage, ...], blobs: dict[str, bytes]) -> Callable[[], None]:
        running.batch += 1
        batch = running.batch

        def tell() -> None:
            for sha256, data in blobs.items():
                self._blobs.put(running.run, sha256, data)
            try:
                self._queue.report(running.claim, batch, messages)
            except StaleFence:
                log.warning("a stage is no longer ours", mesh=self._record.mesh, stage=running.claim.stage)
                self._running.pop(running.claim.stage, None)
                self._host.cancel(running.claim.stage)
                self._carry_out(self._scheduler.handle(events.WorkloadEnded(workload=running.claim.stage)))

        return tell

    def _tell(self) -> None:
        while self._untold:
            self._untold[0]()
            if self._untold:
                self._untold.popleft()

    # -- the queue -----------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        waiting = self._queue.waiting(self._record.mesh, LOOK_LIMIT)
        there = {stage.stage for stage in waiting}
        news: list[events.AdmissionEvent] = [
            events.WorkloadOffered(
                workload=stage.stage, tenant=stage.tenant, slot=ResourceSet(stage.slot), width=stage.width, priority=stage.priority
            )
            for stage in waiting
            if stage.stage not in self._scheduler.workloads
        ]
        if len(waiting) < LOOK_LIMIT:
            gone = [name for name in self._scheduler.workloads if name not in there and name not in self._running]
            news.extend(events.WorkloadWithdrawn(workload=name) for name in gone)
        self._carry_out(self._scheduler.handle(*news, events.RoomMayHaveCome()))

    def _carry_out(self, decisions: Iterable[AdmissionDecision]) -> None:
        pending = deque(decisions)
        while pending:
            decision = pending.popleft()
            if isinstance(decision, AcquireLease):
                pending.extend(self._scheduler.handle(self._acquire(decision)))
            elif isinstance(decision, StartWorkload):
                pending.extend(self._start(decision))
            elif isinstance(decision, ReleaseLease):
                self._untold.append(partial(self._release, LeaseId(decision.workload)))
                self._guard(self._tell_in_turn)
            elif isinstance(decision, ExplainWaiting):
                self._untold.append(partial(self._explain, decision))
                self._guard(self._tell_in_turn)

    def _tell_in_turn(self) -> None:
        """Tell, unless this is called from within telling: then it comes in turn anyway."""
        if len(self._untold) == 1:
            self._tell()

    def _release(self, lease: LeaseId) -> None:
        if self._session is not None:
            self._ledger.release(self._session, lease)

    def _explain(self, told: ExplainWaiting) -> None:
        if self._session is not None:
            self._queue.explain(self._session, told.workload, told.reason, told.detail)

    def _clear_doubts(self) -> None:
        for lease in tuple(self._doubtful):
            self._clear_doubt(lease)

    def _clear_doubt(self, lease: LeaseId) -> None:
        """Give back what may have been granted; asked again now, it could come with another flavor or more slots than there is room for."""
        if lease in self._doubtful:
            self._release(lease)
            self._doubtful.discard(lease)

    def _acquire(self, wanted: AcquireLease) -> events.LeaseGranted | events.LeaseRefused:
        session, lease = self._held_session(), LeaseId(wanted.workload)
        if self._is_cut_off:  # Asking for each queued stage in turn would take longer than our session lives.
            return events.LeaseRefused(
                workload=wanted.workload, reason=Reason.LEDGER_UNREACHABLE, detail="it did not answer the last question"
            )
        try:
            self._clear_doubt(lease)
            answer = self._ledger.acquire(session, lease, wanted.tenant, wanted.flavor, wanted.slot, wanted.want)
        except StoreUnavailable as gone:
            self._is_cut_off = True
            self._doubtful.add(lease)
            return events.LeaseRefused(workload=wanted.workload, reason=Reason.LEDGER_UNREACHABLE, detail=str(gone))
        except UnknownTenant as unknown:
            return events.LeaseRefused(workload=wanted.workload, reason=Reason.QUOTA_TOO_SMALL, detail=str(unknown))
        if isinstance(answer, LeaseRefused):
            return events.LeaseRefused(workload=wanted.workload, reason=answer.reason, detail=_in_words(answer))
        return events.LeaseGranted(workload=wanted.workload, slots=answer.slots, token=answer.token)

    def _held_session(self) -> Session:
        if self._session is None:
            raise SessionLost(f"mesh {self._record.mesh} has no session")
        return self._session

    def _start(self, decision: StartWorkload) -> list[AdmissionDecision]:
        try:
            claimed = self._queue.claim(self._held_session(), decision.workload)
            blobs = self._blobs.get(claimed.spec.run, _named_in(claimed)) if claimed is not None else {}
        except StoreUnavailable as gone:
            log.warning("a claim was not answered", stage=decision.workload, error=str(gone))
            claimed = None  # If it was taken in all the same, `_compare` gives it back.
        if claimed is None:
            return self._scheduler.handle(events.WorkloadWithdrawn(workload=decision.workload))
        running = _Running(claim=claimed.claim, run=claimed.spec.run, delivered=set(claimed.inputs))
        self._running[decision.workload] = running
        inputs = {node: _delivered(value, blobs) for node, value in claimed.inputs.items()}
        holder = self._host.start(claimed.spec, decision.slots, decision.token, blobs, inputs)
        started = StageStarted(
            stage=decision.workload,
            mesh=self._record.mesh,
            incarnation=holder,
            cluster=self._record.cluster,
            slots=decision.slots,
            token=decision.token,
        )
        self._untold.append(self._telling(running, (started,), {}))
        self._guard(self._tell_in_turn)
        if claimed.cancelled:
            self._cancel(running)
        return []

    def _bring_inputs(self, stage: StageId) -> None:
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
        for stage in self._running.keys() - {claimed.claim.stage for claimed in claims}:
            self._drop_unpaid(stage)
        for claimed in claims:
            running = self._running.get(claimed.claim.stage)
            if running is None:
                self._give_back(claimed)
                continue
            self._bring(running, claimed.inputs)
            if claimed.cancelled:
                self._cancel(running)

    def _drop_unpaid(self, stage: StageId) -> None:
        """The store knows of no claim of ours: it has lost its last second, and nobody pays for what runs."""
        log.warning("a stage is no longer ours", mesh=self._record.mesh, stage=stage)
        del self._running[stage]
        self._host.cancel(stage)
        self._carry_out(self._scheduler.handle(events.WorkloadEnded(workload=stage)))

    def _give_back(self, claimed: ClaimedStage) -> None:
        """A claim of which nothing runs here: its answer got lost, or the store has lost the end that we told it."""
        claim = claimed.claim
        lost = StageLost(stage=claim.stage, mesh=claim.mesh, incarnation=claim.incarnation, reason=Reason.LEDGER_UNREACHABLE)
        with contextlib.suppress(StaleFence):  # Its run was forgotten since we asked.
            self._queue.report(claim, LAST_BATCH, (lost,))
        self._release(LeaseId(claim.stage))


def _named_in(claimed: ClaimedStage) -> tuple[str, ...]:
    """The hashes of everything that the stage needs from the control store."""
    return (*claimed.spec.blobs(), *(value.sha256 for value in claimed.inputs.values() if value is not None and value.uri is None))


def _delivered(value: StoredValue | None, blobs: dict[str, bytes]) -> Delivered:
    return None if value is None else (value, blobs.get(value.sha256) if value.uri is None else None)


def _in_words(refused: LeaseRefused) -> str:
    available = format_units(refused.resource, max(0, refused.available))
    wanted = format_units(refused.resource, refused.wanted)
    return f"{refused.tenant} may take {available} {refused.resource} of {refused.flavor} now, one slot takes {wanted}"
