"""What the ledger in memory is made of: sessions and leases, as `lua/lib_lease.lua` and `lua/lib_session.lua` have them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from federation.errors import BatchTooLarge
from federation.snapshot import MeshRecord
from federation.tenants import SEPARATOR
from mesh.counting import counted
from mesh.ids import FlavorName, TenantPath

LeaseKey = tuple[TenantPath, FlavorName]
T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Seat:
    """A mesh's place in the ledger: its present session, or its last. Times are on the lease clock."""

    record: MeshRecord
    incarnation: int
    ttl_ms: int
    expires: int = 0  #: 0: swept.
    heartbeat: int = 0
    beat: int = 0
    heir_of: int = 0  #: Incarnation of the session whose work this one went on with; 0: of none.


@dataclass(slots=True, kw_only=True)
class Row:
    """A lease, as `lua/lib_lease.lua` has it."""

    tenant: TenantPath
    flavor: FlavorName
    token: int = 0
    version: int = 0
    priority: int = 0
    cut: int = 0  #: Time on the lease clock until which what is above the target may be used; 0: nothing is.
    held: dict[str, int] = field(default_factory=dict)
    target: dict[str, int] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Nothing is held, and nothing is to be."""
        return not any(self.held.values()) and not any(self.target.values())

    @property
    def shrinks(self) -> bool:
        """Of some resource less is to be held than is."""
        return any(units > self.target.get(resource, 0) for resource, units in self.held.items())

    @property
    def grows(self) -> bool:
        """Of some resource more is to be held than is."""
        return any(units > self.held.get(resource, 0) for resource, units in self.target.items())

    def give_way_by(self, latest: int) -> None:
        """What is above the target may be used until then; a time that is running already is not made longer."""
        self.cut = min(self.cut or latest, latest) if self.shrinks else 0


def by_field(item: tuple[LeaseKey, Row]) -> str:
    """In the order in which the scripts go through leases."""
    return SEPARATOR.join(item[0])


def bounded(rows: tuple[T, ...], most: int) -> tuple[T, ...]:
    """Rows of one call.

    Raises:
        BatchTooLarge: There are more.
    """
    if len(rows) > most:
        raise BatchTooLarge(f"{counted(len(rows), 'row')} in one call; send at most {most}")
    return rows
