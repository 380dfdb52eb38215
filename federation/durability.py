"""How much has to break before something that was accepted is lost; told with the answer, and never better than it is.

Source: references of the protocol §5 (submit); ADR 0022.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from federation.errors import DurabilityUnreachable


class Durability(str, Enum):
    """Where a submission is when it is answered; each level holds what the one before holds."""

    D0 = "D0"
    """In the store's memory, and on its disk within about a second: lost when the store's machine fails in that second."""
    D1 = "D1"
    """On the store's disk."""
    D2 = "D2"
    """Also in a second place: a replica of the store, on another machine, has it; on its disk, where the store can tell that."""


class DurableStore(Protocol):
    """The port. Raises (all): StoreUnavailable."""

    def reachable(self) -> Durability:
        """The best level that the store can reach as it is set up now."""

    def confirm(self, wanted: Durability) -> Durability:
        """See to it that all that was written before is kept at the level, and tell the one that was reached: it may be lower."""


def check_reachable(asked: Durability, reachable: Durability) -> None:
    """Refuse before anything is written what cannot be kept as it is asked for.

    Raises:
        DurabilityUnreachable: The store cannot reach the level.
    """
    if asked.value > reachable.value:
        raise DurabilityUnreachable(f"the store as it is set up reaches {reachable.value}, not {asked.value}; ask for less, or for none")
