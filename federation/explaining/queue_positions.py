"""Places in the queue of a mesh, counted among stages that compete.

A stage that waits for one flavor does not delay one that can only take another, wherever both stand in the queue. So only stages that
could take a common flavor count; for a tenant whose stages start in order, also its own.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from mesh.core.ids import FlavorName, TenantPath

Flavors = frozenset[FlavorName]


def may_meet(one: Flavors, other: Flavors) -> bool:
    """Return whether some flavor would do for both. An empty set means unknown flavors, which may compete with any."""
    return not one or not other or not one.isdisjoint(other)


class QueuePositions:
    """The queue of one mesh, as far as it has been read, the next stage first."""

    __slots__ = ("_alike", "_own")

    def __init__(self) -> None:
        self._alike: Counter[Flavors] = Counter()
        self._own: defaultdict[TenantPath, Counter[Flavors]] = defaultdict(Counter)

    def before(self, flavors: Flavors, tenant: TenantPath, *, in_order: bool) -> int:
        """Return how many of the added stages would come before a new one and compete with it.

        Args:
            flavors: Flavors that it could take.
            in_order: Stages of its tenant start in order, whatever their flavors.
        """
        count = sum(others for each, others in self._alike.items() if may_meet(flavors, each))
        own = self._own[tenant] if in_order and tenant in self._own else {}
        return count + sum(others for each, others in own.items() if not may_meet(flavors, each))

    def add(self, flavors: Flavors, tenant: TenantPath) -> None:
        """Add a stage at the end."""
        self._alike[flavors] += 1
        self._own[tenant][flavors] += 1
