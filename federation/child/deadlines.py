"""Lease deadlines: how long a mesh may act on the ledger's last response, by the mesh's own clock.

Three deadlines count from the *sending* of the last acknowledged heartbeat. After the first, the mesh starts nothing new. After the
second, the mesh asks running stages to stop. At the third, no work may be left. The third lies before the session's end in the ledger,
whatever the rates of the two clocks: the holder stops before the grantor reclaims.

Source: the lease protocol's T1, T2 and T3 (15, 22 and 29.7 s of 30 s).
"""

from dataclasses import dataclass
from enum import IntEnum


class Permission(IntEnum):
    """Permission of a mesh to act; a greater value permits less."""

    PROVED = 0  #: Everything.
    NO_ADMISSION = 1  #: Continue running stages, start nothing.
    STOPPING = 2  #: Save and end running stages.
    OVER = 3  #: Nothing: other meshes may hold the leases by now.


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """The three deadlines of a session, in milliseconds after the sending of the last acknowledged heartbeat."""

    no_admission_ms: int
    stop_ms: int
    over_ms: int

    @classmethod
    def of(cls, ttl_ms: int) -> "Deadlines":
        """Return the deadlines for a time to live: 1/2, 22/30 and 99 % of it. The last hundredth covers clocks of different rates."""
        return cls(no_admission_ms=ttl_ms // 2, stop_ms=ttl_ms * 22 // 30, over_ms=ttl_ms * 99 // 100)

    def permission(self, since_ms: int) -> Permission:
        """Return the permission `since_ms` after the sending."""
        return Permission(sum(since_ms >= moment_ms for moment_ms in (self.no_admission_ms, self.stop_ms, self.over_ms)))

    def next_change_ms(self, since_ms: int) -> int | None:
        """Return in how many milliseconds the next deadline passes; None after the last one."""
        return min((at_ms - since_ms for at_ms in (self.no_admission_ms, self.stop_ms, self.over_ms) if at_ms > since_ms), default=None)
