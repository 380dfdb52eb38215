"""`/v1/tenants`, `/v1/meshes`, `/v1/leases`, `/v1/queues`: what the ledger holds, as far as the key reaches; drains, for operators."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Path

from mesh.ids import MeshId, TenantPath
from serve_apps.access import Asking, Operating, reaches
from serve_apps.dependencies import Ports
from serve_apps.draining import drain_mesh, only, snapshot_now, undrain_mesh
from serve_apps.errors import OutOfReach
from serve_apps.federation_views import leases_view, meshes_view, tenants_view, waiting_views
from serve_apps.schemas import DrainRequest, ErrorBody, LeasesView, MeshesView, QueueView, TenantsView

#: How far into the queue of a mesh is looked.
QUEUE_DEPTH_MAX = 1_000

MeshPath = Annotated[str, Path(description="The name of the mesh.", max_length=64)]

router = APIRouter(prefix="/v1", tags=["federation"])

_REFUSALS: dict[int | str, dict[str, Any]] = {status: {"model": ErrorBody} for status in (401, 403, 404, 503)}


@router.get("/tenants")
def list_tenants(ports: Ports, principal: Asking) -> TenantsView:
    """Tenants with what they have: nominal, used, borrowed, available."""
    return tenants_view(ports.ledger.snapshot(), partial(reaches, principal))


@router.get("/meshes")
def list_meshes(ports: Ports, principal: Asking) -> MeshesView:
    """Meshes that the key's tenants may use."""
    return meshes_view(snapshot_now(ports.ledger, ports.registry), partial(reaches, principal), ports.queue.ages())


@router.post("/meshes/{mesh}/drain", responses=_REFUSALS)
def drain(mesh: MeshPath, ports: Ports, principal: Operating, body: DrainRequest | None = None) -> MeshesView:
    """Let the mesh finish what it has and get nothing new. It stays so, whatever is restarted, until `undrain`."""
    reason = body.reason if body is not None else ""
    snapshot = drain_mesh(ports.ledger, ports.registry, MeshId(mesh), reason=reason, by=principal.key)
    return meshes_view(only(snapshot, MeshId(mesh)), partial(reaches, principal))


@router.post("/meshes/{mesh}/undrain", responses=_REFUSALS)
def undrain(mesh: MeshPath, ports: Ports, principal: Operating) -> MeshesView:
    """Give the mesh work again. Harmless when it was not drained."""
    snapshot, _ = undrain_mesh(ports.ledger, ports.registry, MeshId(mesh))
    return meshes_view(only(snapshot, MeshId(mesh)), partial(reaches, principal))


@router.get("/leases")
def list_leases(ports: Ports, principal: Asking) -> LeasesView:
    """Leases that are held now."""
    return leases_view(ports.ledger.snapshot(), partial(reaches, principal))


@router.get("/queues/{tenant:path}")
def show_queue(tenant: str, ports: Ports, principal: Asking) -> QueueView:
    """Stages of the tenant, and of all below it, that wait: where, at which position, and why."""
    path = TenantPath(tenant)
    if not reaches(principal, path):
        raise OutOfReach(f"the API key does not reach the tenant {tenant}")
    snapshot = ports.ledger.snapshot()
    snapshot.tree.tenant(path)  # Raises UnknownTenant and names the nearest.
    waiting = [
        view
        for mesh in snapshot.meshes
        if mesh.waiting
        for view in waiting_views(
            mesh.record.mesh,
            ports.queue.waiting(mesh.record.mesh, QUEUE_DEPTH_MAX),
            lambda stage_tenant: snapshot.tree.is_within(stage_tenant, path),
        )
    ]
    return QueueView(tenant=tenant, waiting=waiting)
