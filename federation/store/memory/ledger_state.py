"""State of the ledger in memory: clock, tokens, epochs, session checks, and rows with their writers.

Subclasses implement the effects on the stage queue when a session ends or capacity becomes free.
"""

from __future__ import annotations

import copy
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping

from federation.errors import EpochChanged, ForeignLedger, FutureToken, SessionExpired, SessionSuperseded, SessionUnknown
from federation.leases import CONTESTED_MS, Lease, LeaseEvent, LeaseTerms, LedgerResponse, Session
from federation.store.lease_rows import holder_of
from federation.store.memory.demands import MemoryDemands, StageKind
from federation.store.memory.rows import LeaseKey, Row, SessionRow, by_field
from federation.tenants import FlavorResource, TenantTree
from mesh.core.clock import Clock
from mesh.core.ids import FlavorName, MeshId, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet

_SKEW_US_MAX = 60_000_000
_SET_BACK_US = 50_000
_LOG_KEPT = 100_000
_WAKES_MAX, _WAKE_LOOKS_MAX = 8, 64
#: Attributes that are not stored data.
_NEVER_LOST = ("_clock", "_changed", "_terms", "_uid", "_on_release", "_versions", "_user_of")


class MemoryLedgerState(ABC):
    """State of the ledger; every change of a row goes through `_set` and `_keep`.

    Args:
        clock: The server's clock: tokens and the lease clock follow its wall time.
        terms: Times in force.
        uid: Id of the ledger.
    """

    def __init__(self, *, clock: Clock, terms: LeaseTerms, uid: str = "memory") -> None:
        self._clock = clock
        self._changed = threading.Condition(threading.RLock())
        self._terms = terms
        self._uid = uid
        self._token = self._last_us = self._now_us()
        self._epoch = self._token
        self._lt = 0
        self._recovery_ends = 0
        self._clamped = -1
        self._version = 0
        self._configured = TenantTree()
        self._vanished: dict[TenantPath, TenantPath | None] = {}
        self._tree = TenantTree()  #: The configured tree plus removed tenants that are still charged.
        self._usage: dict[tuple[TenantPath, FlavorName, str], int] = {}
        self._targeted: dict[tuple[TenantPath, FlavorName, str], int] = {}  #: Sums of targets, as `_usage` of amounts.
        self._session_rows: dict[MeshId, SessionRow] = {}
        self._rows: dict[str, dict[LeaseKey, Row]] = {}
        self._due: dict[str, int] = {}
        self._marks: dict[MeshId, int] = {}
        self._recovery_since = 0  #: The epoch in which the last recovery began.
        self._before_loss: dict[MeshId, tuple[int, int]] = {}  #: `_recovery_since`, and the mesh's mark at that time.
        self._growing: set[MeshId] = set()
        self._demands = MemoryDemands()
        self._planner: tuple[str, int, int] | None = None  #: Name, token, end of the term.
        self._plans = 0
        self._notified_of_contest = -CONTESTED_MS  #: Last time on the lease clock.
        self._log: list[tuple[LeaseEvent, MeshId | None]] = []

    # ---- hooks of the stage queue

    @abstractmethod
    def _lose_stages(self, session_row: SessionRow, reason: Reason = Reason.LEASE_EXPIRED) -> tuple[StageId, ...]:
        """Report the session's claims as lost, and return their stages."""

    @abstractmethod
    def _hand_over_stages(self, session_row: SessionRow) -> None:
        """Transfer the mesh's claims to this session."""

    @abstractmethod
    def _wake_all(self) -> None:
        """Wake meshes whose queued stages could never fit before and may fit now."""

    @abstractmethod
    def _wake(self, mesh: MeshId) -> None:
        """Notify the mesh that capacity for its demands may be free."""

    @abstractmethod
    def _drop_notifications(self, mesh: MeshId) -> None:
        """Delete the notifications of a forgotten mesh."""

    @abstractmethod
    def _ask_for_idle(self, mesh: MeshId) -> None:
        """Ask the mesh to return idle leases that others want."""

    @abstractmethod
    def _notify_of_plan(self, mesh: MeshId) -> None:
        """Notify the mesh that a plan reclaims part of its leases."""

    @abstractmethod
    def _notify_of_contest(self) -> None:
        """Notify the coordinator that tenants compete for quota which they would borrow."""

    @abstractmethod
    def _queued_slots(self, mesh: MeshId, kind: StageKind) -> int:
        """Return the slots that the mesh's queued stages of this kind could use together."""

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

    def _recovery_left(self) -> int:
        return max(0, self._recovery_ends - self._lt)

    def _begin_epoch(self, why: str, known: int = 0) -> None:
        self._token = max(self._token, known)
        self._epoch = self._next_token()
        self._recovery_since = self._recovery_since if self._recovery_left() else self._epoch
        self._recovery_ends = self._lt + self._terms.recovery_ms
        self._note(LeaseEvent(at_ms=self._clock.wall_ms(), verb="epoch", lease=None, why=why))

    def epoch(self) -> int:
        with self._changed:
            return self._epoch

    def restart(self) -> None:
        """Begin an epoch as after a restart of the server, which may have lost writes."""
        with self._changed:
            self._tick()
            self._begin_epoch("the server restarted or another was promoted")

    def copied(self) -> dict[str, object]:
        """Return a copy of all stored data."""
        with self._changed:
            return copy.deepcopy({name: value for name, value in vars(self).items() if name not in _NEVER_LOST})

    def lose_writes(self, kept: dict[str, object]) -> None:
        """Restart with the data of the copy, so later writes are lost."""
        with self._changed:
            for name, value in copy.deepcopy(kept).items():
                setattr(self, name, value)
            self.restart()

    def _hear(self, known: int) -> None:
        """Check a token that a caller has."""
        if known > max(self._token, self._now_us() + _SKEW_US_MAX):
            raise FutureToken(f"token {known} is from the future; check the clocks of the servers")
        if known > self._token:
            self._begin_epoch("a mesh has seen a token that was not given out: writes were lost", known)

    def _admit(self, session: Session) -> None:
        """Check the session's ledger, tokens and epoch, as every verb does first: see lua/lib_caller.lua."""
        self._tick()
        if session.ledger != self._uid:
            raise ForeignLedger(f"mesh {session.mesh}: this is another ledger than the one it joined")
        self._hear(max(session.mark, session.incarnation))
        if session.epoch != self._epoch:
            raise EpochChanged("the ledger began another epoch; repeat the call", epoch=self._epoch, recovery_ms=self._recovery_left())

    def _session_row(self, session: Session, *, live: bool = False) -> SessionRow:
        session_row = self._session_rows.get(session.mesh)
        if session_row is None:
            raise SessionUnknown(f"mesh {session.mesh}: it has no session; join")
        if session_row.incarnation != session.incarnation:
            raise SessionSuperseded(f"mesh {session.mesh}: it has joined again since; only its latest session may call")
        if session_row.expires == 0 or (live and session_row.expires <= self._lt):
            raise SessionExpired(f"mesh {session.mesh}: its session has expired; join again")
        return session_row

    def _is_current(self, session: Session) -> bool:
        session_row = self._session_rows.get(session.mesh)
        return session_row is not None and session_row.expires > 0 and session_row.incarnation == session.incarnation

    # ---- rows

    def _room(self, sums: Mapping[tuple[TenantPath, FlavorName, str], int], row: Row, resource: str) -> int:
        return self._tree.available(sums, row.tenant, (row.flavor, resource))

    def _set(self, row: Row, resource: str, held: int, target: int) -> None:
        key: FlavorResource = (row.flavor, resource)
        self._tree.charge(self._usage, row.tenant, key, held - row.held.get(resource, 0))
        self._tree.charge(self._targeted, row.tenant, key, target - row.target.get(resource, 0))
        row.held[resource], row.target[resource] = held, target

    def _row_of(self, holder: str, key: LeaseKey) -> Row:
        rows = self._rows.setdefault(holder, {})
        return rows.get(key) or rows.setdefault(key, Row(tenant=key[0], flavor=key[1]))

    def _keep(self, holder: str, row: Row, verb: str) -> None:
        """Give a changed lease a new version, and log it."""
        row.version = self._next_token()
        row.token = row.token or row.version
        self._log_row(holder, row, verb)

    def _log_row(self, holder: str, row: Row, verb: str) -> None:
        mesh, _ = holder_of(holder)
        if self._recovery_left():
            self._mark_before_loss(MeshId(holder))
        self._marks[MeshId(holder)] = max(self._marks.get(MeshId(holder), 0), row.version)
        self._note(LeaseEvent(at_ms=self._clock.wall_ms(), verb=verb, lease=self._lease(mesh, row)))
        if row.is_empty:
            self._rows[holder].pop((row.tenant, row.flavor), None)

    def _mark_before_loss(self, mesh: MeshId) -> int:
        """Return the mesh's mark at the start of the recovery; nothing up to it can have been lost. See lua/lib_lease.lua."""
        since, mark = self._before_loss.get(mesh, (-1, 0))
        if since != self._recovery_since:
            mark = self._marks.get(mesh, 0)
            self._before_loss[mesh] = (self._recovery_since, mark)
        return mark

    def _note(self, lease_event: LeaseEvent) -> None:
        self._log.append((lease_event, lease_event.lease.mesh if lease_event.lease else None))
        del self._log[:-_LOG_KEPT]

    def _prune(self, holder: str) -> None:
        rows = self._rows.get(holder, {})
        for key in [key for key, row in rows.items() if row.version == 0 or row.is_empty]:
            del rows[key]

    def _lease(self, mesh: MeshId, row: Row) -> Lease:
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
            victims=row.victims,
        )

    def _response(self, session: Session) -> LedgerResponse:
        self._prune(session.mesh)
        mark = self._marks.get(session.mesh, 0)
        rows = (row for _, row in sorted(self._rows.get(session.mesh, {}).items(), key=by_field) if row.version > session.mark)
        return LedgerResponse(
            epoch=self._epoch,
            recovery_ms=self._recovery_left(),
            mark=mark,
            others_wait=any(mesh != session.mesh for mesh in self._demands.meshes()),
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

    def _wake_waiting(self, flavors: set[FlavorName]) -> None:
        """Notify a few of the meshes that want these flavors: see lua/lib_lease.lua."""
        meshes = list(self._demands.meshes())
        first = self._now_us() % max(1, len(meshes))
        looked = [*meshes[first:], *meshes[:first]][:_WAKE_LOOKS_MAX]
        for mesh in [mesh for mesh in looked if flavors & self._demands.flavors_of(mesh)][:_WAKES_MAX]:
            self._wake(mesh)

    def _cut_down(self, holder: str, row: Row, verb: str) -> None:
        for resource, held in tuple(row.held.items()):
            self._set(row, resource, min(held, row.target[resource]), row.target[resource])
        row.end_shrinking()
        self._keep(holder, row, verb)
