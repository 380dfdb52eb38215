"""`/v1/tenants`, `/v1/meshes` and `/v1/leases`, limited to what the key covers; drains of meshes, for operators."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Path

from mesh.core.ids import MeshId
from serve_apps.requests.access import Asking, Operating, looking, reaches
from serve_apps.requests.dependencies import Ports
from serve_apps.requests.openapi import refused
from serve_apps.schemas.leases import LeasesView
from serve_apps.schemas.meshes import DrainRequest, MeshesView
from serve_apps.schemas.tenants import TenantsView
from serve_apps.services.draining import drain_mesh, undrain_mesh
from serve_apps.snapshot_cache.snapshots import only, snapshot_now
from serve_apps.views.federation import leases_view, meshes_view, tenants_view

MeshPath = Annotated[str, Path(description="Name of the mesh.", max_length=64)]

router = APIRouter(prefix="/v1", tags=["federation"], dependencies=[Depends(looking)])


@router.get("/tenants")
def list_tenants(ports: Ports, principal: Asking) -> TenantsView:
    """List tenants with their quota: nominal, used, borrowed, available."""
    return tenants_view(ports.shown(), partial(reaches, principal), ports.tenant_policies.in_force())


@router.get("/meshes")
def list_meshes(ports: Ports, principal: Asking) -> MeshesView:
    """List the meshes that the key's tenants may use."""
    snapshot = snapshot_now(ports.shown, ports.registry, ports.configured_meshes)
    return meshes_view(snapshot, partial(reaches, principal), ports.queue.ages(), ports.configured_meshes)


@router.post("/meshes/{mesh}/drain", responses=refused(404))
def drain(mesh: MeshPath, ports: Ports, principal: Operating, body: DrainRequest | None = None) -> MeshesView:
    """Send the mesh no new work until `undrain`, also across restarts. The mesh finishes the work it has."""
    reason = body.reason if body is not None else ""
    snapshot = drain_mesh(
        ports.ledger, ports.registry, MeshId(mesh), reason=reason, by=principal.key, configured_meshes=ports.configured_meshes
    )
    return meshes_view(only(snapshot, MeshId(mesh)), partial(reaches, principal), configured_meshes=ports.configured_meshes)


@router.post("/meshes/{mesh}/undrain", responses=refused(404))
def undrain(mesh: MeshPath, ports: Ports, principal: Operating) -> MeshesView:
    """Let the mesh receive work again. Does nothing if the mesh is not drained."""
    snapshot, _ = undrain_mesh(ports.ledger, ports.registry, MeshId(mesh), configured_meshes=ports.configured_meshes)
    return meshes_view(only(snapshot, MeshId(mesh)), partial(reaches, principal), configured_meshes=ports.configured_meshes)


@router.get("/leases")
def list_leases(ports: Ports, principal: Asking) -> LeasesView:
    """List the leases that are held now."""
    return leases_view(ports.shown(), partial(reaches, principal))
