"""Rows of the ledger in memory: sessions and leases, as in `lua/lib_lease.lua` and `lua/lib_session.lua`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from federation.errors import BatchTooLarge
from federation.leases import VICTIMS_MAX
from federation.snapshot import MeshRecord
from federation.tenants import SEPARATOR
from mesh.core.counting import counted
from mesh.core.ids import FlavorName, TenantPath

LeaseKey = tuple[TenantPath, FlavorName]
T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class SessionRow:
    """The present or last session of a mesh. Times are on the lease clock."""

    record: MeshRecord
    incarnation: int
    ttl_ms: int
    expires: int = 0  #: 0: swept.
    heartbeat: int = 0
    heartbeat_number: int = 0
    successor_of: int = 0  #: Incarnation of the session that this one has recovered; 0: none.


@dataclass(slots=True, kw_only=True)
class Row:
    """A lease, as in `lua/lib_lease.lua`."""

    tenant: TenantPath
    flavor: FlavorName
    token: int = 0
    version: int = 0
    priority: int = 0
    cut: int = 0  #: Time on the lease clock until which amounts above the target stay usable; 0: there are none.
    held: dict[str, int] = field(default_factory=dict)
    target: dict[str, int] = field(default_factory=dict)
    victims: tuple[int, ...] = ()  #: Claim tokens of stages that plans stop.

    @property
    def is_empty(self) -> bool:
        """Whether the lease holds nothing and has no target."""
        return not any(self.held.values()) and not any(self.target.values())

    @property
    def shrinks(self) -> bool:
        """Whether the lease holds more of some resource than its target."""
        return any(units > self.target.get(resource, 0) for resource, units in self.held.items())

    @property
    def grows(self) -> bool:
        """Whether the lease holds less of some resource than its target."""
        return any(units > self.held.get(resource, 0) for resource, units in self.target.items())

    def shrink_by(self, latest: int) -> None:
        """Set the deadline for amounts above the target; a running deadline is never extended."""
        if self.shrinks:
            self.cut = min(self.cut or latest, latest)
        else:
            self.end_shrinking()

    def end_shrinking(self) -> None:
        """Note that the lease need not shrink any more. The victims of the reduction go on."""
        if self.cut:
            self.cut, self.victims = 0, ()

    def with_victims(self, more: tuple[int, ...]) -> tuple[int, ...]:
        """Return the victims with more of them: the last `VICTIMS_MAX`, since the first have most likely ended."""
        return tuple(dict.fromkeys((*self.victims, *more[:VICTIMS_MAX])))[-VICTIMS_MAX:]


def by_field(item: tuple[LeaseKey, Row]) -> str:
    """Sort key: the order in which the scripts iterate over leases."""
    return SEPARATOR.join(item[0])


def bounded(rows: tuple[T, ...], most: int) -> tuple[T, ...]:
    """Return the rows of one call.

    Raises:
        BatchTooLarge: More than `most` rows.
    """
    if len(rows) > most:
        raise BatchTooLarge(f"{counted(len(rows), 'row')} in one call; send at most {most}")
    return rows
