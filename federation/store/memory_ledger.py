"""The lease ledger in one process: the same decisions as the Redis scripts, in Python.

The quota arithmetic is `TenantTree`'s here and Lua's there, and a test drives both side by side. Verbs stand in the order of
the port; what a stage queue has to do when a session ends or room comes is left to the subclass.
"""

from __future__ import annotations

import copy
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from federation.auditing import Mismatch, mismatches
from federation.errors import (
    BatchTooLarge,
    EpochChanged,
    ForeignLedger,
    FutureToken,
    HoldingsWanted,
    LedgerLearning,
    PlannerSuperseded,
    QuotaExceeded,
    SessionExpired,
    SessionSuperseded,
    SessionUnknown,
    StaleBeat,
    TreeChanged,
)
from federation.leases import (
    ROWS_MAX,
    TOLD_MAX,
    Acquired,
    Aim,
    Beat,
    Chapter,
    Configured,
    Granted,
    Kept,
    Lease,
    LeaseRefused,
    LeaseTerms,
    LookAgain,
    Session,
    Swept,
    Told,
    Want,
)
from federation.moving import moved
from federation.snapshot import LeaseView, MeshRecord, Snapshot, WantView
from federation.store.lease_rows import EARLIER, holder_of, refuse_unfit, view_of
from federation.tenants import SEPARATOR, FlavorResource, Tenant, TenantTree
from mesh.clock import Clock
from mesh.errors import AmountError
from mesh.ids import FlavorName, MeshId, StageId, TenantPath
from mesh.reasons import Reason
from mesh.resources import ResourceSet

_SKEW_US_MAX = 60_000_000
_SET_BACK_US = 50_000
_LOG_KEPT = 100_000
_FORGET_MS = 86_400_000
_WAKES_MAX, _WAKE_LOOKS_MAX = 8, 64
#: What is not data.
_NEVER_LOST = ("_clock", "_changed", "_terms", "_uid")

LeaseKey = tuple[TenantPath, FlavorName]
T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Seat:
    """A mesh's place in the ledger: its present session, or its last. Times are on the lease clock."""

    record: MeshRecord
    incarnation: int
    ttl_ms: int
    expires: int = 0  #: 0: swept.
    heartbeat: int = 0
    beat: int = 0
    heir_of: int = 0  #: Incarnation of the session whose work this one went on with; 0: of none.


@dataclass(slots=True, kw_only=True)
class _Row:
    """A lease, as `lua/lib_lease.lua` has it."""

    tenant: TenantPath
    flavor: FlavorName
    token: int = 0
    version: int = 0
    priority: int = 0
    cut: int = 0  #: Time on the lease clock until which what is above the target may be used; 0: nothing is.
    held: dict[str, int] = field(default_factory=dict)
    target: dict[str, int] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return not any(self.held.values()) and not any(self.target.values())

    @property
    def shrinks(self) -> bool:
        return any(units > self.target.get(resource, 0) for resource, units in self.held.items())

    @property
    def grows(self) -> bool:
        return any(units > self.held.get(resource, 0) for resource, units in self.target.items())


@dataclass(slots=True, kw_only=True)
class _Wanted:
    want: Want
    since: int


