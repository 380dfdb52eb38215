"""Ledger, stage queue and blobs in one process: for tests, simulation, and a federation of one.

It answers as the Redis stores do; one contract suite runs over both. What they would write as JSON is written as JSON here
too, so what cannot cross there cannot cross here.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from federation.dispatch import STAGE_MESSAGES, Claim, ClaimedStage, InboxEntry, Mail, MailKind, QueuedStage
from federation.errors import SessionLost, StaleFence
from federation.leases import Lease, LeaseRefused, Session, Swept
from federation.snapshot import MeshRecord, MeshView, Snapshot
from federation.store.lease_view import view_of
from federation.store.stage_letters import closing_state, ended, head_of, lost, refuse_foreign, waiting_for
from federation.tenants import Tenant, TenantTree
from mesh.clock import Clock
from mesh.errors import AmountError
from mesh.ids import FlavorName, LeaseId, MeshId, NodeId, RunId, StageId, TenantPath
from mesh.messages import StageMessage
from mesh.reasons import Reason
from mesh.resources import ResourceSet
from mesh.stages import StageSpec
from mesh.values import StoredValue
from mesh.wire import decode, encode

_LETTERS_KEPT = 1000


@dataclass(slots=True, kw_only=True)
class _Seat:
    """A mesh's place in the ledger: its present session, or its last."""

    record: MeshRecord
    incarnation: int
    expires_ms: int
    heartbeat_ms: int
    swept: bool = False
    leases: dict[LeaseId, Lease] = field(default_factory=dict)
    claims: dict[StageId, Claim] = field(default_factory=dict)  #: In the order in which they were made.


@dataclass(slots=True, kw_only=True)
class _Stage:
    """A stage's record."""

    mesh: MeshId
    head: QueuedStage
    spec: bytes
    arrival: int
    state: str = "queued"  #: `queued`, `claimed`, `ended`, `lost`, `cancelled`.
    claim: Claim | None = None  #: The last; there is at most one in a stage's life.
    batch: int = 0  #: The last that was taken in under the claim.
    cancelled: bool = False
    inputs: dict[NodeId, bytes] = field(default_factory=dict)


