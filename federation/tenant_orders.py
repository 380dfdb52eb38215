"""What holds for tenants beside their limits, as it is kept: what a file says, and whom somebody has stopped since.

The two are written by different people and never touch each other: `apply` replaces what the file says and leaves the stops of
the day alone; a hold outlives every restart and every `apply`, until it is taken back. Where both say something, the stronger word
counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from federation.quota.policies import QueueSettings, StandingOrders, Stop
from mesh.ids import TenantPath

_STRENGTH = {Stop.NONE: 0, Stop.HOLD: 1, Stop.DRAIN: 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantStop:
    """Somebody wants nothing new of the tenant, and of all below it, to start."""

    stop: Stop = Stop.HOLD
    reason: str = ""  #: In that person's words.
    by: str = ""  #: The id of the API key.
    authority: str = "*"  #: How far that key reaches: nobody who reaches less far takes the stop back.
    since_ms: int = 0  #: Milliseconds since the epoch.


@dataclass(frozen=True, slots=True, kw_only=True)
class OrdersInForce:
    """All of it at one instant."""

    filed: StandingOrders = field(default_factory=StandingOrders)  #: What the file says.
    stops: Mapping[TenantPath, TenantStop] = field(default_factory=dict)

    def merged(self) -> StandingOrders:
        """The orders with the stops among the settings."""
        settings = dict(self.filed.settings)
        for tenant, stopped in self.stops.items():
            known = settings.get(tenant, QueueSettings())
            settings[tenant] = replace(known, stop=max(known.stop, stopped.stop, key=_STRENGTH.__getitem__))
        return replace(self.filed, settings=settings)


class TenantOrders(Protocol):
    """The port; every method is atomic, and safe to repeat. Raises (all): StoreUnavailable."""

    def publish(self, filed: StandingOrders) -> None:
        """From now on this is what the file says."""

    def stop(self, tenant: TenantPath, stopped: TenantStop) -> None:
        """From now on nothing new of the tenant starts. Stopped already: the later word counts."""

    def release(self, tenant: TenantPath) -> bool:
        """Take the stop back; False when there was none. What a file says of the tenant stands."""

    def in_force(self) -> OrdersInForce:
        """All that holds. The same object as long as nothing has changed."""
