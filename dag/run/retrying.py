"""Choice of the failures that are retried, the waits before retries, and the limits on retries.

A node's own options decide about its errors: `retries`, `retry_on`, `never_on`. The wait is a pure function of the node and its failures.
Its jitter is a hash of the id instead of a random number. So a replay waits as long, and nodes that killed a worker together come back at
different times, which shows which of them kills the next one.

Source: ADR 0022.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from dag.spec.plans import NodePlan
from dag.spec.retry_options import NO_BACKOFF, Backoff
from mesh.core.reasons import Reason
from mesh.stages.messages import Failure

#: Growth of the wait, and the largest share that its jitter adds.
FACTOR, JITTER = 2.0, 0.5
#: Number of different jitters.
_STEPS = 1_000
_POWER_MAX = 100
#: Failures that a further attempt would meet again.
_SAME_AGAIN = frozenset({Reason.OUTSIDE_GROUP, Reason.RESULT_UNSERIALIZABLE, Reason.GROWTH_REFUSED})
#: Failures that `retry_on` has to name.
_OF_THE_CODE = frozenset({Reason.USER_ERROR, Reason.OUT_OF_MEMORY, Reason.START_TO_CLOSE_TIMEOUT})


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRules:
    """Limits and waits for retries."""

    wait_ms: int = 2_000  #: Wait after the first failure, doubled by each further one; 0: no wait.
    wait_max_ms: int = 300_000  #: Limit on the wait, without its jitter.
    kills_max: int = 3  #: Workers that may die while they run one node; then it fails as poison.
    losses_max: int = 3  #: Attempts that one node may lose with meshes and runners.
    resume_window_ms: int = 0  #: Time after a failure or a cancellation in which the values of a run are kept for its resumption.

    def wait_after_ms(self, who: str, failures: int, backoff: Backoff = NO_BACKOFF) -> int:
        """Return the wait after `failures` (at least 1): `factor` times as long each time up to `max_ms`, plus the jitter.

        Args:
            who: The node. Each waits for another time.
            backoff: The node's own; the rules complete it.
        """
        initial_ms = self.wait_ms if backoff.initial_ms is None else backoff.initial_ms
        max_ms = max(self.wait_max_ms, initial_ms) if backoff.max_ms is None else backoff.max_ms
        factor = FACTOR if backoff.factor is None else backoff.factor
        jitter = JITTER if backoff.jitter is None else backoff.jitter
        # More steps exceed any limit, and no float holds their power.
        base_ms = int(min(max_ms, initial_ms * factor ** min(failures - 1, _POWER_MAX)))
        step = int.from_bytes(hashlib.sha256(f"{who}|{failures}".encode()).digest()[:8], "big") % _STEPS
        return base_ms + int(base_ms * jitter * step / _STEPS)


def is_never_retried(plan: NodePlan, failure: Failure) -> bool:
    """Return whether no number of retries is enough: the same would happen again, or the node's `never_on` names the error."""
    return failure.reason in _SAME_AGAIN or not plan.never_on.isdisjoint(_names_of(failure))


def is_retried(plan: NodePlan, failure: Failure) -> bool:
    """Return whether the node's retries apply to this failure.

    `retry_on` limits what the node's own code does: its errors, its time, its memory. A failure of the mesh, such as to write the value, is
    retried without being named.
    """
    if is_never_retried(plan, failure):
        return False
    if plan.retry_exceptions is None or failure.reason not in _OF_THE_CODE:
        return True
    return not plan.retry_exceptions.isdisjoint(_names_of(failure))


def _names_of(failure: Failure) -> tuple[str, ...]:
    """Return the names that `retry_on` and `never_on` may have for the failure."""
    return (failure.type_name, *failure.bases, failure.reason.value)


RETRY_RULES = RetryRules()
