"""`tenants` and `meshes`: who has what, and what there is; `drain` and `undrain`: which mesh is to get nothing new.

Drains are the operator's. Whoever runs the stack of this state folder is one; from elsewhere it takes an operator's key.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer
from rich.console import Console

from dag.store.client_access import STATE_VARIABLE
from federation.snapshot import Snapshot
from mesh.ids import MeshId
from serve_apps.child_marks import living
from serve_apps.cli.lifecycle import STATE, StateOption, meshes_in_file, running_stores
from serve_apps.cli.mesh_render import meshes_table
from serve_apps.cli.render import tenants_table
from serve_apps.cli.session import AddressOption, JsonOption, is_elsewhere, open_session, read_view
from serve_apps.draining import drain_mesh, only, undrain_mesh
from serve_apps.federation_views import meshes_view
from serve_apps.schemas.meshes import MeshesView
from serve_apps.schemas.tenants import TenantsView
from serve_apps.state_folder import StateFolder

MeshArgument = Annotated[str, typer.Argument(help="The name of the mesh.", metavar="MESH")]


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(tenants)
    app.command()(meshes)
    app.command()(drain)
    app.command()(undrain)


def tenants(address: AddressOption = None, as_json: JsonOption = False) -> None:
    """Show the tenant tree with nominal, used, borrowed and available quota."""
    session = open_session(address, as_json=as_json)
    view = session.view(TenantsView, "/v1/tenants")
    if as_json:
        session.tell_json(view)
    else:
        session.console.print(tenants_table(view))


def meshes(address: AddressOption = None, as_json: JsonOption = False) -> None:
    """Show the meshes: alive, draining, steady or not, labels, pools, queues."""
    session = open_session(address, as_json=as_json)
    view = _with_processes(session.view(MeshesView, "/v1/meshes"), session.state_folder)
    if as_json:
        session.tell_json(view)
        return
    session.console.print(meshes_table(view))
    missing = () if is_elsewhere(address) else not_joined(Path(os.environ.get(STATE_VARIABLE) or STATE))
    if missing:
        session.console.print(f"not joined yet: {', '.join(missing)} (`schedulemesh join` brings them in)", markup=False, soft_wrap=True)


def _with_processes(view: MeshesView, state_folder: Path | None) -> MeshesView:
    """The view with the processes that the stack of this state folder has started."""
    pids = living(StateFolder(state_folder)) if state_folder is not None else {}
    return view.model_copy(update={"meshes": [mesh.model_copy(update={"pid": pids.get(mesh.mesh)}) for mesh in view.meshes]})


def not_joined(state: Path) -> tuple[str, ...]:
    """Meshes that the file of the stack in this folder names, and that have never been seen; none where no stack runs.

    Raises:
        StoreUnavailable: The store does not answer.
    """
    if StateFolder(state).owner() is None:
        return ()
    stores = running_stores(state)
    seen = {view.record.mesh for view in stores.ledger.snapshot().meshes} | stores.registry.standings().meshes.keys()
    return tuple(mesh for mesh in meshes_in_file(state) if mesh not in seen)


def drain(
    mesh: MeshArgument,
    reason: Annotated[str, typer.Option(help="Shown wherever the mesh is shown, and to whoever waits for it.")] = "",
    address: AddressOption = None,
    state: StateOption = STATE,
    as_json: JsonOption = False,
) -> None:
    """Let a mesh finish what it has and get nothing new, until `undrain`."""
    if is_elsewhere(address):
        view = _tell(f"/v1/meshes/{quote(mesh, safe='')}/drain", {"reason": reason}, address)
    else:
        stores = running_stores(state)
        view = _seen(only(drain_mesh(stores.ledger, stores.registry, MeshId(mesh), reason=reason, by="terminal"), MeshId(mesh)))
    _show(view, f"{mesh} gets nothing new; what it has runs to its end", as_json=as_json)


def undrain(mesh: MeshArgument, address: AddressOption = None, state: StateOption = STATE, as_json: JsonOption = False) -> None:
    """Give a drained mesh work again."""
    if is_elsewhere(address):
        view = _tell(f"/v1/meshes/{quote(mesh, safe='')}/undrain", {}, address)
    else:
        stores = running_stores(state)
        view = _seen(only(undrain_mesh(stores.ledger, stores.registry, MeshId(mesh))[0], MeshId(mesh)))
    _show(view, f"{mesh} gets work again", as_json=as_json)


def _tell(path: str, body: dict[str, str], address: str | None) -> MeshesView:
    return read_view(MeshesView, open_session(address, as_json=False).client.tell(path, body))


def _seen(snapshot: Snapshot) -> MeshesView:
    return meshes_view(snapshot, lambda _: True)


def _show(view: MeshesView, words: str, *, as_json: bool) -> None:
    if as_json:
        typer.echo(view.model_dump_json(indent=2))
        return
    console = Console(highlight=False)
    console.print(words)
    if view.meshes:
        console.print(meshes_table(view))