class MemoryStore:
    """`LeaseLedger`, `StageQueue` and `BlobStore` at once; safe to call from many threads.

    Args:
        clock: The ledger's time. Waiting for mail is in real time whatever the clock says.
        ttl_ms: How long a session lives after each heartbeat.
        grace_ms: How much longer the ledger waits before it takes back what a silent session holds.
    """

    def __init__(self, *, clock: Clock, ttl_ms: int, grace_ms: int) -> None:
        self._clock = clock
        self._ttl_ms = ttl_ms
        self._grace_ms = grace_ms
        self._changed = threading.Condition(threading.RLock())
        self._token = 0
        self._entries = 0  #: Letters, inbox entries and arrivals ever counted.
        self._configured = TenantTree()
        self._vanished: dict[TenantPath, TenantPath | None] = {}
        self._tree = TenantTree()  #: The configured tree and the vanished tenants: what is charged.
        self._usage: dict[tuple[TenantPath, FlavorName, str], int] = {}
        self._seats: dict[MeshId, _Seat] = {}
        self._stages: dict[StageId, _Stage] = {}
        self._forgotten: set[RunId] = set()  #: Runs whose late stages are refused.
        self._mail: defaultdict[MeshId, deque[tuple[int, Mail]]] = defaultdict(lambda: deque(maxlen=_LETTERS_KEPT))
        self._inbox: dict[str, InboxEntry] = {}
        self._blobs: defaultdict[RunId, dict[str, bytes]] = defaultdict(dict)

    # ---- the ledger

    def configure(self, tree: TenantTree) -> None:
        """See `LeaseLedger.configure`."""
        with self._changed:
            leases = [lease for seat in self._seats.values() for lease in seat.leases.values()]
            vanished: dict[TenantPath, TenantPath | None] = {}
            for lease in leases:
                path: TenantPath | None = lease.tenant
                while path is not None and path not in tree.tenants:
                    parent = self._tree.tenant(path).parent
                    vanished[path] = parent
                    path = parent
            self._configured, self._vanished = tree, vanished
            self._tree = TenantTree([*tree.tenants.values(), *(Tenant(path=path, parent=parent) for path, parent in vanished.items())])
            self._usage = self._tree.recompute(leases)
            self._wake_meshes()

    def join(self, record: MeshRecord) -> Session:
        """See `LeaseLedger.join`."""
        with self._changed:
            earlier = self._seats.get(record.mesh)
            if earlier is not None:
                self._give_back(earlier)
            now_ms = self._clock.monotonic_ms()
            incarnation = self._next_token()
            seat = _Seat(record=record, incarnation=incarnation, expires_ms=now_ms + self._ttl_ms, heartbeat_ms=now_ms)
            self._seats[record.mesh] = seat
            if earlier is not None and earlier.leases:
                self._wake_meshes()
            return Session(mesh=record.mesh, incarnation=incarnation, ttl_ms=self._ttl_ms)

    def heartbeat(self, session: Session, record: MeshRecord) -> None:
        """See `LeaseLedger.heartbeat`."""
        with self._changed:
            seat = self._seat_of(session)
            seat.heartbeat_ms = self._clock.monotonic_ms()
            seat.expires_ms = seat.heartbeat_ms + self._ttl_ms
            seat.record = record

    def leave(self, session: Session) -> None:
        """See `LeaseLedger.leave`."""
        with self._changed:
            seat = self._seats.get(session.mesh)
            if seat is None or seat.incarnation != session.incarnation:
                return
            self._give_back(seat)
            del self._seats[session.mesh]
            if seat.leases:
                self._wake_meshes()

    def acquire(  # the port's signature
        self, session: Session, lease: LeaseId, tenant: TenantPath, flavor: FlavorName, slot: ResourceSet, want: int
    ) -> Lease | LeaseRefused:
        """See `LeaseLedger.acquire`. Raises AmountError besides, when `want` is less than 1."""
        if want < 1:
            raise AmountError(f"{want} slots were asked for; ask for at least 1")
        with self._changed:
            seat = self._seat_of(session, live=True)
            if lease in seat.leases:
                return seat.leases[lease]
            self._configured.tenant(tenant)
            room = {resource: max(0, self._tree.available(self._usage, tenant, (flavor, resource))) for resource in slot}
            slots = min([want, *(room[resource] // units for resource, units in slot.items())])
            if slots == 0:
                return self._refusal(tenant, flavor, slot, room)
            granted = Lease(lease=lease, tenant=tenant, mesh=session.mesh, flavor=flavor, slot=slot, slots=slots, token=self._next_token())
            seat.leases[lease] = granted
            self._charge(granted, 1)
            return granted

    def _refusal(self, tenant: TenantPath, flavor: FlavorName, slot: ResourceSet, room: dict[str, int]) -> LeaseRefused:
        """Named after a resource that could never do, else after one that is short now; the first by name."""
        never = [resource for resource in sorted(slot) if self._tree.potential(tenant, (flavor, resource)) < slot[resource]]
        short = never or [resource for resource in sorted(slot) if room[resource] < slot[resource]]
        return LeaseRefused(
            reason=Reason.QUOTA_TOO_SMALL if never else Reason.QUOTA_EXHAUSTED,
            tenant=tenant,
            flavor=flavor,
            resource=short[0],
            wanted=slot[short[0]],
            available=room[short[0]],
        )

    def release(self, session: Session, lease: LeaseId) -> bool:
        """See `LeaseLedger.release`."""
        with self._changed:
            held = self._seat_of(session).leases.pop(lease, None)
            if held is None:
                return False
            self._charge(held, -1)
            self._wake_meshes()
            return True

    def sweep(self) -> Swept:
        """See `LeaseLedger.sweep`."""
        with self._changed:
            latest_ms = self._clock.monotonic_ms() - self._grace_ms
            overdue = [seat for _, seat in sorted(self._seats.items()) if not seat.swept and seat.expires_ms < latest_ms]
            leases = sum(len(seat.leases) for seat in overdue)
            stages = tuple(stage for seat in overdue for stage in sorted(seat.claims))
            for seat in overdue:
                self._give_back(seat)
                seat.swept = True
                seat.leases, seat.claims = {}, {}
            if leases:
                self._wake_meshes()
            return Swept(meshes=tuple(seat.record.mesh for seat in overdue), leases=leases, stages=stages)

    def snapshot(self) -> Snapshot:
        """See `LeaseLedger.snapshot`."""
        with self._changed:
            held = sorted((lease for seat in self._seats.values() for lease in seat.leases.values()), key=lambda lease: lease.token)
            return Snapshot(
                at_ms=self._clock.wall_ms(),
                tree=self._configured.with_vanished(self._vanished, self._usage),
                usage=dict(self._usage),
                meshes=tuple(self._view(seat) for _, seat in sorted(self._seats.items())),
                leases=tuple(view_of(lease) for lease in held),
            )

    def _view(self, seat: _Seat) -> MeshView:
        mesh = seat.record.mesh
        return MeshView(
            record=seat.record,
            incarnation=seat.incarnation,
            alive=self._is_live(seat),
            heartbeat_age_ms=self._clock.monotonic_ms() - seat.heartbeat_ms,
            waiting=sum(stage.mesh == mesh and stage.state == "queued" for stage in self._stages.values()),
            claimed=len(seat.claims),
        )

    def _is_live(self, seat: _Seat) -> bool:
        return not seat.swept and seat.expires_ms > self._clock.monotonic_ms()

    def _current(self, session: Session) -> _Seat | None:
        """The session's seat, if the session has not ended; its time may have run out."""
        seat = self._seats.get(session.mesh)
        return None if seat is None or seat.swept or seat.incarnation != session.incarnation else seat

    def _seat_of(self, session: Session, *, live: bool = False) -> _Seat:
        seat = self._current(session)
        if seat is None or (live and not self._is_live(seat)):
            raise SessionLost(f"session {session.incarnation} of {session.mesh} has ended or run out; join again")
        return seat

    def _charge(self, lease: Lease, sign: int) -> None:
        for resource, units in lease.amounts.items():
            self._tree.charge(self._usage, lease.tenant, (lease.flavor, resource), sign * units)

    def _give_back(self, seat: _Seat) -> None:
        """Return the leases up the tree, report the claimed stages lost; the seat itself is the caller's to clear."""
        for lease in seat.leases.values():
            self._charge(lease, -1)
        for stage in sorted(seat.claims):
            record = self._stages[stage]
            self._close(record, "lost")
            self.post(record.head.run, "stage", lost(stage, seat.record.mesh, seat.incarnation))

    def _next_token(self) -> int:
        self._token = max(self._token + 1, self._clock.wall_ms() * 1000)
        return self._token

    # ---- the stage queue

    def submit(self, mesh: MeshId, spec: StageSpec) -> bool:
        """See `StageQueue.submit`."""
        with self._changed:
            if spec.stage in self._stages or spec.run in self._forgotten:
                return False
            self._stages[spec.stage] = _Stage(mesh=mesh, head=head_of(spec), spec=encode(spec), arrival=self._next_entry())
            self._post_mail(mesh, MailKind.STAGE, spec.stage)
            return True

    def waiting(self, mesh: MeshId, limit: int = 64) -> tuple[QueuedStage, ...]:
        """See `StageQueue.waiting`."""
        with self._changed:
            queued = (stage for stage in self._stages.values() if stage.mesh == mesh and stage.state == "queued")
            return tuple(stage.head for stage in sorted(queued, key=lambda stage: (-stage.head.priority, stage.arrival))[:limit])

    def explain(self, session: Session, stage: StageId, reason: Reason, detail: str) -> None:
        """See `StageQueue.explain`. The word of a session that has ended is dropped."""
        with self._changed:
            record = self._stages.get(stage)
            if self._current(session) is None or record is None or record.mesh != session.mesh or record.state != "queued":
                return
            if record.head.reason != reason:
                record.head = replace(record.head, reason=reason)
                self.post(record.head.run, "stage", waiting_for(stage, reason, detail))

    def claim(self, session: Session, stage: StageId) -> ClaimedStage | None:
        """See `StageQueue.claim`."""
        with self._changed:
            seat = self._seat_of(session, live=True)
            record = self._stages.get(stage)
            mine = stage in seat.claims
            if record is None or record.mesh != session.mesh or not (record.state == "queued" or mine):
                return None
            if LeaseId(stage) not in seat.leases:
                raise SessionLost(f"session {session.incarnation} of {session.mesh} holds no lease {stage}")
            if not mine:
                claim = Claim(stage=stage, mesh=session.mesh, incarnation=session.incarnation, token=self._next_token())
                record.state, record.claim = "claimed", claim
                seat.claims[stage] = claim
            return _claimed(seat.claims[stage], record)

    def report(self, claim: Claim, batch: int, messages: tuple[StageMessage, ...]) -> None:
        """See `StageQueue.report`."""
        refuse_foreign(claim, messages)
        with self._changed:
            record = self._stages.get(claim.stage)
            if record is None or record.claim != claim or (record.state != "claimed" and batch > record.batch):
                raise StaleFence(f"claim {claim.token} of {claim.mesh} on {claim.stage} is not current")
            if batch <= record.batch:
                return
            record.batch = batch
            if messages:
                self.post(record.head.run, "stage", encode(list(messages), STAGE_MESSAGES))
            after = closing_state(messages)
            if after is not None:
                del self._seats[claim.mesh].claims[claim.stage]
                self._close(record, after)

    def deliver(self, stage: StageId, node: NodeId, value: StoredValue | None) -> None:
        """See `StageQueue.deliver`."""
        with self._changed:
            record = self._stages.get(stage)
            if record is not None and record.state in ("queued", "claimed") and node not in record.inputs:
                record.inputs[node] = encode(value, StoredValue | None)
                self._post_mail(record.mesh, MailKind.INPUT, stage)

    def inputs_of(self, stage: StageId) -> dict[NodeId, StoredValue | None]:
        """See `StageQueue.inputs_of`."""
        with self._changed:
            return _inputs(self._stages[stage]) if stage in self._stages else {}

    def cancel(self, stage: StageId) -> None:
        """See `StageQueue.cancel`."""
        with self._changed:
            record = self._stages.get(stage)
            if record is not None and record.state == "queued":
                self._close(record, "cancelled")
                self.post(record.head.run, "stage", ended(stage))
            elif record is not None and record.state == "claimed":
                record.cancelled = True
                self._post_mail(record.mesh, MailKind.CANCEL, stage)

    def claims_of(self, session: Session) -> tuple[ClaimedStage, ...]:
        """See `StageQueue.claims_of`; in the order of the claims."""
        with self._changed:
            seat = self._current(session)
            return () if seat is None else tuple(_claimed(claim, self._stages[stage]) for stage, claim in seat.claims.items())

    def forget(self, run: RunId, meshes: tuple[MeshId, ...]) -> None:
        """See `StageQueue.forget`."""
        with self._changed:
            for stage in [stage for stage, record in self._stages.items() if record.head.run == run]:
                record = self._stages.pop(stage)
                if record.state == "claimed":
                    del self._seats[record.mesh].claims[stage]
            self._forgotten.add(run)
            for mesh in meshes:
                self._post_mail(mesh, MailKind.FORGET, run)

    def release_id(self, run: RunId) -> None:
        """The run is retired: another one may have its id."""
        with self._changed:
            self._forgotten.discard(run)

    def mail(self, mesh: MeshId, cursor: str, wait_ms: int) -> tuple[str, tuple[Mail, ...]]:
        """See `StageQueue.mail`."""
        with self._changed:
            letters = self._mail[mesh]
            if cursor == "":
                return (f"{letters[-1][0]}-0" if letters else "0-0"), ()
            after = int(cursor.split("-", maxsplit=1)[0])
            self._wait(wait_ms, lambda: bool(letters) and letters[-1][0] > after)
            newer = [(number, letter) for number, letter in letters if number > after]
            return (f"{newer[-1][0]}-0" if newer else cursor), tuple(letter for _, letter in newer)

    def inbox(self, wait_ms: int, limit: int = 512) -> tuple[InboxEntry, ...]:
        """See `StageQueue.inbox`."""
        with self._changed:
            self._wait(wait_ms, lambda: bool(self._inbox))
            return tuple(self._inbox.values())[:limit]

    def acknowledge(self, entries: tuple[str, ...]) -> None:
        """See `StageQueue.acknowledge`."""
        with self._changed:
            for entry in entries:
                self._inbox.pop(entry, None)

    def post(self, run: RunId, kind: str, body: bytes) -> None:
        """Put an entry into the inbox; a run store in this process says `submitted` and `cancel` with it."""
        with self._changed:
            entry = f"{self._next_entry()}-0"
            self._inbox[entry] = InboxEntry(entry=entry, run=run, kind=kind, body=body)
            self._changed.notify_all()

    def _post_mail(self, mesh: MeshId, kind: MailKind, subject: str) -> None:
        self._mail[mesh].append((self._next_entry(), Mail(kind=kind, subject=subject)))
        self._changed.notify_all()

    def _wake_meshes(self) -> None:
        """Room may have come: every mesh with waiting stages looks again."""
        waiting = {stage.mesh for stage in self._stages.values() if stage.state == "queued"}
        for mesh in self._seats:
            if mesh in waiting:
                self._post_mail(mesh, MailKind.STAGE, "")

    def _next_entry(self) -> int:
        self._entries += 1
        return self._entries

    def _wait(self, wait_ms: int, there: Callable[[], bool]) -> None:
        if wait_ms > 0:
            self._changed.wait_for(there, timeout=wait_ms / 1000)

    @staticmethod
    def _close(record: _Stage, state: str) -> None:
        """What a late or repeated report is checked against stays; the bulk goes."""
        record.state, record.spec = state, b""
        record.inputs.clear()

    # ---- blobs

    def put(self, run: RunId, sha256: str, data: bytes) -> None:
        """See `BlobStore.put`."""
        with self._changed:
            self._blobs[run].setdefault(sha256, data)

    def get(self, run: RunId, hashes: tuple[str, ...]) -> dict[str, bytes]:
        """See `BlobStore.get`."""
        with self._changed:
            there = self._blobs.get(run, {})
            return {sha256: there[sha256] for sha256 in hashes if sha256 in there}

    def keep_only(self, run: RunId, hashes: tuple[str, ...]) -> None:
        """See `BlobStore.keep_only`."""
        with self._changed:
            self._blobs[run] = self.get(run, hashes)


def _claimed(claim: Claim, record: _Stage) -> ClaimedStage:
    return ClaimedStage(claim=claim, spec=decode(StageSpec, record.spec), inputs=_inputs(record), cancelled=record.cancelled)


def _inputs(record: _Stage) -> dict[NodeId, StoredValue | None]:
    return {node: decode(StoredValue | None, value) for node, value in record.inputs.items()}
