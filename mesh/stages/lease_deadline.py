"""Lease deadline: how long the work on a node may run on proved leases.

The holder of leases renews them again and again. Each renewal counts from a clock reading that the deadline itself gave out
*before* the holder asked its ledger. So a renewal that was delayed, in a frozen process or a network, is worth no more than at
the time of the request, and no clock of another machine is read.

The holder stops by its own clock before the grantor takes the leases back.
"""

from dataclasses import dataclass
from enum import Enum


class DeadlineState(Enum):
    """State of the work on the node under its lease deadline."""

    GO_ON = "go on"  #: Its leases are valid.
    STOP = "stop"  #: The work must be asked to end.
    KILL = "kill"  #: The work must be killed: nothing of it may be left.


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """Proof that the leases of a session were valid at the clock reading `clock_ms`."""

    incarnation: int  #: The session's token; a later session has a greater one.
    clock_ms: int  #: Reading of `LeaseDeadline.read_clock` before the ledger was asked.
    stop_after_ms: int  #: From `clock_ms`.
    kill_after_ms: int  #: From `clock_ms`; not before `stop_after_ms`.
    since: int = 0  #: First of an unbroken chain of sessions, each of which continued the work of the one before; 0: this session.

    def covers(self, incarnation: int) -> bool:
        """Return whether the renewal also proves the leases that pay for that session's work."""
        return incarnation >= (self.since or self.incarnation)


@dataclass(slots=True)
class LeaseDeadline:
    """Deadline of one mesh's work on one node. Times are milliseconds of the watchdog's own enduring clock."""

    incarnation: int = 0  #: The greatest accepted one.
    stop_at_ms: int = 0
    kill_at_ms: int = 0

    def accept(self, renewal: Renewal, now_ms: int) -> bool:
        """Accept the renewal; False when a later session was accepted already, or `clock_ms` lies in the future.

        A renewal never shortens the deadline that an earlier one of the same session gave; a new session replaces it.
        """
        if renewal.incarnation < self.incarnation or renewal.clock_ms > now_ms:
            return False
        stop_at_ms, kill_at_ms = (
            renewal.clock_ms + renewal.stop_after_ms,
            renewal.clock_ms + max(renewal.stop_after_ms, renewal.kill_after_ms),
        )
        if renewal.incarnation > self.incarnation:
            self.incarnation, self.stop_at_ms, self.kill_at_ms = renewal.incarnation, stop_at_ms, kill_at_ms
        else:
            self.stop_at_ms, self.kill_at_ms = max(self.stop_at_ms, stop_at_ms), max(self.kill_at_ms, kill_at_ms)
        return True

    def verdict(self, now_ms: int) -> DeadlineState:
        """Return the state at this moment; KILL before the first renewal."""
        if now_ms >= self.kill_at_ms:
            return DeadlineState.KILL
        return DeadlineState.STOP if now_ms >= self.stop_at_ms else DeadlineState.GO_ON
