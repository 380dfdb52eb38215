"""Ledger, stage queue and blobs in one process: for tests, simulations, and a federation in one process.

The memory store behaves as the Redis stores; one contract suite runs on both. It encodes as JSON what they encode as JSON, so values that
cannot be stored there cannot be stored here.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from operator import attrgetter

from federation.dispatch import (
    CLAIMS_PER_UNIT,
    CONTESTED,
    STAGE_MESSAGES,
    Claim,
    ClaimedStage,
    ClaimStatus,
    HeldClaim,
    InboxEntry,
    Notification,
    NotificationKind,
    Orphan,
    OrphanKind,
    QueuedStage,
    StageAges,
    digest_of,
)
from federation.errors import EarlierReportsLost, LeaseLost, LedgerRecovering, StaleFence, TooManyClaims
from federation.leases import Lease, LeaseTerms, Session
from federation.snapshot import FederationSnapshot, MeshView, RunningView
from federation.store.inbox_entries import (
    GONE,
    UNKNOWN,
    claim_status_of,
    closing_state,
    ended,
    head_of,
    lost,
    readable,
    refuse_foreign,
    refuse_many,
    waiting_for,
)
from federation.store.lease_rows import marked_leaving
from federation.store.memory.demands import StageKind
from federation.store.memory.ledger import MemoryLedger
from federation.store.memory.rows import SessionRow
from federation.usage.records import LOG_MAX, Amounts, UsageEntry
from mesh.core.clock import Clock
from mesh.core.ids import MeshId, NodeId, RunId, StageId
from mesh.core.reasons import Reason
from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.shapes import gang_size
from mesh.core.values import StoredValue
from mesh.core.wire import decode, encode
from mesh.stages.messages import NodeCheckpoint, NodeOutput, StageMessage, StageResized
from mesh.stages.spec import StageSpec

_NOTIFICATIONS_KEPT = 1000


@dataclass(slots=True, kw_only=True)
class _Stage:
    """Record of a stage."""

    mesh: MeshId
    head: QueuedStage
    spec: bytes
    arrival: int
    state: str = "queued"  #: `queued`, `claimed`, `ended`, `lost`, `cancelled`.
    claim: Claim | None = None  #: The last claim; a stage has at most one in its life.
    paid_by: Lease | None = None  #: The lease that the claim was made under.
    slots: int = 0  #: Slots of the stage, as last reported.
    saved_ms: int | None = None  #: When a node of it last saved a checkpoint.
    batch: int = 0  #: The last batch accepted under the claim.
    cancelled: bool = False
    since_ms: int = 0  #: When the stage came into its present state and queue, on the wall clock.
    created_ms: int = 0  #: When it was queued, on the wall clock.
    deadline_ms: int | None = None  #: Limit from the claim to the take-back.
    overdue: int | None = None  #: Time of the take-back on the lease clock; None if the stage is not claimed or has no deadline.
    inputs: dict[NodeId, bytes] = field(default_factory=dict)
    is_uncounted: bool = False  #: The report of its beginning was left out; see `lua/lib_usage.lua`.

    @property
    def takes(self) -> ResourceSet:
        """Amounts that the claim takes of its lease."""
        return self.head.slot.times(self.slots)


class MemoryStore(MemoryLedger):
    """`LeaseLedger`, `StageQueue` and `BlobStore` in one; thread-safe.

    Args:
        clock: The ledger's time. Waits for notifications use real time.
        ttl_ms: Life of a session after each heartbeat.
        grace_ms: Further wait before the ledger reclaims what a silent session holds.
        max_step_ms: Longest step of the lease clock. The default is unlimited, because tests set their clock on purpose.
    """

    def __init__(self, *, clock: Clock, ttl_ms: int, grace_ms: int, max_step_ms: int = 2**53) -> None:
        super().__init__(clock=clock, terms=LeaseTerms(ttl_ms=ttl_ms, grace_ms=grace_ms, max_step_ms=max_step_ms))
        self._entries = 0  #: Count of notifications, inbox entries and arrivals.
        self._claims: defaultdict[MeshId, dict[StageId, Claim]] = defaultdict(dict)  #: In the order of the claims.
        self._stages: dict[StageId, _Stage] = {}
        self._forgotten: set[RunId] = set()  #: Runs whose late stages are refused.
        self._notifications: defaultdict[MeshId, deque[tuple[int, Notification]]] = defaultdict(lambda: deque(maxlen=_NOTIFICATIONS_KEPT))
        self._inbox: dict[str, InboxEntry] = {}
        self._blobs: defaultdict[RunId, dict[str, bytes]] = defaultdict(dict)
        self._on_release: list[Callable[[RunId], None]] = []
        self._versions: list[Callable[[RunId], int | None]] = []
        self._use: list[UsageEntry] = []  #: Reports on use, oldest first.
        self.use_left_out = 0  #: Reports on use that found no room.
        self._user_of: Callable[[RunId], str] = _nobody

    # ---- snapshot, and hooks of the ledger

    def snapshot(self) -> FederationSnapshot:
        with self._changed:
            self._tick()
            leases = tuple(sorted(self._lease_views(), key=lambda view: view.token))
            return FederationSnapshot(
                at_ms=self._clock.wall_ms(),
                tree=self._configured.with_vanished(self._vanished, {**self._usage, **self._targeted}),
                usage=dict(self._usage),
                meshes=tuple(self._view(session_row) for _, session_row in sorted(self._session_rows.items())),
                leases=leases,
                demands=tuple(self._demands.views(self._lt)),
                running=marked_leaving(self._running_views(), leases),
                version=self._version,
                epoch=self._epoch,
                recovery_ms=self._recovery_left(),
            )

    def _view(self, session_row: SessionRow) -> MeshView:
        mesh = session_row.record.mesh
        return MeshView(
            record=session_row.record,
            incarnation=session_row.incarnation,
            alive=session_row.expires > self._lt,
            heartbeat_age_ms=self._lt - session_row.heartbeat,
            waiting=sum(stage.mesh == mesh and stage.state == "queued" for stage in self._stages.values()),
            claimed=len(self._claims[mesh]),
        )

    def _running_views(self) -> Iterator[RunningView]:
        for mesh in sorted(self._session_rows):
            for claim in sorted(self._claims[mesh].values(), key=attrgetter("token")):
                record = self._stages[claim.stage]
                if record.paid_by is not None:
                    yield RunningView(
                        stage=claim.stage,
                        mesh=mesh,
                        tenant=record.paid_by.tenant,
                        flavor=record.paid_by.flavor,
                        amounts=record.takes,
                        priority=record.head.priority,
                        token=claim.token,
                        since_ms=record.since_ms,
                        created_ms=record.head.created_ms or record.created_ms,
                        is_leaving=record.cancelled,
                        saved_ms=record.saved_ms,
                        slots=record.slots,
                    )

    def _lose_stages(self, session_row: SessionRow, reason: Reason = Reason.LEASE_EXPIRED) -> tuple[StageId, ...]:
        stages = tuple(sorted(self._claims[session_row.record.mesh]))
        for stage in stages:
            record = self._stages[stage]
            self._close(record, "lost")
            self.post(record.head.run, "stage", lost(stage, session_row.record.mesh, session_row.incarnation, reason))
        self._claims[session_row.record.mesh].clear()
        return stages

    def _hand_over_stages(self, session_row: SessionRow) -> None:
        claims = self._claims[session_row.record.mesh]
        for stage, claim in claims.items():
            claims[stage] = self._stages[stage].claim = replace(claim, incarnation=session_row.incarnation)

    def _drop_notifications(self, mesh: MeshId) -> None:
        self._notifications.pop(mesh, None)

    def _ask_for_idle(self, mesh: MeshId) -> None:
        self._post_notification(mesh, NotificationKind.LEASE, "")

    def _notify_of_plan(self, mesh: MeshId) -> None:
        self._post_notification(mesh, NotificationKind.PLAN, "")

    # ---- the stage queue

    def submit(self, mesh: MeshId, spec: StageSpec) -> bool:
        with self._changed:
            if spec.stage in self._stages or spec.run in self._forgotten:
                return False
            now_ms = self._clock.wall_ms()
            self._stages[spec.stage] = _Stage(
                mesh=mesh,
                head=replace(head_of(spec), queued_ms=now_ms),
                spec=encode(spec),
                arrival=self._next_entry(),
                since_ms=now_ms,
                created_ms=now_ms,
                deadline_ms=spec.deadline_ms,
            )
            self._post_notification(mesh, NotificationKind.STAGE, spec.stage)
            return True

    def waiting(self, mesh: MeshId, limit: int = 64) -> tuple[QueuedStage, ...]:
        with self._changed:
            return tuple(stage.head for stage in self._queued(mesh)[:limit])

    def queued(self, mesh: MeshId) -> tuple[StageId, ...]:
        with self._changed:
            return tuple(stage.head.stage for stage in self._queued(mesh))

    def heads_of(self, mesh: MeshId, stages: tuple[StageId, ...]) -> tuple[QueuedStage, ...]:
        with self._changed:
            named, now_ms = (self._stages[stage] for stage in stages if stage in self._stages), self._clock.wall_ms()
            return tuple(
                replace(stage.head, waited_ms=now_ms - stage.head.queued_ms)
                for stage in named
                if stage.mesh == mesh and stage.state == "queued"
            )

    def remembered(self, mesh: MeshId, stages: tuple[StageId, ...]) -> tuple[StageId, ...]:
        with self._changed:
            return tuple(stage for stage in stages if stage in self._stages and self._stages[stage].mesh == mesh)

    def _queued(self, mesh: MeshId) -> list[_Stage]:
        queued = (stage for stage in self._stages.values() if stage.mesh == mesh and stage.state == "queued")
        return sorted(queued, key=lambda stage: (-stage.head.priority, stage.arrival))

    def explain(self, session: Session, stages: tuple[StageId, ...], reason: Reason, detail: str) -> None:
        """Explain as `StageQueue.explain`. Calls of an ended session are ignored."""
        with self._changed:
            for stage in stages if self._is_current(session) else ():
                record = self._stages.get(stage)
                is_here = record is not None and record.mesh == session.mesh and record.state == "queued"
                if record is not None and is_here and record.head.reason != reason:
                    record.head = replace(record.head, reason=reason)
                    self.post(record.head.run, "stage", waiting_for(stage, reason, detail))

    def claim(self, session: Session, stage: StageId, lease: Lease | None, slots: int = 1) -> ClaimedStage | None:
        with self._changed:
            self._admit(session)
            self._session_row(session, live=True)
            claims = self._claims[session.mesh]
            record = self._stages.get(stage)
            mine = stage in claims
            if record is None or record.mesh != session.mesh or not (record.state == "queued" or mine):
                return None
            if not mine:
                if self._recovery_left():
                    raise LedgerRecovering(f"the ledger recovers for another {self._recovery_left()} ms; claim then")
                if not self._is_paid_by(session.mesh, lease) and (lease is not None or record.head.slot):
                    raise LeaseLost(f"mesh {session.mesh} does not hold the lease for {stage}")
                self._check_claims(session.mesh, record, lease, slots)
                claim = Claim(stage=stage, mesh=session.mesh, incarnation=session.incarnation, token=self._next_token())
                self._make_claim(claim, record, lease, slots)
            return _claimed(claims[stage], record)

    def _leave_queue(self, record: _Stage) -> None:
        """Withdraw what the mesh wanted for this stage alone; the caller has changed the record's state. See `lua/lib_queue.lua`."""
        if record.head.slot and self._demands.of(record.mesh):
            self._demands.bound(record.mesh, _kind_of(record.head), self._queued_slots(record.mesh, _kind_of(record.head)))

    def _queued_slots(self, mesh: MeshId, kind: StageKind) -> int:
        queued = (stage.head for stage in self._stages.values() if stage.mesh == mesh and stage.state == "queued")
        return sum(head.width for head in queued if _kind_of(head) == kind)

    def _make_claim(self, claim: Claim, record: _Stage, lease: Lease | None, slots: int) -> None:
        record.state, record.claim, record.paid_by, record.batch, record.slots = "claimed", claim, lease, 0, slots
        record.since_ms = self._clock.wall_ms()
        record.overdue = None if record.deadline_ms is None else self._lt + record.deadline_ms
        self._claims[claim.mesh][claim.stage] = claim
        self._leave_queue(record)
        self._note_use(record, held=record.takes, begins=True)

    def _check_claims(self, mesh: MeshId, record: _Stage, lease: Lease | None, slots: int) -> None:
        """Raises TooManyClaims."""
        if lease is None:
            return
        key = (lease.tenant, lease.flavor)
        others = (self._stages[stage] for stage in self._claims[mesh])
        paid_alike = [other for other in others if other.paid_by is not None and (other.paid_by.tenant, other.paid_by.flavor) == key]
        held = self._rows[mesh][key].held
        for resource, units in record.head.slot.times(slots).items():
            taken = sum(other.takes[resource] for other in paid_alike)
            if taken + units > CLAIMS_PER_UNIT * held.get(resource, 0):
                raise TooManyClaims(f"mesh {mesh} has claimed {CLAIMS_PER_UNIT} times what its lease holds; end some of it")

    def _is_paid_by(self, mesh: MeshId, lease: Lease | None) -> bool:
        row = self._rows.get(mesh, {}).get((lease.tenant, lease.flavor)) if lease is not None else None
        return row is not None and lease is not None and row.token == lease.token != 0

    def _is_revoked(self, record: _Stage) -> bool:
        """Return whether the lease of the claim was revoked with `hard`."""
        lease = record.paid_by
        row = self._rows.get(record.mesh, {}).get((lease.tenant, lease.flavor)) if lease is not None else None
        return row is not None and lease is not None and row.version > 0 and row.token != lease.token

    def resume(self, session: Session, claims: tuple[HeldClaim, ...]) -> tuple[ClaimStatus, ...]:
        """Resume as `StageQueue.resume`; see lua/resume.lua."""
        refuse_many(claims)
        with self._changed:
            self._admit(session)
            self._session_row(session, live=True)
            return tuple(claim_status_of(self._stands(session, held)) for held in claims)

    def _stands(self, session: Session, held: HeldClaim) -> int:
        record = self._stages.get(held.claim.stage)
        if record is None:
            return UNKNOWN if self._recovery_left() else GONE
        claim = replace(held.claim, mesh=session.mesh, incarnation=session.incarnation)
        if record.claim == claim:
            return record.batch if record.state == "claimed" or held.has_ended else GONE
        if record.state != "queued" or record.mesh != session.mesh or not self._recovery_left() or not held.is_whole:
            return GONE
        if claim.token >= self._epoch or digest_of(decode(StageSpec, record.spec)) != held.spec:
            return GONE
        if not held.has_ended and not self._may_pay(session.mesh, record, held):
            return GONE
        self._make_claim(claim, record, None if held.has_ended else held.lease, held.slots)
        return 0

    def _may_pay(self, mesh: MeshId, record: _Stage, held: HeldClaim) -> bool:
        if not self._is_paid_by(mesh, held.lease) and (held.lease is not None or record.head.slot):
            return False
        try:
            self._check_claims(mesh, record, held.lease, held.slots)
        except TooManyClaims:
            return False
        return True

    def report(self, claim: Claim, batch: int, messages: tuple[StageMessage, ...], *, after: int = 0) -> int:
        refuse_foreign(claim, messages)
        with self._changed:
            record = self._stages.get(claim.stage)
            if record is None or record.claim != claim or (record.state != "claimed" and batch > record.batch):
                raise StaleFence(f"claim {claim.token} of {claim.mesh} on {claim.stage} is not current")
            if batch <= record.batch:
                return batch
            state = closing_state(messages)
            if state != "lost" and self._is_revoked(record):
                raise StaleFence(f"the lease under which {claim.mesh} runs {claim.stage} was revoked")
            if record.batch < after:
                raise EarlierReportsLost(f"the store has lost reports of {claim.stage} before batch {batch}; report them again")
            record.batch = batch
            if messages:
                self.post(record.head.run, "stage", encode(list(messages), STAGE_MESSAGES))
                if any(isinstance(message, NodeCheckpoint) for message in messages):
                    record.saved_ms = self._clock.wall_ms()
                resized = next((message for message in reversed(messages) if isinstance(message, StageResized)), None)
                if resized is not None:
                    record.slots = resized.slots
                    self._note_use(record, held=record.takes)
            if state is not None:
                self._claims[claim.mesh].pop(claim.stage, None)
                self._close(record, state)
            return batch

    def deliver(self, stage: StageId, node: NodeId, value: StoredValue | None) -> None:
        with self._changed:
            record = self._stages.get(stage)
            if record is not None and record.state in ("queued", "claimed") and node not in record.inputs:
                record.inputs[node] = encode(value, StoredValue | None)
                self._post_notification(record.mesh, NotificationKind.INPUT, stage)

    def inputs_of(self, stage: StageId) -> dict[NodeId, StoredValue | None]:
        with self._changed:
            return _inputs(self._stages[stage]) if stage in self._stages else {}

    def cancel(self, stage: StageId) -> None:
        with self._changed:
            record = self._stages.get(stage)
            if record is not None and record.state == "queued":
                self._close(record, "cancelled")
                self._leave_queue(record)
                self.post(record.head.run, "stage", ended(stage))
            elif record is not None and record.state == "claimed":
                record.cancelled = True
                self._post_notification(record.mesh, NotificationKind.CANCEL, stage)

    def claims_of(self, session: Session) -> tuple[ClaimedStage, ...]:
        """Return claims as `StageQueue.claims_of`, in the order of the claims."""
        with self._changed:
            claims = self._claims[session.mesh].items() if self._is_current(session) else ()
            return tuple(readable(claims, lambda row: _claimed(row[1], self._stages[row[0]]), session.mesh))

    def take_back_overdue(self, limit: int = 200) -> tuple[StageId, ...]:
        with self._changed:
            self._tick()
            if self._recovery_left():
                return ()
            due = [(record.overdue, stage) for stage, record in self._stages.items() if record.overdue is not None]
            taken = tuple(stage for overdue, stage in sorted(due) if overdue <= self._lt)[:limit]
            for stage in taken:
                record = self._stages[stage]
                incarnation = record.claim.incarnation if record.claim is not None else 0
                self._claims[record.mesh].pop(stage, None)
                self._close(record, "lost")
                self.post(record.head.run, "stage", lost(stage, record.mesh, incarnation, Reason.DEADLINE_EXCEEDED))
                self._post_notification(record.mesh, NotificationKind.CANCEL, stage)
            return taken

    def ages(self) -> dict[MeshId, StageAges]:
        with self._changed:
            now_ms = self._clock.wall_ms()
            found: dict[MeshId, dict[str, list[int]]] = {mesh: {"queued": [], "claimed": []} for mesh in self._session_rows}
            for record in self._stages.values():
                if record.state in ("queued", "claimed") and record.mesh in found:
                    found[record.mesh][record.state].append(now_ms - record.since_ms)
            return {
                mesh: StageAges(
                    queued_ms=max(ages["queued"], default=0),
                    claimed_ms=max(ages["claimed"], default=0),
                    claimed_ms_min=min(ages["claimed"], default=0),
                )
                for mesh, ages in found.items()
            }

    def orphans(self) -> tuple[Orphan, ...]:
        """Audit as `StageQueue.orphans`. A stage's record is also its queue entry here, so only claims can become orphans."""
        with self._changed:
            found = []
            for mesh, claims in self._claims.items():
                incarnation = self._session_rows[mesh].incarnation if mesh in self._session_rows else 0
                for stage, claim in claims.items():
                    if stage not in self._stages:
                        found.append(Orphan(kind=OrphanKind.INDEX_WITHOUT_RECORD, stage=stage, mesh=mesh, detail="named as claimed"))
                    elif claim.incarnation != incarnation:
                        words = f"claimed by session {claim.incarnation}"
                        found.append(Orphan(kind=OrphanKind.CLAIMED_WITHOUT_SESSION, stage=stage, mesh=mesh, detail=words))
            for stage, record in self._stages.items():
                if record.state == "claimed" and stage not in self._claims[record.mesh]:
                    found.append(Orphan(kind=OrphanKind.RECORD_WITHOUT_INDEX, stage=stage, mesh=record.mesh, detail="it is claimed"))
            return tuple(found)

    def forget(self, run: RunId, meshes: tuple[MeshId, ...], *, keep: tuple[str, ...] | None = None, version: int | None = None) -> bool:
        with self._changed:
            stored = [found for version_of in self._versions if (found := version_of(run)) is not None]
            if (version not in stored) if stored else (version is not None):
                return False
            if keep is not None:
                self._blobs[run] = self.get(run, keep)
            for stage in [stage for stage, record in self._stages.items() if record.head.run == run]:
                record = self._stages.pop(stage)
                if record.state == "claimed":
                    self._claims[record.mesh].pop(stage, None)
                    self._note_use(record, held=NOTHING)
                elif record.state == "queued":
                    self._leave_queue(record)
            self._forgotten.add(run)
            for mesh in meshes:
                self._post_notification(mesh, NotificationKind.FORGET, run)
            return True

    def reopen(self, run: RunId) -> None:
        """Accept stages of a resumed run again."""
        with self._changed:
            self._forgotten.discard(run)

    def release_id(self, run: RunId) -> None:
        """Allow another run to use the id of this removed run."""
        with self._changed:
            self._forgotten.discard(run)
        for drop in self._on_release:
            drop(run)

    def fence_by(self, version_of: Callable[[RunId], int | None]) -> None:
        """Forget a run only at this version; None: it is not stored."""
        self._versions.append(version_of)

    def on_release(self, drop: Callable[[RunId], None]) -> None:
        """Call `drop` with each run that is removed."""
        self._on_release.append(drop)

    def run_under(self, claim: Claim, output: tuple[NodeOutput, ...]) -> RunId:
        """Return the run whose stage the claim is on. Raises StaleFence if the claim is not current, or does not cover the output."""
        refuse_foreign(claim, output)
        with self._changed:
            record = self._stages.get(claim.stage)
            if record is None or record.claim != claim:
                raise StaleFence(f"claim {claim.token} of {claim.mesh} on {claim.stage} is not current")
            return record.head.run

    def notifications(self, mesh: MeshId, cursor: str, wait_ms: int) -> tuple[str, tuple[Notification, ...]]:
        with self._changed:
            notifications = self._notifications[mesh]
            if cursor == "":
                return (f"{notifications[-1][0]}-0" if notifications else "0-0"), ()
            after = int(cursor.split("-", maxsplit=1)[0])
            self._wait(wait_ms, lambda: bool(notifications) and notifications[-1][0] > after)
            newer = [(number, notification) for number, notification in notifications if number > after]
            return (f"{newer[-1][0]}-0" if newer else cursor), tuple(notification for _, notification in newer)

    def inbox(self, wait_ms: int, limit: int = 512) -> tuple[InboxEntry, ...]:
        with self._changed:
            self._wait(wait_ms, lambda: bool(self._inbox))
            return tuple(self._inbox.values())[:limit]

    def acknowledge(self, entries: tuple[str, ...]) -> None:
        with self._changed:
            for entry in entries:
                self._inbox.pop(entry, None)

    def post(self, run: RunId, kind: str, body: bytes) -> None:
        """Put an entry into the inbox. A run store in this process posts `submitted` and `cancel`."""
        with self._changed:
            entry = f"{self._next_entry()}-0"
            self._inbox[entry] = InboxEntry(entry=entry, run=run, kind=kind, body=body)
            self._changed.notify_all()

    def notify(self, mesh: MeshId, kind: NotificationKind) -> None:
        with self._changed:
            self._post_notification(mesh, kind, "")

    def _post_notification(self, mesh: MeshId, kind: NotificationKind, subject: str) -> None:
        self._notifications[mesh].append((self._next_entry(), Notification(kind=kind, subject=subject)))
        self._changed.notify_all()

    def _wake_all(self) -> None:
        waiting = {stage.mesh for stage in self._stages.values() if stage.state == "queued"}
        for mesh in self._session_rows:
            if mesh in waiting:
                self._wake(mesh)

    def _notify_of_contest(self) -> None:
        self.post(RunId(""), CONTESTED, b"")

    def _wake(self, mesh: MeshId) -> None:
        self._post_notification(mesh, NotificationKind.STAGE, "")

    def _next_entry(self) -> int:
        self._entries += 1
        return self._entries

    def _wait(self, wait_ms: int, there: Callable[[], bool]) -> None:
        if wait_ms > 0:
            self._changed.wait_for(there, timeout=wait_ms / 1000)

    def _close(self, record: _Stage, state: str) -> None:
        """Keep what late or repeated reports are checked against; drop the rest."""
        if record.state == "claimed":
            self._note_use(record, held=NOTHING)
        record.state, record.spec, record.overdue = state, b"", None
        record.inputs.clear()

    # ---- use

    def _note_use(self, record: _Stage, *, held: ResourceSet, begins: bool = False) -> None:
        """Report what the claim holds from now on; see `lua/lib_usage.lua`."""
        if record.paid_by is None:
            return
        was_uncounted, is_full = record.is_uncounted, bool(held) and len(self._use) >= LOG_MAX
        record.is_uncounted = is_full and (begins or was_uncounted)
        if is_full:
            self.use_left_out += 1
        elif held or not was_uncounted:
            self._add_use(record, self._clock.wall_ms(), held=dict(held))

    def note_lost(self, stage: StageId, at_ms: int, lost: Amounts) -> None:
        """Report work of the stage that a preemption has lost."""
        with self._changed:
            record = self._stages.get(stage)
            if record is not None and record.paid_by is not None and len(self._use) >= LOG_MAX:
                self.use_left_out += 1
            elif record is not None and record.paid_by is not None:
                self._add_use(record, at_ms, lost=lost)

    def _add_use(self, record: _Stage, at_ms: int, held: Amounts | None = None, lost: Amounts | None = None) -> None:
        assert record.paid_by is not None  # noqa: S101  the callers have checked it
        entry = UsageEntry(
            entry=f"{self._next_entry()}-0",
            at_ms=at_ms,
            stage=record.head.stage,
            tenant=record.paid_by.tenant,
            flavor=record.paid_by.flavor,
            user=self._user_of(record.head.run),
            held=held,
            lost=lost or {},
        )
        self._use.append(entry)

    def use_after(self, after: str) -> tuple[UsageEntry, ...]:
        """Return the reports on use after this one."""
        with self._changed:
            return tuple(entry for entry in self._use if _number(entry.entry) > _number(after))

    def drop_use(self, entries: tuple[str, ...]) -> None:
        """Remove reports on use."""
        with self._changed:
            self._use = [entry for entry in self._use if entry.entry not in entries]

    def name_users(self, user_of: Callable[[RunId], str]) -> None:
        """Let reports on use name the users of runs."""
        self._user_of = user_of

    # ---- blobs

    def put(self, run: RunId, sha256: str, data: bytes) -> None:
        with self._changed:
            self._blobs[run].setdefault(sha256, data)

    def get(self, run: RunId, hashes: tuple[str, ...]) -> dict[str, bytes]:
        with self._changed:
            there = self._blobs.get(run, {})
            return {sha256: there[sha256] for sha256 in hashes if sha256 in there}

    def drop(self, run: RunId, sha256: str) -> None:
        with self._changed:
            self._blobs[run].pop(sha256, None)


def _nobody(_run: RunId) -> str:
    return ""


def _number(entry: str) -> int:
    return int(entry.partition("-")[0])


def _kind_of(head: QueuedStage) -> StageKind:
    return head.tenant, head.priority, head.slot, gang_size(head.gang)


def _claimed(claim: Claim, record: _Stage) -> ClaimedStage:
    return ClaimedStage(claim=claim, spec=decode(StageSpec, record.spec), inputs=_inputs(record), cancelled=record.cancelled)


def _inputs(record: _Stage) -> dict[NodeId, StoredValue | None]:
    return {node: decode(StoredValue | None, value) for node, value in record.inputs.items()}
