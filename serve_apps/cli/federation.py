"""`tenants` and `meshes`: who has what, and what there is."""

from __future__ import annotations

import typer

from serve_apps.cli.render import meshes_table, tenants_table
from serve_apps.cli.session import AddressOption, JsonOption, open_session
from serve_apps.schemas import MeshesView, TenantsView


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(tenants)
    app.command()(meshes)


def tenants(address: AddressOption = None, as_json: JsonOption = False) -> None:
    """Show the tenant tree with nominal, used, borrowed and available quota."""
    session = open_session(address, as_json=as_json)
    view = session.view(TenantsView, "/v1/tenants")
    if as_json:
        session.tell_json(view)
    else:
        session.console.print(tenants_table(view))


def meshes(address: AddressOption = None, as_json: JsonOption = False) -> None:
    """Show the meshes: alive or not, labels, pools, queues."""
    session = open_session(address, as_json=as_json)
    view = session.view(MeshesView, "/v1/meshes")
    if as_json:
        session.tell_json(view)
    else:
        session.console.print(meshes_table(view))
