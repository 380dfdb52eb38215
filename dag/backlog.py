"""How much may be accepted and not be done: for each tenant with all below it, and for the store as a whole.

What is refused here was never accepted, so nothing is lost; whoever is refused is told when to come again.

Source: references of the protocol §5 (back-pressure); ADR 0022.
"""

from __future__ import annotations

from dataclasses import dataclass

#: When to come again, told to whoever is refused.
RETRY_AFTER_MS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogLimits:
    """Limits of what is open: accepted and not ended."""

    runs_max: int = 10_000  #: Open runs of a tenant and all below it.
    bytes_max: int = 2 * 2**30  #: Bytes of their graphs and of what was sent along.
    memory_percent_max: int = 80  #: Of the server's memory limit in use; a server without a limit is never full.


BACKLOG_LIMITS = BacklogLimits()
