"""What becomes of a call to a store that is not answered as it should be: later, never, or the session is lost.

Whatever a mesh asks its store for may fail in the same few ways, and each of them means the same wherever it happens. None of them ends
the process: with it would end the watch over what runs.

One thread makes all calls, heartbeats too, and one that is not answered takes seconds. So after the first of them no other is made
before a heartbeat has been answered, and whatever takes many calls asks between them whether a heartbeat is due.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from federation.child.tenure import Tenure
from federation.errors import (
    BatchTooLarge,
    CallRejected,
    EpochChanged,
    ForgedReceipt,
    FutureToken,
    HoldingsWanted,
    LeaseLost,
    LedgerLearning,
    LedgerUninitialised,
    SessionLost,
    StaleBeat,
    StoreUnavailable,
    TooManyClaims,
    UnfitName,
)
from mesh.clock import Clock
from mesh.errors import AmountError, IllegalTransition, LedgerError, MeshError
from mesh.ids import MeshId

log = structlog.get_logger(__name__)

#: Will not be taken however often it is said.
NEVER = (BatchTooLarge, CallRejected, UnfitName, AmountError)
#: Only a heartbeat helps: it tells what is held to a ledger that has begun an epoch, or is being founded anew.
BEAT_FIRST = (EpochChanged, LedgerUninitialised)
#: Not now: asked again at a later beat.
NOT_NOW = (StoreUnavailable, *BEAT_FIRST, LedgerLearning, LeaseLost, TooManyClaims)
#: What the mesh knows contradicts itself: there is nothing to go on with.
_BROKEN = (IllegalTransition, LedgerError)
#: So many steps are taken before it is asked whether a heartbeat is due, which then goes first.
DONE_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Of one mesh.

    Args:
        lose: Ends the session, for the reason that it is given.
    """

    mesh: MeshId
    tenure: Tenure
    clock: Clock
    lose: Callable[[str], None]

    def __call__(self, work: Callable[[], None]) -> bool:
        """Do it; a store that does not answer is tried again at the next beat, a lost session stops everything. May more be done?"""
        try:
            if self.tenure.session is not None and not self.tenure.is_cut_off:
                work()
        except (SessionLost, *_BROKEN) as lost:
            self.lose(str(lost))
            self.tenure.hurry()
        except MeshError as gone:
            self.note(gone)
        return self.tenure.session is not None and not self.tenure.is_cut_off

    def note(self, gone: MeshError) -> None:
        """A call was answered with this, and is made again at a later beat: who else may still be asked before?"""
        if isinstance(gone, BEAT_FIRST):
            self.tenure.hurry()
        self.tenure.is_cut_off |= isinstance(gone, (StoreUnavailable, *BEAT_FIRST)) and not isinstance(gone, CallRejected)
        if isinstance(gone, NOT_NOW):
            log.warning("the store does not answer", mesh=self.mesh, error=str(gone))
        else:
            log.error("the store refuses", mesh=self.mesh, kind=type(gone).__name__, error=str(gone), remedy=remedy_of(gone))

    def has_to_stop(self, done: int) -> bool:
        """After so many steps: does a heartbeat go before the next one? The longer the last one is ago, the fewer steps."""
        now_ms = self.clock.monotonic_ms()
        is_due = done >= DONE_AT_ONCE and self.tenure.due_in_ms(now_ms) == 0
        return self.tenure.is_cut_off or is_due or (done > 0 and self.tenure.presses(now_ms))


def will_pass(error: MeshError) -> bool:
    """Is it one of those that come and go by themselves?"""
    return isinstance(error, (*NOT_NOW, HoldingsWanted, StaleBeat)) and not isinstance(error, LedgerUninitialised)


def remedy_of(error: MeshError) -> str:
    """What somebody has to do, since repeating alone does not help."""
    if isinstance(error, LedgerUninitialised):
        return "a root that starts, or runs, founds the ledger; look whether one does"
    if isinstance(error, FutureToken):
        return "compare the clocks of the Redis servers, and look whether the mesh joined another federation before"
    if isinstance(error, ForgedReceipt):
        return "every root has to sign with the same key; restart those that do not, or let the mesh's session run out"
    if isinstance(error, NEVER):
        return "a stage or a setting asks for what no call can carry; look at the error, and cancel the stage"
    return "roots and meshes have to run the same version; if they do, report this"
