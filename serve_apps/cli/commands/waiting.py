"""Commands `queue`, `explain`, `leases` and `history`."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer

from mesh.core.clock import SystemClock
from serve_apps.cli.completion import RunArgument, complete_meshes, complete_tenants
from serve_apps.cli.session import AddressOption, JsonOption, StateDirOption, open_session
from serve_apps.cli.waiting_render import explanation_picture, history_table, leases_table, queue_picture, stage_picture
from serve_apps.schemas.explanations import RunExplanation, StageExplanation
from serve_apps.schemas.history import HistoryView
from serve_apps.schemas.leases import LeasesView
from serve_apps.schemas.queues import QueueView


def register(app: typer.Typer) -> None:
    app.command()(queue)
    app.command()(explain)
    app.command()(leases)
    app.command()(history)


def queue(
    tenant: Annotated[
        str | None,
        typer.Argument(
            help="Tenant, with all tenants below it. Default: all that the key covers.", metavar="TENANT", autocompletion=complete_tenants
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, max=1000, help="Number of stages to explain; the others are only listed.")] = 100,
    address: AddressOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what waits: position, reason, estimated start, and what would have to change."""
    session = open_session(address, state_dir, as_json=as_json)
    path = "/v1/queues" if tenant is None else f"/v1/queues/{quote(tenant)}"
    view = session.view(QueueView, path, {"limit": limit})
    if as_json:
        session.print_json_view(view)
    else:
        session.console.print(queue_picture(view))


def explain(
    run: RunArgument,
    stage: Annotated[str | None, typer.Argument(help="One stage, by id or number. Default: all stages.", metavar="STAGE")] = None,
    address: AddressOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Explain why a run, or one of its stages, waits: position, reason, what would have to change, preemption victims, history."""
    session = open_session(address, state_dir, as_json=as_json)
    path = session.run(run).path
    if stage is None:
        view = session.view(RunExplanation, f"{path}/explain")
        picture = explanation_picture(view)
        if as_json:
            session.print_json_view(view)
            return
    else:
        one = session.view(StageExplanation, f"{path}/stages/{quote(stage, safe='')}/explain")
        if as_json:
            session.print_json_view(one)
            return
        picture = stage_picture(one, SystemClock().wall_ms())
    session.console.print(picture)


def leases(address: AddressOption = None, state_dir: StateDirOption = None, as_json: JsonOption = False) -> None:
    """Show the held leases: tenant, mesh, amounts, and their targets."""
    session = open_session(address, state_dir, as_json=as_json)
    view = session.view(LeasesView, "/v1/leases")
    if as_json:
        session.print_json_view(view)
    else:
        session.console.print(leases_table(view))


def history(
    tenant: Annotated[
        str | None,
        typer.Argument(
            help="Only leases of this tenant and the tenants below it. Default: all.", metavar="TENANT", autocompletion=complete_tenants
        ),
    ] = None,
    mesh: Annotated[str | None, typer.Option(help="Only leases of this mesh.", autocompletion=complete_meshes)] = None,
    flavor: Annotated[str | None, typer.Option(help="Only leases of this flavor.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most this many, the latest.")] = 50,
    address: AddressOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the history of leases: grants, new targets, shrinks, expiries and ends."""
    session = open_session(address, state_dir, as_json=as_json)
    asked = {"tenant": tenant, "mesh": mesh, "flavor": flavor, "limit": limit}
    view = session.view(HistoryView, "/v1/leases/history", asked)
    if as_json:
        session.print_json_view(view)
    else:
        session.console.print(history_table(view))
