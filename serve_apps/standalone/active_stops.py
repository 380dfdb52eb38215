"""Drains of meshes and holds of tenants from before this start that are still in force. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from federation.quota.policies import Stop
from federation.quota.tenant_policies import PoliciesInForce
from federation.registry import MeshConditions


def active_stops(conditions: MeshConditions, tenant_policies: PoliciesInForce) -> Iterator[str]:
    """Yield one line per drain or hold, with its reason and the command that ends it."""
    for mesh, condition in sorted(conditions.meshes.items()):
        if condition.drain is not None:
            yield f"mesh {mesh}: still drained{_because(condition.drain.reason)}; `schedulemesh undrain {mesh}` ends the drain"
    for tenant, stopped in sorted(tenant_policies.stops.items()):
        what = "drained" if stopped.stop is Stop.DRAIN else "held"
        yield f"tenant {tenant}: still {what}{_because(stopped.reason)}; `schedulemesh resume {tenant}` lets its work start"


def _because(reason: str) -> str:
    return f" ({reason})" if reason else ""