class MemoryLedger(ABC):
    """`LeaseLedger` in one process, but for what the stage queue does; safe to call from many threads.

    Args:
        clock: The server's clock: tokens and the lease clock follow its wall time.
        terms: In force.
        uid: Who the ledger is.
    """

    def __init__(self, *, clock: Clock, terms: LeaseTerms, uid: str = "memory") -> None:
        self._clock = clock
        self._changed = threading.Condition(threading.RLock())
        self._terms = terms
        self._uid = uid
        self._token = self._last_us = self._now_us()
        self._epoch = self._token
        self._lt = 0
        self._learn = 0
        self._clamped = -1
        self._version = 0
        self._configured = TenantTree()
        self._vanished: dict[TenantPath, TenantPath | None] = {}
        self._tree = TenantTree()  #: The configured tree and the vanished tenants: what is charged.
        self._usage: dict[tuple[TenantPath, FlavorName, str], int] = {}
        self._aims: dict[tuple[TenantPath, FlavorName, str], int] = {}
        self._seats: dict[MeshId, Seat] = {}
        self._rows: dict[str, dict[LeaseKey, _Row]] = {}
        self._due: dict[str, int] = {}
        self._marks: dict[MeshId, int] = {}
        self._learn_since = 0  #: The epoch in which the last learning began.
        self._before_loss: dict[MeshId, tuple[int, int]] = {}  #: `_learn_since`, and the mark that the mesh had then.
        self._growing: set[MeshId] = set()
        self._wants: dict[MeshId, dict[LeaseKey, _Wanted]] = {}
        self._planner: tuple[str, int, int] | None = None  #: Name, token, until when.
        self._plans = 0
        self._log: list[tuple[Chapter, MeshId | None]] = []

    # ---- what the stage queue does

    @abstractmethod
    def _lose_stages(self, seat: Seat) -> tuple[StageId, ...]:
        """Report what the session has claimed as lost; which stages it was."""

    @abstractmethod
    def _hand_over_stages(self, seat: Seat) -> None:
        """What the mesh has claimed is claimed by this session from now on."""

    @abstractmethod
    def _wake_all(self) -> None:
        """What could never fit may fit now."""

    @abstractmethod
    def _wake(self, mesh: MeshId) -> None:
        """Room may have come for what the mesh wants."""

    @abstractmethod
    def _drop_mail(self, mesh: MeshId) -> None:
        """The mesh is forgotten."""

    @abstractmethod
    def _ask_for_idle(self, mesh: MeshId) -> None:
        """Somebody wants what the mesh may hold idle."""

    @abstractmethod
    def _tell_of_plan(self, mesh: MeshId) -> None:
        """The mesh has to give something up."""

    # ---- clock, tokens, epochs: see lua/lib_clock.lua

    def _now_us(self) -> int:
        return self._clock.wall_ms() * 1000

    def _tick(self) -> None:
        passed_us = self._now_us() - self._last_us
        if passed_us < -_SET_BACK_US:
            self._last_us = self._now_us()
            self._begin_epoch("the clock of the server was set back")
        elif passed_us > 0:
            passed_ms = passed_us // 1000
            self._last_us += passed_ms * 1000
            if passed_ms > self._terms.max_step_ms:
                was_clamped = self._clamped >= 0 and self._lt - self._clamped < self._terms.ttl_ms
                passed_ms = 0 if was_clamped else self._terms.max_step_ms
                self._clamped = self._lt
            self._lt += passed_ms

    def _next_token(self) -> int:
        self._token = max(self._token + 1, self._now_us())
        return self._token

    def _learn_left(self) -> int:
        return max(0, self._learn - self._lt)

    def _begin_epoch(self, why: str, known: int = 0) -> None:
        self._token = max(self._token, known)
        self._epoch = self._next_token()
        self._learn_since = self._learn_since if self._learn_left() else self._epoch
        self._learn = self._lt + self._terms.learn_ms
        self._note(Chapter(at_ms=self._clock.wall_ms(), verb="epoch", lease=None, why=why))

    def restart(self) -> None:
        """What a restart of the server does: writes may have been lost, so an epoch begins."""
        with self._changed:
            self._tick()
            self._begin_epoch("the server restarted or another was promoted")

    def copied(self) -> dict[str, object]:
        """All that a server would have written, as it is now."""
        with self._changed:
            return copy.deepcopy({name: value for name, value in vars(self).items() if name not in _NEVER_LOST})

    def lose_writes(self, kept: dict[str, object]) -> None:
        """What a restart does that loses what was written since the copy."""
        with self._changed:
            for name, value in copy.deepcopy(kept).items():
                setattr(self, name, value)
            self.restart()

    def _hear(self, known: int) -> None:
        """A token that somebody has."""
        if known > max(self._token, self._now_us() + _SKEW_US_MAX):
            raise FutureToken(f"token {known} is from the future; is the clock of a server far ahead?")
        if known > self._token:
            self._begin_epoch("a mesh has seen a token that was not given out: writes were lost", known)

    def _admit(self, session: Session) -> None:
        """What every verb of a session does first: see lua/lib_caller.lua."""
        self._tick()
        if session.ledger != self._uid:
            raise ForeignLedger(f"mesh {session.mesh}: this is another ledger than the one it joined")
        self._hear(max(session.mark, session.incarnation))
        if session.epoch != self._epoch:
            raise EpochChanged("the ledger began another epoch; say it again", epoch=self._epoch, learn_ms=self._learn_left())

    def _seat_of(self, session: Session, *, live: bool = False) -> Seat:
        seat = self._seats.get(session.mesh)
        if seat is None:
            raise SessionUnknown(f"mesh {session.mesh}: it has no session; join")
        if seat.incarnation != session.incarnation:
            raise SessionSuperseded(f"mesh {session.mesh}: it has joined again since; only its latest session may speak")
        if seat.expires == 0 or (live and seat.expires <= self._lt):
            raise SessionExpired(f"mesh {session.mesh}: its session has run out; join again")
        return seat

    def _is_current(self, session: Session) -> bool:
        seat = self._seats.get(session.mesh)
        return seat is not None and seat.expires > 0 and seat.incarnation == session.incarnation

    # ---- rows

    def _room(self, sums: Mapping[tuple[TenantPath, FlavorName, str], int], row: _Row, resource: str) -> int:
        return self._tree.available(sums, row.tenant, (row.flavor, resource))

    def _set(self, row: _Row, resource: str, held: int, target: int) -> None:
        key: FlavorResource = (row.flavor, resource)
        self._tree.charge(self._usage, row.tenant, key, held - row.held.get(resource, 0))
        self._tree.charge(self._aims, row.tenant, key, target - row.target.get(resource, 0))
        row.held[resource], row.target[resource] = held, target

    def _row_of(self, holder: str, key: LeaseKey) -> _Row:
        rows = self._rows.setdefault(holder, {})
        return rows.get(key) or rows.setdefault(key, _Row(tenant=key[0], flavor=key[1]))

    def _keep(self, holder: str, row: _Row, verb: str) -> None:
        """The lease was changed."""
        row.version = self._next_token()
        row.token = row.token or row.version
        self._log_row(holder, row, verb)

    def _log_row(self, holder: str, row: _Row, verb: str) -> None:
        mesh, _ = holder_of(holder)
        if self._learn_left():
            self._mark_before_loss(MeshId(holder))
        self._marks[MeshId(holder)] = max(self._marks.get(MeshId(holder), 0), row.version)
        self._note(Chapter(at_ms=self._clock.wall_ms(), verb=verb, lease=self._lease(mesh, row)))
        if row.is_empty:
            self._rows[holder].pop((row.tenant, row.flavor), None)

    def _mark_before_loss(self, mesh: MeshId) -> int:
        """Of a mesh when the ledger began to learn, or now: nothing up to it can have been lost. See lua/lib_lease.lua."""
        since, mark = self._before_loss.get(mesh, (-1, 0))
        if since != self._learn_since:
            mark = self._marks.get(mesh, 0)
            self._before_loss[mesh] = (self._learn_since, mark)
        return mark

    def _note(self, chapter: Chapter) -> None:
        self._log.append((chapter, chapter.lease.mesh if chapter.lease else None))
        del self._log[:-_LOG_KEPT]

    def _prune(self, holder: str) -> None:
        rows = self._rows.get(holder, {})
        for key in [key for key, row in rows.items() if row.version == 0 or row.is_empty]:
            del rows[key]

    def _lease(self, mesh: MeshId, row: _Row) -> Lease:
        return Lease(
            tenant=row.tenant,
            mesh=mesh,
            flavor=row.flavor,
            held=ResourceSet(row.held),
            target=ResourceSet(row.target),
            token=row.token,
            version=row.version,
            priority=row.priority,
            shrink_ms=max(0, row.cut - self._lt) if row.cut else None,
        )

    def _told(self, session: Session) -> Told:
        self._prune(session.mesh)
        mark = self._marks.get(session.mesh, 0)
        rows = (row for _, row in sorted(self._rows.get(session.mesh, {}).items(), key=_by_field) if row.version > session.mark)
        return Told(
            epoch=self._epoch,
            learn_ms=self._learn_left(),
            mark=mark,
            others_want=any(mesh != session.mesh for mesh, wants in self._wants.items() if wants),
            leases=tuple(self._lease(session.mesh, row) for row in rows) if mark != session.mark else (),
        )

    def _free_all(self, holder: str, verb: str) -> int:
        self._prune(holder)
        rows = list(self._rows.get(holder, {}).values())
        for row in rows:
            for resource in row.held:
                self._set(row, resource, 0, 0)
            self._keep(holder, row, verb)
        self._rows.pop(holder, None)
        return len(rows)

    def _flavors_of(self, holder: str) -> set[FlavorName]:
        return {flavor for _, flavor in self._rows.get(holder, {})}

    def _wake_wanting(self, flavors: set[FlavorName]) -> None:
        """Meshes that want what was given back look again, a few of them: see lua/lib_lease.lua."""
        wanting = sorted(mesh for mesh, wants in self._wants.items() if wants)
        first = self._now_us() % max(1, len(wanting))
        looked = [*wanting[first:], *wanting[:first]][:_WAKE_LOOKS_MAX]
        for mesh in [mesh for mesh in looked if any(flavor in flavors for _, flavor in self._wants[mesh])][:_WAKES_MAX]:
            self._wake(mesh)

    # ---- tenants

    def configure(self, tree: TenantTree, *, expected: int | None = None) -> Configured:
        """See `LeaseLedger.configure`."""
        with self._changed:
            self._tick()
            return self._replace_tree(tree, expected, is_strict=False)

    def reparent(self, tenant: TenantPath, parent: TenantPath | None, *, expected: int, force: bool = False) -> Configured:
        """See `LeaseLedger.reparent`."""
        with self._changed:
            self._tick()
            return self._replace_tree(moved(self._configured, tenant, parent), expected, is_strict=not force)

    def _replace_tree(self, tree: TenantTree, expected: int | None, *, is_strict: bool) -> Configured:
        if expected is not None and expected != self._version:
            raise TreeChanged(f"version {self._version} of the tenant tree is in force, not {expected}; look at it again")
        vanished: dict[TenantPath, TenantPath | None] = {}
        for row in self._all_rows():
            path: TenantPath | None = row.tenant
            while path is not None and path not in tree.tenants and path not in vanished:
                vanished[path] = self._tree.tenant(path).parent
                path = vanished[path]
        charged = TenantTree([*tree.tenants.values(), *(Tenant(path=path, parent=parent) for path, parent in vanished.items())])
        usage, aims = charged.recompute(self._charges("held")), charged.recompute(self._charges("target"))
        over = _over(charged, usage)
        newly = set(over) - set(_over(self._tree, self._usage))
        if is_strict and newly:
            raise QuotaExceeded(f"over their limits would be: {', '.join(sorted(newly))}")
        self._configured, self._vanished, self._tree, self._usage, self._aims = tree, vanished, charged, usage, aims
        self._version += 1
        self._wake_all()
        return Configured(version=self._version, over=over)

    def _all_rows(self) -> Iterator[_Row]:
        return (row for rows in self._rows.values() for row in rows.values() if row.version)

    def _charges(self, which: str) -> Iterable[Lease]:
        for row in self._all_rows():
            amounts = ResourceSet(row.held if which == "held" else row.target)
            yield Lease(tenant=row.tenant, mesh=MeshId(""), flavor=row.flavor, held=amounts)

    # ---- sessions

    def join(self, record: MeshRecord, *, adopt: int = 0, seen: int = 0) -> Session:
        """See `LeaseLedger.join`."""
        with self._changed:
            self._tick()
            self._hear(seen)
            mesh, freed, flavors = record.mesh, 0, self._flavors_of(record.mesh)
            before = self._seats.get(mesh)
            if adopt:
                self._check_heir(mesh, adopt)
            elif before is not None and before.expires > 0:
                freed = self._end(before)
            self._wants.pop(mesh, None)
            seat = Seat(record=record, incarnation=self._next_token(), ttl_ms=self._terms.ttl_ms, heir_of=adopt)
            self._seats[mesh] = seat
            if adopt:
                self._hand_over_stages(seat)
            self._renew(seat)
            if freed:
                self._wake_wanting(flavors)
            session = Session(mesh=mesh, incarnation=seat.incarnation, ttl_ms=seat.ttl_ms, epoch=self._epoch, ledger=self._uid)
            told = self._told(session)
            return replace(session, mark=told.mark, told=told)

    def _check_heir(self, mesh: MeshId, adopt: int) -> None:
        """May a new session go on with the work of the one that it names? See lua/join.lua."""
        if self._learn_left():
            raise LedgerLearning(f"the ledger learns for another {self._learn_left()} ms; nothing can be taken over")
        before = self._seats.get(mesh)
        is_repeat = before is not None and before.beat == 0 and before.heir_of == adopt
        named = before.incarnation if is_repeat and before is not None else adopt
        self._seat_of(Session(mesh=mesh, incarnation=named, ttl_ms=0), live=True)

    def _end(self, before: Seat) -> int:
        """Its stages are lost, and its leases run out in their own time; how many gave up what a plan had promised them."""
        mesh = before.record.mesh
        self._lose_stages(before)
        self._prune(mesh)
        if self._rows.get(mesh):
            holder = f"{mesh}{EARLIER}{before.incarnation}"
            self._rows[holder] = self._rows.pop(mesh)
            self._due[holder] = before.expires + self._terms.grace_ms
            growing = [row for _, row in sorted(self._rows[holder].items(), key=_by_field) if row.grows]
            for row in growing:
                for resource, target in tuple(row.target.items()):
                    self._set(row, resource, row.held.get(resource, 0), min(row.held.get(resource, 0), target))
                self._keep(holder, row, "unplan")
            return len(growing)
        return 0

    def _renew(self, seat: Seat) -> None:
        seat.heartbeat = self._lt
        seat.expires = self._lt + seat.ttl_ms
        self._due[seat.record.mesh] = seat.expires + self._terms.grace_ms

    def heartbeat(self, session: Session, record: MeshRecord, beat: Beat) -> Told:
        """See `LeaseLedger.heartbeat`."""
        _check_beat(beat)
        with self._changed:
            self._admit(session)
            is_known = session.mesh in self._seats  # By the ledger, not by the mesh's own word.
            if not is_known and session.incarnation and self._learn_left() and beat.claims is not None:
                self._seats[session.mesh] = Seat(
                    record=record, incarnation=session.incarnation, ttl_ms=self._terms.ttl_ms, expires=max(1, self._lt)
                )
            seat = self._seat_of(session)
            if beat.number < seat.beat:
                raise StaleBeat(f"mesh {session.mesh}: a later heartbeat was taken in")
            if beat.number == seat.beat:
                return self._told(session)
            if self._learn_left():
                if beat.claims is None:
                    raise HoldingsWanted(f"mesh {session.mesh}: the ledger learns; tell all that is held")
                seen = max(self._mark_before_loss(session.mesh), session.incarnation if is_known else 0)
                self._reconcile(session.mesh, beat.claims, seen)
            freed = [self._obey(session.mesh, ack) for ack in beat.acks]
            if session.mesh in self._growing and not self._learn_left():
                self._grow(session.mesh)
            seat.beat, seat.record = beat.number, record
            self._renew(seat)
            if beat.wants is not None:
                self._replace_wants(session.mesh, beat.wants)
            if any(freed):
                self._wake_wanting({ack.flavor for ack in beat.acks})
            return self._told(session)

    def _reconcile(self, mesh: MeshId, claims: tuple[Lease, ...], seen: int) -> None:
        for claim in claims:
            self._restore(mesh, claim, seen)
        named = {(claim.tenant, claim.flavor) for claim in claims}
        for key, row in sorted(self._rows.get(mesh, {}).items(), key=_by_field):
            if key not in named and row.version:
                for resource in row.held:
                    self._set(row, resource, 0, 0)
                self._keep(mesh, row, "not held")

    def _restore(self, mesh: MeshId, claim: Lease, seen: int) -> None:
        row = self._row_of(mesh, (claim.tenant, claim.flavor))
        if not row.version and claim.version <= seen:
            return  # The ledger itself has seen it given back: an old receipt.
        if claim.tenant not in self._tree.tenants:
            self._vanished[claim.tenant] = None
            self._tree = TenantTree([*self._tree.tenants.values(), Tenant(path=claim.tenant, parent=None)])
        if row.version < claim.version:
            for resource in {*row.held, *claim.held}:
                self._set(row, resource, claim.held[resource], claim.held[resource])
            row.token, row.priority, row.cut = claim.token, claim.priority, 0
            self._keep(mesh, row, "restore")  # A version of its own, so that it is told: the mesh may know it under another target.

    def _obey(self, mesh: MeshId, ack: Kept) -> bool:
        row = self._row_of(mesh, (ack.tenant, ack.flavor))
        obeyed = row.version == ack.version and row.shrinks
        obeyed = obeyed and all(ack.amounts[resource] <= target for resource, target in row.target.items())
        if obeyed:
            self._cut_down(mesh, row, "shrink")
        return obeyed

    def _cut_down(self, holder: str, row: _Row, verb: str) -> None:
        for resource, held in tuple(row.held.items()):
            self._set(row, resource, min(held, row.target[resource]), row.target[resource])
        row.cut = 0
        self._keep(holder, row, verb)

    def _grow(self, mesh: MeshId) -> None:
        for row in [row for _, row in sorted(self._rows.get(mesh, {}).items(), key=_by_field) if row.grows]:
            more = False
            for resource, target in tuple(row.target.items()):
                held = row.held.get(resource, 0)
                by = min(target - held, max(0, self._room(self._usage, row, resource)))
                if by > 0:
                    self._set(row, resource, held + by, target)
                    more = True
            if more:
                row.priority = max(row.priority, self._wanted_priority(mesh, (row.tenant, row.flavor), row.priority))
                self._keep(mesh, row, "grow")
        if not any(row.grows for row in self._rows.get(mesh, {}).values()):
            self._growing.discard(mesh)

    def _replace_wants(self, mesh: MeshId, wants: tuple[Want, ...]) -> None:
        before = self._wants.get(mesh, {})
        self._wants[mesh] = {}
        for want in wants:
            key = (want.tenant, want.flavor)
            since = before[key].since if key in before else self._lt
            self._wants[mesh][key] = _Wanted(want=want, since=since)

    def leave(self, session: Session) -> None:
        """See `LeaseLedger.leave`."""
        with self._changed:
            self._tick()
            seat = self._seats.get(session.mesh)
            if seat is None or seat.incarnation != session.incarnation:
                return
            self._lose_stages(seat)
            flavors = self._flavors_of(session.mesh)
            freed = self._free_all(session.mesh, "leave")
            self._wants.pop(session.mesh, None)
            self._forget(seat)
            if freed:
                self._wake_wanting(flavors)

    def _forget(self, seat: Seat) -> None:
        """Nothing is known of the mesh any more but its mark: what the session held is an old receipt now."""
        mesh = seat.record.mesh
        self._marks[mesh] = max(self._marks.get(mesh, 0), seat.incarnation)
        self._before_loss.pop(mesh, None)
        self._growing.discard(mesh)
        self._due.pop(mesh, None)
        self._drop_mail(mesh)
        del self._seats[mesh]

    # ---- leases

    def acquire(self, session: Session, wants: tuple[Want, ...]) -> Acquired:
        """See `LeaseLedger.acquire`."""
        for want in _bounded(wants, ROWS_MAX):
            if want.slots < 1:
                raise AmountError(f"{want.slots} slots were asked for; ask for at least 1")
            refuse_unfit(want.tenant, want.flavor, want.slot)
        with self._changed:
            self._admit(session)
            self._seat_of(session, live=True)
            missing: list[tuple[Want, int]] = []
            answers = tuple(self._grant(session.mesh, want, missing) for want in wants)
            unmet = {(want.tenant, want.flavor) for want, _ in missing}
            for want, answer in zip(wants, answers, strict=True):
                if isinstance(answer, Granted) and (want.tenant, want.flavor) not in unmet:
                    self._wants.get(session.mesh, {}).pop((want.tenant, want.flavor), None)
            self._note_missing(session.mesh, missing)
            return Acquired(answers=answers, told=self._told(session))

    def _grant(self, mesh: MeshId, want: Want, missing: list[tuple[Want, int]]) -> Granted | LookAgain | LeaseRefused:
        if self._learn_left():
            return LeaseRefused(reason=Reason.LEDGER_LEARNING, tenant=want.tenant, flavor=want.flavor)
        if want.tenant not in self._configured.tenants:
            return LeaseRefused(reason=Reason.TENANT_UNKNOWN, tenant=want.tenant, flavor=want.flavor)
        row = self._row_of(mesh, (want.tenant, want.flavor))
        if row.version != want.version:
            return LookAgain()
        free = {resource: self._free_for(row, resource) for resource in want.slot}
        slots = min([want.slots, *(free[resource] // units for resource, units in want.slot.items())])
        if slots == 0:
            refused = self._refusal(want, free)
            if refused.reason is Reason.QUOTA_EXHAUSTED:
                missing.append((want, want.slots))
            return refused
        for resource, units in want.slot.items():
            held = row.held.get(resource, 0) + slots * units
            self._set(row, resource, held, max(held, row.target.get(resource, 0)))
        row.priority = want.priority if want.pays_for is None else want.pays_for
        self._keep(mesh, row, "grant")
        if slots < want.slots:
            missing.append((want, want.slots - slots))
        return Granted(slots=slots)

    def _free_for(self, row: _Row, resource: str) -> int:
        """Units that could be added: there is room for them, and no plan has set it aside for others."""
        held, target = row.held.get(resource, 0), row.target.get(resource, 0)
        if held > target:
            return 0
        unplanned = max(0, target - held) + max(0, self._room(self._aims, row, resource))
        return min(max(0, self._room(self._usage, row, resource)), unplanned)

    def _refusal(self, want: Want, free: dict[str, int]) -> LeaseRefused:
        """Named after a resource that could never do, else after one that is short now; the first by name."""
        short = [resource for resource in sorted(want.slot) if free[resource] < want.slot[resource]]
        never = [resource for resource in short if self._tree.potential(want.tenant, (want.flavor, resource)) < want.slot[resource]]
        resource = (never or short)[0]
        return LeaseRefused(
            reason=Reason.QUOTA_TOO_SMALL if never else Reason.QUOTA_EXHAUSTED,
            tenant=want.tenant,
            flavor=want.flavor,
            resource=resource,
            wanted=want.slot[resource],
            available=free[resource],
        )

    def _wanted_priority(self, mesh: MeshId, key: LeaseKey, default: int) -> int:
        """Of what is noted for the lease."""
        noted = self._wants.get(mesh, {}).get(key)
        return default if noted is None else noted.want.priority

    def _note_missing(self, mesh: MeshId, missing: list[tuple[Want, int]]) -> None:
        wants = self._wants.setdefault(mesh, {})
        is_news = False
        for want, slots in missing:
            key = (want.tenant, want.flavor)
            before = wants.get(key)
            if before is not None and before.want.priority > want.priority:
                continue  # More urgent work wants the same lease: that stands.
            is_news = is_news or before is None
            wants[key] = _Wanted(want=replace(want, slots=slots), since=self._lt if before is None else before.since)
        if is_news:
            for other in self._seats:
                if other != mesh and any(row.version for row in self._rows.get(other, {}).values()):
                    self._ask_for_idle(other)

    def release(self, session: Session, parts: tuple[Kept, ...]) -> Told:
        """See `LeaseLedger.release`."""
        for part in _bounded(parts, ROWS_MAX):
            refuse_unfit(part.tenant, part.flavor, part.amounts)
        with self._changed:
            self._admit(session)
            self._seat_of(session)
            freed = False
            for part in parts:
                row = self._row_of(session.mesh, (part.tenant, part.flavor))
                if row.version == part.version and row.version:
                    for resource, before in tuple(row.held.items()):
                        held = min(before, part.amounts[resource])
                        self._set(row, resource, held, min(held, row.target[resource]))
                    row.cut = row.cut if row.shrinks else 0
                    self._keep(session.mesh, row, "release")
                    freed = True
            if freed:
                self._wake_wanting({part.flavor for part in parts})
            return self._told(session)

    def sweep(self, limit: int = 200) -> Swept:
        """See `LeaseLedger.sweep`."""
        with self._changed:
            self._tick()
            if self._learn_left():
                return Swept(learn_ms=self._learn_left())
            leases, more, flavors = 0, False, set[FlavorName]()
            meshes: list[MeshId] = []
            stages: list[StageId] = []
            for holder in sorted(name for name, due in self._due.items() if due < self._lt):
                if leases >= limit:
                    more = True
                    break
                seat = self._seats.get(MeshId(holder))
                if seat is not None and seat.expires == 0:
                    self._forget(seat)
                    continue
                flavors |= self._flavors_of(holder)
                leases += self._free_all(holder, "expire")
                del self._due[holder]
                if seat is not None:
                    self._due[holder] = self._lt + _FORGET_MS
                    stages.extend(self._lose_stages(seat))
                    seat.expires = 0
                    self._wants.pop(MeshId(holder), None)
                    meshes.append(MeshId(holder))
            for holder, row in self._overdue_cuts():
                if leases >= limit:
                    more = True
                    break
                self._cut_down(holder, row, "cut")
                flavors.add(row.flavor)
                leases += 1
            if leases:
                self._wake_wanting(flavors)
            return Swept(meshes=tuple(meshes), leases=leases, stages=tuple(stages), is_more_due=more)

    def _overdue_cuts(self) -> list[tuple[str, _Row]]:
        rows = [(holder, row) for holder, held in self._rows.items() if EARLIER not in holder for row in held.values()]
        return [(holder, row) for holder, row in rows if row.cut and row.shrinks and row.cut + self._terms.grace_ms < self._lt]

    # ---- planning

    def elect(self, name: str, ttl_ms: int) -> int | None:
        """See `LeaseLedger.elect`."""
        with self._changed:
            self._tick()
            held = self._planner if self._planner is not None and self._planner[2] > self._lt else None
            if held is not None and held[0] != name:
                return None
            self._planner = (name, held[1] if held is not None else self._next_token(), self._lt + ttl_ms)
            return self._planner[1]

    def plan_apply(self, planner: int, version: int, aims: tuple[Aim, ...]) -> int:
        """See `LeaseLedger.plan_apply`."""
        _bounded(aims, ROWS_MAX)
        with self._changed:
            self._tick()
            if self._planner is None or self._planner[1] != planner or self._planner[2] <= self._lt:
                raise PlannerSuperseded(f"planner {planner} is not the planner any more")
            if version != self._version:
                raise TreeChanged(f"version {self._version} of the tenant tree is in force, not {version}; plan again")
            if self._learn_left():
                raise LedgerLearning(f"the ledger learns for another {self._learn_left()} ms; plan then")
            self._check_plan(aims)
            shrinking = {aim.mesh for aim in aims if self._aim(aim)}
            for mesh in sorted(shrinking):
                self._tell_of_plan(mesh)
            self._plans += 1
            return self._plans

    def _check_plan(self, aims: tuple[Aim, ...]) -> None:
        """Would all targets be within the limits, when everything is lowered before anything is raised?"""
        sums = dict(self._aims)
        raised: list[tuple[Aim, str, int]] = []
        for aim in aims:
            seat = self._seats.get(aim.mesh)
            if seat is None or seat.expires == 0:
                raise SessionUnknown(f"mesh {aim.mesh} has no session")
            row = self._rows.get(aim.mesh, {}).get((aim.tenant, aim.flavor))
            before = row.target if row is not None else {}
            for resource in sorted({*aim.target, *before}):
                by = aim.target[resource] - before.get(resource, 0)
                if by > 0:
                    raised.append((aim, resource, by))
                elif by < 0:
                    self._tree.charge(sums, aim.tenant, (aim.flavor, resource), by)
        for aim, resource, by in raised:
            key = (aim.flavor, resource)
            if aim.tenant not in self._tree.tenants or self._tree.available(sums, aim.tenant, key) < by:
                raise QuotaExceeded(f"the targets exceed a limit at {aim.tenant}/{aim.flavor}/{resource}")
            self._tree.charge(sums, aim.tenant, key, by)

    def _aim(self, aim: Aim) -> bool:
        """Set the target of a lease; does its mesh have to give something up?"""
        row = self._row_of(aim.mesh, (aim.tenant, aim.flavor))
        before = {resource: units for resource, units in row.target.items() if units}
        if before == dict(aim.target.items()):
            return False
        for resource in sorted({*row.target, *aim.target}):
            self._set(row, resource, row.held.get(resource, 0), aim.target[resource])
        row.cut = (row.cut or self._seats[aim.mesh].expires) if row.shrinks else 0
        if row.grows:
            self._growing.add(aim.mesh)
        self._keep(aim.mesh, row, "plan")
        return row.shrinks

    def revoke(
        self, *, mesh: MeshId | None = None, tenant: TenantPath | None = None, flavor: FlavorName | None = None, hard: bool = False
    ) -> int:
        """See `LeaseLedger.revoke`."""
        with self._changed:
            self._tick()
            revoked = 0
            for seat in [seat for seat in self._seats.values() if mesh in (None, seat.record.mesh)]:
                holder = seat.record.mesh
                self._prune(holder)
                for row in list(self._rows.get(holder, {}).values()):
                    if tenant in (None, row.tenant) and flavor in (None, row.flavor):
                        for resource, held in tuple(row.held.items()):
                            self._set(row, resource, held, 0)
                        row.cut = (row.cut or seat.expires) if row.shrinks else 0
                        self._keep(holder, row, "revoke hard" if hard else "revoke")
                        row.token = row.version if hard else row.token
                        revoked += 1
            return revoked

    # ---- looking

    def audit(self) -> tuple[Mismatch, ...]:
        """See `LeaseLedger.audit`."""
        with self._changed:
            return mismatches(self.snapshot())

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """See `LeaseLedger.snapshot`."""

    def story(self, mesh: MeshId | None = None, tenant: TenantPath | None = None, limit: int = 100) -> tuple[Chapter, ...]:
        """See `LeaseLedger.story`."""
        with self._changed:
            about = [
                chapter
                for chapter, of in self._log
                if chapter.lease is None or (mesh in (None, of) and tenant in (None, chapter.lease.tenant))
            ]
            return tuple(about[-limit:])

    def _lease_views(self) -> Iterator[LeaseView]:
        for holder, rows in self._rows.items():
            mesh, incarnation = holder_of(holder)
            yield from (view_of(self._lease(mesh, row), incarnation) for row in rows.values() if row.version)

    def _want_views(self) -> Iterator[WantView]:
        for mesh, wants in sorted(self._wants.items()):
            for (tenant, flavor), wanted in sorted(wants.items()):
                want, waiting_ms = wanted.want, max(0, self._lt - wanted.since)
                yield WantView(
                    mesh=mesh,
                    tenant=tenant,
                    flavor=flavor,
                    slot=want.slot,
                    slots=want.slots,
                    priority=want.priority,
                    waiting_ms=waiting_ms,
                )


def _by_field(item: tuple[LeaseKey, _Row]) -> str:
    """In the order in which the scripts go through leases."""
    return SEPARATOR.join(item[0])


def _bounded(rows: tuple[T, ...], most: int) -> tuple[T, ...]:
    if len(rows) > most:
        raise BatchTooLarge(f"{len(rows)} rows in one call; send at most {most}")
    return rows


def _check_beat(beat: Beat) -> None:
    _bounded(beat.acks, ROWS_MAX)
    for want in _bounded(beat.wants or (), TOLD_MAX):
        refuse_unfit(want.tenant, want.flavor, want.slot)
    for claim in _bounded(beat.claims or (), TOLD_MAX):
        refuse_unfit(claim.tenant, claim.flavor, claim.held)


def _over(tree: TenantTree, usage: Mapping[tuple[TenantPath, FlavorName, str], int]) -> tuple[str, ...]:
    """`tenant|flavor|resource` of nodes above their limits."""
    over = []
    for (path, flavor, resource), use in usage.items():
        limit = 0 if tree.tenant(path).parent is None else tree.quota(path, (flavor, resource)).borrowing_limit
        if limit is not None and use > tree.own_quota(path, (flavor, resource)) + limit:
            over.append(f"{path}|{flavor}|{resource}")
    return tuple(sorted(over))
