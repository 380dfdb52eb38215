"""Commands `drain mesh`, `drain tenant` and `undrain`.

To drain a mesh needs an operator. The owner of this state folder's stack is an operator; anyone else needs a key of all tenants.
"""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer

from federation.change_log import TERMINAL
from federation.snapshot import FederationSnapshot
from mesh.core.ids import MeshId
from serve_apps.cli.commands.stopping import drain_tenant
from serve_apps.cli.completion import complete_meshes
from serve_apps.cli.mesh_render import beside_the_table, meshes_table
from serve_apps.cli.output import console_for, print_json
from serve_apps.cli.recording import recorded
from serve_apps.cli.session import AddressOption, JsonOption, is_elsewhere, open_session, read_view
from serve_apps.cli.state import STATE, StateOption, configured_meshes_of_stack, running_stores
from serve_apps.schemas.meshes import MeshesView
from serve_apps.services.draining import drain_mesh, undrain_mesh
from serve_apps.snapshot_cache.snapshots import only
from serve_apps.views.federation import meshes_view

MeshArgument = Annotated[str, typer.Argument(help="The name of the mesh.", metavar="MESH", autocompletion=complete_meshes)]


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    drain = typer.Typer(no_args_is_help=True, help="Drain a mesh or a tenant: no new work starts.")
    drain.command("mesh")(drain_one_mesh)
    drain.command("tenant")(drain_tenant)
    app.add_typer(drain, name="drain")
    app.command()(undrain)


def drain_one_mesh(
    mesh: MeshArgument,
    reason: Annotated[str, typer.Option(help="Shown beside the mesh and to users whose work waits for the mesh.")] = "",
    address: AddressOption = None,
    state: StateOption = STATE,
    as_json: JsonOption = False,
) -> None:
    """Drain a mesh: running and queued stages finish, no new work arrives until `undrain`."""
    if is_elsewhere(address):
        view = _post(f"/v1/meshes/{quote(mesh, safe='')}/drain", {"reason": reason}, address)
    else:
        stores = running_stores(state)
        known, configured_meshes = MeshId(mesh), configured_meshes_of_stack(state)
        with recorded(stores, "drain mesh", mesh, details={"reason": reason}):
            snapshot = drain_mesh(stores.ledger, stores.registry, known, reason=reason, by=TERMINAL, configured_meshes=configured_meshes)
        view = _seen(only(snapshot, known))
    words = f"{mesh} is draining: it gets no new work, and finishes the work it has"
    _show(view, words, as_json=as_json, absent=f"{mesh} has not joined; after it joins it gets no work until `schedulemesh undrain {mesh}`")


def undrain(mesh: MeshArgument, address: AddressOption = None, state: StateOption = STATE, as_json: JsonOption = False) -> None:
    """Let a drained mesh receive work again."""
    if is_elsewhere(address):
        view = _post(f"/v1/meshes/{quote(mesh, safe='')}/undrain", {}, address)
    else:
        stores = running_stores(state)
        known, configured_meshes = MeshId(mesh), configured_meshes_of_stack(state)
        with recorded(stores, "undrain", mesh):
            snapshot, _ = undrain_mesh(stores.ledger, stores.registry, known, configured_meshes=configured_meshes)
        view = _seen(only(snapshot, known))
    _show(view, f"{mesh} receives work again", as_json=as_json, absent=f"{mesh} has not joined; it receives work after it joins")


def _post(path: str, body: dict[str, str], address: str | None) -> MeshesView:
    return read_view(MeshesView, open_session(address, as_json=False).client.post(path, body))


def _seen(snapshot: FederationSnapshot) -> MeshesView:
    return meshes_view(snapshot, lambda _: True)


def _show(view: MeshesView, words: str, *, as_json: bool, absent: str) -> None:
    """Print `words`, or `absent` if the mesh has not joined."""
    if as_json:
        print_json(view.model_dump_json(indent=2))
        return
    console = console_for()
    console.print(words if view.meshes else absent, soft_wrap=True)
    if view.meshes:
        console.print(meshes_table(view))
    for more in beside_the_table(view):
        console.print(more, soft_wrap=True)
