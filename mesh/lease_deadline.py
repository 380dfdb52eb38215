"""A vigil: until when the work on a node may go on, as far as its leases are proved.

The holder of leases proves them again and again; each proof counts from a stamp that the vigil itself gave out *before*
the holder asked its ledger. So a proof that was held up on the way, in a frozen process or a network, is not worth more
than it was when it was asked for, and no clock of another machine is read.

Source: the lease protocol, where the holder stops by its own clock before the grantor takes back.
"""

from dataclasses import dataclass
from enum import Enum


class DeadlineState(Enum):
    """What may happen to the work on the node."""

    GO_ON = "go on"  #: Its leases are proved.
    STOP = "stop"  #: Ask it to end.
    KILL = "kill"  #: Nothing of it may be left.


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """The leases of a session were good at the moment of the stamp."""

    incarnation: int  #: The session's token; a later session has a greater one.
    clock_ms: int  #: What `LeaseDeadline.read_clock` gave out before the ledger was asked.
    stop_after_ms: int  #: From the stamp.
    kill_after_ms: int  #: From the stamp; not before `stop_after_ms`.
    since: int = 0  #: The first of an unbroken line of sessions, each of which went on with the work of the one before; 0: it is its own.

    def covers(self, incarnation: int) -> bool:
        """Are the leases that pay for the work of that session proved, too?"""
        return incarnation >= (self.since or self.incarnation)


@dataclass(slots=True)
class LeaseDeadline:
    """The watch over one mesh's work on one node. Times are milliseconds of the watcher's own enduring clock."""

    incarnation: int = 0  #: The greatest that has been accepted.
    stop_at_ms: int = 0
    kill_at_ms: int = 0

    def accept(self, renewal: Renewal, now_ms: int) -> bool:
        """Take the proof; False when a later session was heard already, or the stamp lies in the future.

        A proof never shortens what an earlier one of the same session gave; a new session starts anew.
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
        """What holds at this moment; before the first proof nothing may run."""
        if now_ms >= self.kill_at_ms:
            return DeadlineState.KILL
        return DeadlineState.STOP if now_ms >= self.stop_at_ms else DeadlineState.GO_ON

    def due_in_ms(self, now_ms: int) -> int | None:
        """When the verdict changes by itself; None when it is KILL already."""
        waits = [at - now_ms for at in (self.stop_at_ms, self.kill_at_ms) if at > now_ms]
        return min(waits, default=None)
