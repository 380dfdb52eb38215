"""Orders from before a start, listed at the start."""

from __future__ import annotations

from federation.mesh_conditions import Drain, MeshCondition
from federation.quota.policies import Stop
from federation.quota.tenant_policies import PoliciesInForce, TenantStop
from federation.registry import MeshConditions
from mesh.core.ids import MeshId, TenantPath
from serve_apps.standalone.active_stops import active_stops


def test_active_stops_are_listed_with_the_command_to_lift_them() -> None:
    conditions = MeshConditions(
        meshes={MeshId("west"): MeshCondition(drain=Drain(reason="new disks", by="me", since_ms=1)), MeshId("east"): MeshCondition()}
    )
    tenant_policies = PoliciesInForce(
        stops={TenantPath("acme/ops"): TenantStop(reason="billing"), TenantPath("acme/b"): TenantStop(stop=Stop.DRAIN)}
    )
    assert list(active_stops(conditions, tenant_policies)) == [
        "mesh west: still drained (new disks); `schedulemesh undrain west` ends the drain",
        "tenant acme/b: still drained; `schedulemesh resume acme/b` lets its work start",
        "tenant acme/ops: still held (billing); `schedulemesh resume acme/ops` lets its work start",
    ]


def test_no_stops_are_listed_without_orders() -> None:
    assert list(active_stops(MeshConditions(), PoliciesInForce())) == []
