"""How much may be accepted and not be done: for each tenant with all below it, and for the store as a whole.

What is refused here was never accepted, so nothing is lost; whoever is refused is told when to come again.

Source: references of the protocol §5 (back-pressure); ADR 0022.
"""

from __future__ import annotations

from dataclasses import dataclass

from mesh.counting import counted

#: When to come again, told to whoever is refused.
RETRY_AFTER_MS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogLimits:
    """Limits of what is open: accepted and not ended."""

    runs_max: int = 10_000  #: Open runs of a tenant and all below it.
    bytes_max: int = 2 * 2**30  #: Bytes of their graphs and of what was sent along.
    memory_percent_max: int = 80  #: Of the server's memory limit in use; a server without a limit is never full.

    def words_when_full(self, tenant: str, *, runs: int, size_bytes: int, weight_bytes: int) -> str | None:
        """Which limit of the tenant's one more run would exceed, with its key in the file; None: none.

        Args:
            runs: That it and all below it have open.
            size_bytes: Of their graphs and code.
            weight_bytes: Of the new one.
        """
        if runs + 1 > self.runs_max:
            return f"{tenant} has {counted(runs, 'open run')}, as many as it may (dispatch.runs_max: {self.runs_max}); {_COME_AGAIN}"
        if size_bytes + weight_bytes > self.bytes_max:
            weighs = f"this one has {counted(weight_bytes, 'byte')} and the open runs of {tenant} have {counted(size_bytes, 'byte')}"
            return f"{weighs}, more than it may have together (dispatch.bytes_max: {self.bytes_max}); {_COME_AGAIN}"
        return None


#: What is said where the server's memory is the limit.
STORE_FULL = "the store is nearly full (dispatch.memory_percent_max); what runs goes on, and nothing new is taken in for now"
_COME_AGAIN = "come again when some ended"
BACKLOG_LIMITS = BacklogLimits()
