"""Durability where there is no disk: for tests, and for a federation of one process."""

from federation.durability import Durability


class MemoryDurability:
    """`DurableStore` that reaches what it is told to reach.

    Args:
        reaches: What it can do, for as long as nothing goes wrong.
        confirms: What it does when it is asked; None: what it can.
    """

    def __init__(self, reaches: Durability = Durability.D0, confirms: Durability | None = None) -> None:
        self._reaches = reaches
        self._confirms = confirms or reaches

    def reachable(self) -> Durability:
        """See `DurableStore.reachable`."""
        return self._reaches

    def confirm(self, wanted: Durability) -> Durability:
        """See `DurableStore.confirm`."""
        return min(wanted, self._confirms, key=lambda level: level.value)
