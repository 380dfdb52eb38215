"""`/v1/tenants`, `/v1/meshes`, `/v1/leases`: what the ledger holds, as far as the key reaches; drains, for operators."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Path

from mesh.ids import MeshId
from serve_apps.answers.draining import drain_mesh, undrain_mesh
from serve_apps.looks.snapshots import only, snapshot_now
from serve_apps.requests.access import Asking, Operating, looking, reaches
from serve_apps.requests.dependencies import Ports
from serve_apps.requests.described import refused
from serve_apps.schemas.leases import LeasesView
from serve_apps.schemas.meshes import DrainRequest, MeshesView
from serve_apps.schemas.tenants import TenantsView
from serve_apps.views.federation import leases_view, meshes_view, tenants_view

MeshPath = Annotated[str, Path(description="The name of the mesh.", max_length=64)]

router = APIRouter(prefix="/v1", tags=["federation"], dependencies=[Depends(looking)])


@router.get("/tenants")
def list_tenants(ports: Ports, principal: Asking) -> TenantsView:
    """Tenants with what they have: nominal, used, borrowed, available."""
    return tenants_view(ports.shown(), partial(reaches, principal), ports.orders.in_force())


@router.get("/meshes")
def list_meshes(ports: Ports, principal: Asking) -> MeshesView:
    """Meshes that the key's tenants may use."""
    snapshot = snapshot_now(ports.shown, ports.registry, ports.roster)
    return meshes_view(snapshot, partial(reaches, principal), ports.queue.ages(), ports.roster)


@router.post("/meshes/{mesh}/drain", responses=refused(404))
def drain(mesh: MeshPath, ports: Ports, principal: Operating, body: DrainRequest | None = None) -> MeshesView:
    """Let the mesh finish what it has and get nothing new. It stays so, whatever is restarted, until `undrain`."""
    reason = body.reason if body is not None else ""
    snapshot = drain_mesh(ports.ledger, ports.registry, MeshId(mesh), reason=reason, by=principal.key, roster=ports.roster)
    return meshes_view(only(snapshot, MeshId(mesh)), partial(reaches, principal), roster=ports.roster)


@router.post("/meshes/{mesh}/undrain", responses=refused(404))
def undrain(mesh: MeshPath, ports: Ports, principal: Operating) -> MeshesView:
    """Give the mesh work again. Harmless when it was not drained."""
    snapshot, _ = undrain_mesh(ports.ledger, ports.registry, MeshId(mesh), roster=ports.roster)
    return meshes_view(only(snapshot, MeshId(mesh)), partial(reaches, principal), roster=ports.roster)


@router.get("/leases")
def list_leases(ports: Ports, principal: Asking) -> LeasesView:
    """Leases that are held now."""
    return leases_view(ports.shown(), partial(reaches, principal))
