"""Limits on accepted work that has not ended (back-pressure), per tenant subtree and for the whole store.

A refused submission is never stored, so nothing is lost. The refusal carries a time to retry after.

Source: ADR 0022.
"""

from __future__ import annotations

from dataclasses import dataclass

from mesh.core.counting import counted

#: Time after which a refused client may retry.
RETRY_AFTER_MS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogLimits:
    """Limits on open runs: accepted and not ended."""

    runs_max: int = 10_000  #: Open runs of a tenant and its descendants.
    bytes_max: int = 2 * 2**30  #: Bytes of their graphs and blobs.
    memory_percent_max: int = 80  #: Used share of the server's memory limit; a server without a limit is never full.

    @property
    def arguments(self) -> tuple[int, int, int]:
        """The limits in the order of the scripts."""
        return self.runs_max, self.bytes_max, self.memory_percent_max

    def words_when_full(self, tenant: str, *, runs: int, size_bytes: int, weight_bytes: int) -> str | None:
        """Return a message about the limit that one more run would exceed, with its configuration key; None if no limit is exceeded.

        Args:
            runs: Number of open runs of the tenant and its descendants.
            size_bytes: Size of the graphs and blobs of these runs.
            weight_bytes: Size of the graph and blobs of the new run.
        """
        if runs + 1 > self.runs_max:
            return f"{tenant} has {counted(runs, 'open run')}, which is its limit (dispatch.runs_max: {self.runs_max}); {_COME_AGAIN}"
        if size_bytes + weight_bytes > self.bytes_max:
            weighs = f"this one has {counted(weight_bytes, 'byte')} and the open runs of {tenant} have {counted(size_bytes, 'byte')}"
            return f"{weighs}, together above the limit (dispatch.bytes_max: {self.bytes_max}); {_COME_AGAIN}"
        return None


#: Message when the server's memory is the limit.
STORE_FULL = "the store is nearly full (dispatch.memory_percent_max): accepted runs go on, new ones are refused for now"
_COME_AGAIN = "retry when some have ended"
BACKLOG_LIMITS = BacklogLimits()
