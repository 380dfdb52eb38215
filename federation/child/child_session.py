"""A mesh's session by the mesh's own clock: the session, the ledger's last response, and how long that response is valid.

The session also says when the next heartbeat is due: at a set moment, or at once after `hurry`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import structlog

from federation.child.child_state import ChildState
from federation.child.deadlines import Deadlines, Permission
from federation.child.quota_demand import OpenDemand
from federation.errors import EpochChanged, HoldingsRequired, SessionLost, UnfitName
from federation.leases import ROWS_MAX, HeartbeatReport, LeaseLedger, LedgerResponse, Session
from mesh.errors import AmountError

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class ChildSession:
    """Successive sessions of one process of a mesh. Times are milliseconds of that process's own clock."""

    session: Session | None = None
    since: int = 0  #: Incarnation of the first session in an unbroken chain of recoveries.
    response: LedgerResponse = field(default_factory=LedgerResponse)  #: The ledger's last response.
    seen: int = 0  #: The highest token that this process or its predecessors have seen.
    number: int = 0  #: Number of the session's last heartbeat.
    demands: tuple[OpenDemand, ...] | None = ()
    """The demand that the ledger has on record; None: unknown, since a request or a grant may have changed it."""
    renewed_ms: int = 0  #: When the last acknowledged heartbeat was sent.
    deadlines: Deadlines = field(default_factory=lambda: Deadlines.of(0))
    due_ms: int = 0  #: When the next heartbeat is due.
    is_cut_off: bool = False  #: A call failed without a response; no other call is made until the next heartbeat is acknowledged.

    def held(self) -> Session:
        """Return the session.

        Raises:
            SessionLost: There is none.
        """
        if self.session is None:
            raise SessionLost("the mesh has no session")
        return self.session

    def due_in_ms(self, now_ms: int) -> int:
        """Return in how many milliseconds the next heartbeat is due."""
        return max(0, self.due_ms - now_ms)

    def hurry(self, due_ms: int = 0) -> None:
        """Make the next heartbeat due at `due_ms`, by default at once, unless it is due earlier."""
        self.due_ms = min(self.due_ms, due_ms)

    def is_urgent_at(self, now_ms: int) -> bool:
        """Return whether a quarter of the session's time has passed since the last acknowledged heartbeat, so that the next goes first."""
        return now_ms - self.renewed_ms >= self.deadlines.no_admission_ms // 2

    def begin(self, session: Session, since: int = 0) -> None:
        """Begin a session; `since` is the first incarnation of the chain that it continues."""
        self.session, self.since, self.number, self.demands = session, since or session.incarnation, 0, ()

    def end(self) -> None:
        """End the session; `seen` stays."""
        self.session, self.response, self.demands = None, LedgerResponse(), ()

    def doubt_demands(self) -> bool:
        """Note that a stage has left the queue: the ledger withdraws what is wanted for it. Return whether the ledger has any demand."""
        if self.demands:
            self.demands = None
        return self.demands is None

    def renew(self, ledger: LeaseLedger, child_state: ChildState, now_ms: int) -> tuple[LedgerResponse, HeartbeatReport]:
        """Send a heartbeat; send a second one at once if the ledger needs all holdings. Return the response and the heartbeat.

        Raises:
            SessionLost: The session is lost; other errors of `LeaseLedger.heartbeat` pass through, also a second change of epoch.
        """
        session = self.held()
        self.number += 1
        record, accounting, wanted = child_state.as_reported(), child_state.accounting, child_state.demands()
        demands = tuple(demand.as_row(now_ms) for demand in wanted) if wanted != self.demands else None
        heartbeat_report = HeartbeatReport(
            number=self.number, acks=accounting.acks()[:ROWS_MAX], demands=demands, lease_uses=child_state.lease_uses()
        )
        if self.response.recovery_ms:
            heartbeat_report = replace(heartbeat_report, claims=accounting.claims())
        if heartbeat_report.demands is not None:
            self.demands = None  # The ledger's record is unknown until it responds; a stale demand there would take quota from others.
        try:
            response = ledger.heartbeat(session, record, heartbeat_report)
        except (UnfitName, AmountError) as refused:
            if not heartbeat_report.demands:
                raise
            log.warning("the heartbeat omits the quota demand", mesh=session.mesh, error=str(refused), remedy="cancel the stage")
            heartbeat_report = replace(heartbeat_report, demands=())  # One invalid name must not cost the session and all its work.
            response = ledger.heartbeat(session, record, heartbeat_report)
            accounting.note_reported(heartbeat_report.lease_uses)
            return response, heartbeat_report
        except (EpochChanged, HoldingsRequired) as recovering:
            if isinstance(recovering, EpochChanged):
                log.warning(
                    "the ledger has begun another epoch", mesh=session.mesh, epoch=recovering.epoch, recovery_ms=recovering.recovery_ms
                )
                session = self.session = replace(session, epoch=recovering.epoch)
            wanted = child_state.demands()
            heartbeat_report, self.demands = (
                replace(heartbeat_report, claims=accounting.claims(), demands=tuple(demand.as_row(now_ms) for demand in wanted)),
                None,
            )
            response = ledger.heartbeat(session, record, heartbeat_report)
        accounting.note_reported(heartbeat_report.lease_uses)
        if response.leases:
            self.demands = None  # The ledger drops the granted part of the demand; the mesh keeps it until it starts a stage on it.
        elif heartbeat_report.demands is not None:
            self.demands = wanted
        return response, heartbeat_report

    def apply(self, response: LedgerResponse) -> None:
        """Apply the part of a ledger's response that concerns the session."""
        self.response = response
        if self.session is not None:
            self.session = replace(self.session, mark=response.mark)
            self.seen = max(self.seen, response.mark, response.epoch, self.session.incarnation)

    def extend_deadline(self, sent_ms: int) -> None:
        """Record that a heartbeat sent at `sent_ms` was acknowledged; all deadlines count from there."""
        self.renewed_ms, self.is_cut_off = sent_ms, False
        self.deadlines = Deadlines.of(self.held().ttl_ms)

    def permission(self, now_ms: int) -> Permission:
        """Return the permission at this moment."""
        return self.deadlines.permission(now_ms - self.renewed_ms)

    def next_change_ms(self, now_ms: int) -> int | None:
        """Return in how many milliseconds the permission shrinks; None after the last deadline."""
        return self.deadlines.next_change_ms(now_ms - self.renewed_ms)
