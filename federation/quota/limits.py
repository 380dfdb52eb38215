"""Limits beside quota: how many workloads run, whether a tenant admits work, and when. A limit applies to all below its node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from federation.quota.forest import QuotaForest
from federation.quota.policies import QueueSettings, Stop
from federation.quota.workloads import Workload
from mesh.core.reasons import Reason

_NONE = QueueSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Reason why something may not start, whatever room there is."""

    node: str  #: The tenant that sets the limit.
    reason: Reason
    limit: int | None = None
    opens_ms: int | None = None


@dataclass(slots=True)
class RunningCounts:
    """Number of running workloads below each node, in all and by user."""

    forest: QuotaForest
    _all: Counter[int] = field(default_factory=Counter)
    _by_user: Counter[tuple[int, str]] = field(default_factory=Counter)

    def add(self, workload: Workload, by: int = 1) -> None:
        """Count `by` more running workloads like this one; -1 for one fewer."""
        for node in self.forest.paths[self.forest.index[workload.queue]]:
            self._all[node] += by
            self._by_user[node, workload.user] += by

    def of(self, node: int) -> int:
        return self._all[node]

    def of_user(self, node: int, user: str) -> int:
        return self._by_user[node, user]


def queue_gate(forest: QuotaForest, settings: Mapping[int, QueueSettings], queue: int, now_ms: int) -> Gate | None:
    """Return why nothing of a queue may start now; None if something may."""
    for node in forest.paths[queue]:
        own = settings.get(node, _NONE)
        if own.stop is not Stop.NONE:
            reason = Reason.TENANT_SUSPENDED if own.stop is Stop.HOLD else Reason.TENANT_DRAINED
            return Gate(node=forest.tenant_of(node), reason=reason)
        if own.windows and not any(window.is_open(now_ms) for window in own.windows):
            opens_ms = min(window.opens_next_ms(now_ms) for window in own.windows)
            return Gate(node=forest.tenant_of(node), reason=Reason.OUTSIDE_WINDOW, opens_ms=opens_ms)
    return None


def running_gate(counts: RunningCounts, settings: Mapping[int, QueueSettings], workload: Workload) -> Gate | None:
    """Return the limit on running work that keeps this workload from starting; None if it may start."""
    left, gate = starts_left(counts, settings, workload.queue, workload.user)
    return gate if left is not None and left <= 0 else None


def starts_left(counts: RunningCounts, settings: Mapping[int, QueueSettings], queue: str, user: str) -> tuple[int | None, Gate | None]:
    """Return how many more workloads of the user may start at the queue, and the tightest limit; None if there is no limit.

    The number is negative after a limit was lowered: so many have to end before the next one starts.
    """
    forest = counts.forest
    least: int | None = None
    gate: Gate | None = None
    for node in forest.paths[forest.index[queue]]:
        own = settings.get(node, _NONE)
        limits = (
            (own.running_max, counts.of(node), Reason.RUNNING_LIMIT),
            (own.running_max_per_user, counts.of_user(node, user), Reason.USER_LIMIT),
        )
        for limit, running, reason in limits:
            if limit is not None and (least is None or limit - running < least):
                least, gate = limit - running, Gate(node=forest.tenant_of(node), reason=reason, limit=limit)
    return least, gate
