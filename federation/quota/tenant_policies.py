"""Stored settings of tenants beside their limits: the settings of the root's file, and the stops that operators have set since.

The two never overwrite each other: `apply` replaces the file's settings and leaves the stops alone. A stop outlives every restart and
every `apply`, until an operator removes it. If both stop a tenant, the stronger stop counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from federation.quota.policies import QueueSettings, Stop, TenantPolicies
from mesh.core.ids import TenantPath

_STRENGTH = {Stop.NONE: 0, Stop.HOLD: 1, Stop.DRAIN: 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantStop:
    """Stop of a tenant: nothing new of the tenant, and of all tenants below it, starts."""

    stop: Stop = Stop.HOLD
    reason: str = ""  #: Written by the operator.
    by: str = ""  #: Id of the operator's API key.
    authority: str = "*"  #: Tenant path that the key covers; a key with a smaller range cannot remove the stop.
    since_ms: int = 0  #: Milliseconds since the epoch.


@dataclass(frozen=True, slots=True, kw_only=True)
class PoliciesInForce:
    """Settings and stops at one instant."""

    filed: TenantPolicies = field(default_factory=TenantPolicies)  #: Settings of the file.
    stops: Mapping[TenantPath, TenantStop] = field(default_factory=dict)

    def merged(self) -> TenantPolicies:
        """Return the file's settings with the stops merged in."""
        settings = dict(self.filed.settings)
        for tenant, stopped in self.stops.items():
            known = settings.get(tenant, QueueSettings())
            settings[tenant] = replace(known, stop=max(known.stop, stopped.stop, key=_STRENGTH.__getitem__))
        return replace(self.filed, settings=settings)


class TenantPolicyStore(Protocol):
    """Port of the stored settings; every method is atomic and safe to repeat. All methods raise StoreUnavailable."""

    def publish(self, filed: TenantPolicies) -> None:
        """Replace the file's settings."""

    def stop(self, tenant: TenantPath, stopped: TenantStop) -> None:
        """Stop the tenant: nothing new starts. A later stop replaces an earlier one."""

    def release(self, tenant: TenantPath) -> bool:
        """Remove the stop; return False if there was none. The file's settings of the tenant stay."""

    def in_force(self) -> PoliciesInForce:
        """Return the settings and stops in force; the same object while nothing changes."""
