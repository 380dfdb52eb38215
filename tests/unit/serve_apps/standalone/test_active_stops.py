"""What was ordered before a start is told at the start."""

from __future__ import annotations

from federation.mesh_conditions import Drain, MeshCondition
from federation.quota.policies import Stop
from federation.registry import MeshConditions
from federation.tenant_policies import PoliciesInForce, TenantStop
from mesh.core.ids import MeshId, TenantPath
from serve_apps.standalone.active_stops import active_stops


def test_drained_meshes_and_stopped_tenants_are_told_with_what_ends_it() -> None:
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


def test_nothing_is_told_where_nothing_was_ordered() -> None:
    assert list(active_stops(MeshConditions(), PoliciesInForce())) == []
