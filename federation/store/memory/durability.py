"""Durability without a disk: for tests, and for a federation in one process."""

from federation.durability import Durability


class MemoryDurability:
    """`DurableStore` that reaches a given level.

    Args:
        reaches: Reported reachable level.
        confirms: Level that `confirm` reaches; None: `reaches`.
    """

    def __init__(self, reaches: Durability = Durability.D0, confirms: Durability | None = None) -> None:
        self._reaches = reaches
        self._confirms = confirms or reaches

    def reachable(self) -> Durability:
        return self._reaches

    def confirm(self, wanted: Durability) -> Durability:
        return min(wanted, self._confirms, key=lambda level: level.value)
