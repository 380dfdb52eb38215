"""How long a mesh may act on what its ledger last said, by the mesh's own clock.

Three moments, counted from the *sending* of the last heartbeat that was answered: after the first nothing new is begun, after
the second what runs is asked to stop, after the third nothing may be left. The third lies before the end of the session in
the ledger, whatever the clocks' rates: the holder stops before the grantor takes back.

Source: the lease protocol's T1, T2 and T3 (15, 22 and 29.7 s of 30 s).
"""

from dataclasses import dataclass
from enum import IntEnum


class Permission(IntEnum):
    """What a mesh may do; the greater, the less."""

    PROVED = 0  #: Everything.
    NO_ADMISSION = 1  #: Go on with what runs, begin nothing.
    STOPPING = 2  #: Save and end what runs.
    OVER = 3  #: Nothing: the leases may be somebody else's by now.


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """The three moments of a session, in milliseconds after the sending of the last heartbeat that was answered."""

    no_admission_ms: int
    stop_ms: int
    over_ms: int

    @classmethod
    def of(cls, ttl_ms: int) -> "Deadlines":
        """Half, 22/30 and 99 % of the time to live; the last hundredth is for clocks whose rates differ."""
        return cls(no_admission_ms=ttl_ms // 2, stop_ms=ttl_ms * 22 // 30, over_ms=ttl_ms * 99 // 100)

    def permission(self, since_ms: int) -> Permission:
        """Where a mesh stands that long after the sending."""
        return Permission(sum(since_ms >= moment_ms for moment_ms in (self.no_admission_ms, self.stop_ms, self.over_ms)))

    def next_change_ms(self, since_ms: int) -> int | None:
        """In how many milliseconds the permission changes by itself; None when it is OVER."""
        return min((at_ms - since_ms for at_ms in (self.no_admission_ms, self.stop_ms, self.over_ms) if at_ms > since_ms), default=None)
