"""Handling of failed calls to a store: try again later, never, or give up the session.

Calls to the store fail in the same few ways everywhere, and each way has one meaning. No failure ends the process, since the process
also watches over the running stages.

One thread makes all calls, heartbeats included, and a call without a response takes seconds. After the first such call the mesh makes
no other call until a heartbeat is acknowledged. Work of many calls checks between calls whether a heartbeat is due.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from federation.child.child_session import ChildSession
from federation.errors import (
    BatchTooLarge,
    CallRejected,
    EpochChanged,
    ForgedReceipt,
    FutureToken,
    HoldingsRequired,
    LeaseLost,
    LedgerRecovering,
    LedgerUninitialised,
    SessionLost,
    StaleHeartbeat,
    StoreUnavailable,
    TooManyClaims,
    UnfitName,
)
from mesh.core.clock import Clock
from mesh.core.ids import MeshId
from mesh.errors import AmountError, IllegalTransition, LedgerError, MeshError

log = structlog.get_logger(__name__)

#: Errors that no retry resolves.
NEVER = (BatchTooLarge, CallRejected, UnfitName, AmountError)
#: Errors that only a heartbeat resolves: it reports all holdings to a ledger that has begun an epoch or is being initialised again.
HEARTBEAT_FIRST = (EpochChanged, LedgerUninitialised)
#: Errors that pass: a later heartbeat retries the call.
NOT_NOW = (StoreUnavailable, *HEARTBEAT_FIRST, LedgerRecovering, LeaseLost, TooManyClaims)
#: Errors of contradictory local state: the mesh gives up its session.
_BROKEN = (IllegalTransition, LedgerError)
#: Steps between two checks whether a heartbeat is due.
DONE_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Error handling for the store calls of one mesh.

    Args:
        lose: Ends the session for the given reason.
    """

    mesh: MeshId
    child_session: ChildSession
    clock: Clock
    lose: Callable[[str], None]

    def __call__(self, work: Callable[[], None]) -> bool:
        """Run the work and return whether more may run.

        If the store does not respond, the next heartbeat retries the work. If the session is lost, all work stops.
        """
        try:
            if self.child_session.session is not None and not self.child_session.is_cut_off:
                work()
        except (SessionLost, *_BROKEN) as lost:
            self.lose(str(lost))
            self.child_session.hurry()
        except MeshError as gone:
            self.note(gone)
        return self.child_session.session is not None and not self.child_session.is_cut_off

    def note(self, gone: MeshError) -> None:
        """Log a failed call, and block further calls until the next heartbeat if the store did not respond."""
        if isinstance(gone, HEARTBEAT_FIRST):
            self.child_session.hurry()
        self.child_session.is_cut_off |= isinstance(gone, (StoreUnavailable, *HEARTBEAT_FIRST)) and not isinstance(gone, CallRejected)
        if isinstance(gone, NOT_NOW):
            log.warning("the store does not respond", mesh=self.mesh, error=str(gone))
        else:
            log.error("the store refused a call", mesh=self.mesh, kind=type(gone).__name__, error=str(gone), remedy=remedy_of(gone))

    def has_to_stop(self, done: int) -> bool:
        """Return whether a heartbeat has to go before the next step. The longer ago the last heartbeat, the fewer steps are left."""
        now_ms = self.clock.monotonic_ms()
        is_due = done >= DONE_AT_ONCE and self.child_session.due_in_ms(now_ms) == 0
        return self.child_session.is_cut_off or is_due or (done > 0 and self.child_session.is_urgent_at(now_ms))


def will_pass(error: MeshError) -> bool:
    """Return whether the error passes without anyone's action."""
    return isinstance(error, (*NOT_NOW, HoldingsRequired, StaleHeartbeat)) and not isinstance(error, LedgerUninitialised)


def remedy_of(error: MeshError) -> str:
    """Return the remedy for an error that retries do not resolve."""
    if isinstance(error, LedgerUninitialised):
        return "check that a root runs: a root initialises the ledger"
    if isinstance(error, FutureToken):
        return "compare the clocks of the Redis servers, and check whether the mesh belonged to another federation before"
    if isinstance(error, ForgedReceipt):
        return "every root has to sign with the same key; restart the others, or let the mesh's session expire"
    if isinstance(error, NEVER):
        return "a stage or a setting exceeds a limit of the store; see the error, and cancel the stage"
    return "roots and meshes have to run the same version; if they do, report a bug"
