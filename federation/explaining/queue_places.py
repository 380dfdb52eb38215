"""Places in the queue of a mesh, counted among those that can be before one another.

A stage that waits for one flavor does not keep one waiting that can only take another, wherever it stands in the queue. So of all
that stands further in front only what could take a flavor in common counts; where a tenant's stages start in order, also what is its own.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from mesh.ids import FlavorName, TenantPath

Flavors = frozenset[FlavorName]


def may_meet(one: Flavors, other: Flavors) -> bool:
    """Whether some flavor would do for both; nothing is known of who has none, so it may stand in anybody's way."""
    return not one or not other or not one.isdisjoint(other)


class QueueLine:
    """The queue of one mesh, as far as it has been gone through, the next one first."""

    __slots__ = ("_alike", "_own")

    def __init__(self) -> None:
        self._alike: Counter[Flavors] = Counter()
        self._own: defaultdict[TenantPath, Counter[Flavors]] = defaultdict(Counter)

    def before(self, flavors: Flavors, tenant: TenantPath, *, in_order: bool) -> int:
        """How many of those that were added would be before one that came now.

        Args:
            flavors: What it could take.
            in_order: Stages of its tenant start in order, whatever they take.
        """
        count = sum(others for each, others in self._alike.items() if may_meet(flavors, each))
        own = self._own[tenant] if in_order and tenant in self._own else {}
        return count + sum(others for each, others in own.items() if not may_meet(flavors, each))

    def add(self, flavors: Flavors, tenant: TenantPath) -> None:
        """One more, behind all others."""
        self._alike[flavors] += 1
        self._own[tenant][flavors] += 1
