"""Past use of tenants between rounds of the planner: kept in memory, fed from the ledger's snapshots.

No other process has the history, so a new leader begins without a past. While another root leads, or a round is late, the time since
the last round counts with the use at its end.
"""

from __future__ import annotations

from collections import defaultdict

from federation.quota.forest import QuotaForest
from federation.quota.past_use import PastUse, load_of
from federation.snapshot import FederationSnapshot


class UsageHistory:
    """Past use of all tenants of a ledger, on the ledger's own clock."""

    def __init__(self, snapshot: FederationSnapshot, forest: QuotaForest, half_life_ms: int) -> None:
        self._forest = forest
        self._past = PastUse(half_life_ms=half_life_ms, sampled_ms=snapshot.at_ms)

    def let_pass(self, snapshot: FederationSnapshot, forest: QuotaForest, half_life_ms: int) -> PastUse:
        """Return the past use up to the snapshot, by the leaves of the forest. The forest and the half-life may have changed."""
        if forest is not self._forest:
            self._past.move(self._forest, forest)
            self._forest = forest
        self._past.let_pass(snapshot.at_ms, _loads(snapshot, forest))
        self._past.half_life_ms = half_life_ms
        return self._past


def _loads(snapshot: FederationSnapshot, forest: QuotaForest) -> dict[int, int]:
    """Return the present load by leaf, as `load_of` counts it. Promised growth that is not granted yet does not count."""
    used: defaultdict[int, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    for lease in snapshot.leases:
        for name, units in lease.amounts.items():
            used[forest.queue_of(lease.tenant)][name] += units
    return {leaf: load_of(forest, leaf, units) for leaf, units in used.items()}
