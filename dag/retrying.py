"""When a node that failed is tried again, and when it is not: waits that double, and a limit to what one node may break.

The wait is a pure function of who waits and how often it failed. Its jitter comes from a hash of the id, not from chance, so a
replay waits as long, and nodes that broke a worker together come back apart: who breaks the next one is known by that.

Source: references of the protocol §5 (fail); ADR 0022.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

#: Steps that the jitter can take.
_STEPS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRules:
    """How often and how soon."""

    wait_ms: int = 2_000  #: After the first failure; doubled by each further one. 0: no waiting.
    wait_max_ms: int = 300_000  #: The longest wait, without its jitter.
    kills_max: int = 3  #: Workers that one node may break before it is poison.
    losses_max: int = 3  #: Attempts that it may lose with meshes and runners, through no fault of its own.

    def wait_after_ms(self, who: str, failures: int) -> int:
        """How long to wait after so many failures (at least 1): doubled each time, up to `wait_max_ms`, and up to half of that more."""
        # More doublings than this pass any limit, and a shift by a large number is a large number.
        base_ms = min(self.wait_max_ms, self.wait_ms << min(failures - 1, 40))
        step = int.from_bytes(hashlib.sha256(f"{who}|{failures}".encode()).digest()[:8], "big") % _STEPS
        return base_ms + base_ms * step // (2 * _STEPS)


RETRY_RULES = RetryRules()
