"""Commands `tenants`, `meshes` and `webhooks`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import typer
from rich.table import Column

from dag.webhooks.webhook import WebhookCounts
from serve_apps.cli.mesh_render import beside_the_table, meshes_table
from serve_apps.cli.output import RoomyTable, console_for, print_json
from serve_apps.cli.render import tenants_table
from serve_apps.cli.session import AddressOption, JsonOption, StateDirOption, open_session
from serve_apps.cli.state import STATE, StateOption, root_settings, running_stores
from serve_apps.schemas.meshes import MeshesView
from serve_apps.schemas.tenants import TenantsView
from serve_apps.standalone.child_pids import living
from serve_apps.standalone.stack_folder import StackFolder


def register(app: typer.Typer) -> None:
    app.command()(tenants)
    app.command()(meshes)
    app.command()(webhooks)


def tenants(address: AddressOption = None, state_dir: StateDirOption = None, as_json: JsonOption = False) -> None:
    """Show the tenant tree with nominal, used, borrowed and available quota."""
    session = open_session(address, state_dir, as_json=as_json)
    view = session.view(TenantsView, "/v1/tenants")
    if as_json:
        session.print_json_view(view)
    else:
        session.console.print(tenants_table(view))


def meshes(address: AddressOption = None, state_dir: StateDirOption = None, as_json: JsonOption = False) -> None:
    """Show the meshes: alive, draining, on probation, labels, pools, queues."""
    session = open_session(address, state_dir, as_json=as_json)
    view = _with_processes(session.view(MeshesView, "/v1/meshes"), session.state_folder)
    if as_json:
        session.print_json_view(view)
        return
    session.console.print(meshes_table(view))
    for words in beside_the_table(view):
        session.console.print(words, soft_wrap=True)


def webhooks(state: StateOption = STATE, as_json: JsonOption = False) -> None:
    """Show the webhooks of the root: messages pending, delivered and given up, and the last failure."""
    configured, counts = root_settings(state).webhooks, running_stores(state).webhooks.counts()
    rows = [(webhook, counts.get(webhook.name, WebhookCounts())) for webhook in configured]
    if as_json:
        described = [{"name": webhook.name, "tenant": webhook.tenant, **asdict(kept)} for webhook, kept in rows]
        print_json(json.dumps({"webhooks": described}, indent=2, ensure_ascii=False))
        return
    columns = ("webhook", "tenant", "pending", "delivered", "dead", Column("last failure", overflow="fold"))
    table = RoomyTable(*columns, box=None, pad_edge=False, header_style="bold")
    for webhook, kept in rows:
        table.add_row(webhook.name, webhook.tenant, str(kept.pending), str(kept.delivered), str(kept.dead), kept.failure)
    console_for().print(table)


def _with_processes(view: MeshesView, state_folder: Path | None) -> MeshesView:
    """Return the view with the processes that the stack of this state folder has started."""
    pids = living(StackFolder(state_folder)) if state_folder is not None else {}
    return view.model_copy(update={"meshes": [mesh.model_copy(update={"pid": pids.get(mesh.mesh)}) for mesh in view.meshes]})
