"""Waits before retries, which double, and the limits on retries.

The wait is a pure function of the node and its failures. Its jitter is a hash of the id instead of a random number. So a replay
waits as long, and nodes that killed a worker together come back at different times, which shows which of them kills the next one.

Source: ADR 0022.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

#: Number of different jitters.
_STEPS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRules:
    """Limits and waits for retries."""

    wait_ms: int = 2_000  #: Wait after the first failure, doubled by each further one; 0: no wait.
    wait_max_ms: int = 300_000  #: Limit on the wait, without its jitter.
    kills_max: int = 3  #: Workers that may die while they run one node; then it fails as poison.
    losses_max: int = 3  #: Attempts that one node may lose with meshes and runners.

    def wait_after_ms(self, who: str, failures: int) -> int:
        """Return the wait after `failures` (at least 1): doubled each time up to `wait_max_ms`, plus a jitter of up to half of that."""
        # More doublings exceed any limit, and a shift by a large number would need much memory.
        base_ms = min(self.wait_max_ms, self.wait_ms << min(failures - 1, 40))
        step = int.from_bytes(hashlib.sha256(f"{who}|{failures}".encode()).digest()[:8], "big") % _STEPS
        return base_ms + base_ms * step // (2 * _STEPS)


RETRY_RULES = RetryRules()
