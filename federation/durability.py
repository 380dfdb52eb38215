"""Durability levels: the failures that an accepted submission survives. The response names the level that was reached.

Source: ADR 0022.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from federation.errors import DurabilityUnreachable


class Durability(str, Enum):
    """Place in which a submission is stored when the response is sent; each level includes the levels before."""

    D0 = "D0"
    """In the store's memory, and on its disk within about a second: lost if the store's machine fails within that second."""
    D1 = "D1"
    """On the store's disk."""
    D2 = "D2"
    """Also on a replica of the store on another machine; on the replica's disk, if the store can verify that."""


class DurableStore(Protocol):
    """Port of the store's durability. All methods raise StoreUnavailable."""

    def reachable(self) -> Durability:
        """Return the best level that the store can reach in its present setup."""

    def confirm(self, wanted: Durability) -> Durability:
        """Store all earlier writes at the level, and return the level that was reached; it may be lower."""


def check_reachable(asked: Durability, reachable: Durability) -> None:
    """Refuse an unreachable level before anything is written.

    Raises:
        DurabilityUnreachable: The store cannot reach the level.
    """
    if asked.value > reachable.value:
        raise DurabilityUnreachable(
            f"the store cannot reach {asked.value}, only {reachable.value}; ask for {reachable.value} or less, or for no level"
        )
