"""Run times and value sizes of functions, as estimates for planning: smoothed means by tenant and function, in memory.

    run_ms(function, mesh) = mean(function) x slowness(mesh)

A function without history takes the mean of its tenant's functions, and a tenant without history `RUN_MS_UNKNOWN`. The slowness of a mesh
is the smoothed ratio of measured to expected run times there; 1 where nothing has run. A coordinator that starts knows nothing and learns
again, so estimates are never needed for correctness.

Source: ADR 0054; smoothing as in `federation.estimates`.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from federation.estimates import SMOOTHING
from mesh.core.ids import MeshId, TenantPath

#: A node's run time before any node of its tenant has ended. Short: unknown work stays on one mesh unless there are many nodes.
RUN_MS_UNKNOWN = 250
#: Size of a value that was never measured: it is not stored, or not computed yet.
SIZE_UNKNOWN_BYTES = 1_024
#: Limit on the functions that are remembered; those that ended longest ago are forgotten.
FUNCTIONS_MAX = 10_000
#: Limits on the slowness of a mesh, so that one odd function does not rule a mesh out.
SLOWNESS_MIN, SLOWNESS_MAX = 0.125, 8.0


@dataclass(slots=True)
class _Means:
    run_ms: float
    size_bytes: float | None = None


class FunctionTimes:
    """Estimates from the nodes that have ended."""

    def __init__(self) -> None:
        self._functions: OrderedDict[tuple[TenantPath, str], _Means] = OrderedDict()
        self._tenants: dict[TenantPath, float] = {}
        self._slowness: dict[MeshId, float] = {}

    def note(self, tenant: TenantPath, function: str, mesh: MeshId, took_ms: int, size_bytes: int | None = None) -> None:
        """Count one more node that has succeeded.

        Args:
            size_bytes: Size of its value; None: unknown.
        """
        took = max(0, took_ms) + 0.5  # A node takes a part of a millisecond.
        slowness = self._slowness.get(mesh, 1.0)
        means = self._functions.pop((tenant, function), None)
        if means is None:
            means = _Means(took / slowness)
        else:
            part = took / means.run_ms if means.run_ms else 1.0
            self._slowness[mesh] = min(SLOWNESS_MAX, max(SLOWNESS_MIN, slowness + (part - slowness) / SMOOTHING))
            means.run_ms += (took / slowness - means.run_ms) / SMOOTHING
        if size_bytes is not None:
            means.size_bytes = size_bytes if means.size_bytes is None else means.size_bytes + (size_bytes - means.size_bytes) / SMOOTHING
        self._functions[tenant, function] = means
        if len(self._functions) > FUNCTIONS_MAX:
            self._functions.popitem(last=False)
        usual = self._tenants.get(tenant)
        self._tenants[tenant] = took if usual is None else usual + (took - usual) / SMOOTHING

    def run_ms(self, tenant: TenantPath, function: str, mesh: MeshId | None = None) -> float:
        """Return the expected run time of a node of the function, on a mesh or on a usual one."""
        means = self._functions.get((tenant, function))
        usual = means.run_ms if means is not None else self._tenants.get(tenant, float(RUN_MS_UNKNOWN))
        return usual * self._slowness.get(mesh, 1.0) if mesh is not None else usual

    def known_ms(self, tenant: TenantPath, function: str) -> float | None:
        """Return the run time of a node of the function on a usual mesh; None: no node of it has ended."""
        means = self._functions.get((tenant, function))
        return None if means is None else means.run_ms

    def size_bytes(self, tenant: TenantPath, function: str) -> int:
        """Return the expected size of the function's value."""
        means = self._functions.get((tenant, function))
        return SIZE_UNKNOWN_BYTES if means is None or means.size_bytes is None else round(means.size_bytes)
