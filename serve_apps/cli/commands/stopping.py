"""Commands `suspend`, `drain tenant` and `resume`: stop and restart the work of a tenant; `resume` restarts a run too.

The owner of this state folder's stack may stop any tenant. Anyone else needs a key of the tenant, or of a tenant above it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from dag.errors import UnknownRun
from federation.quota.policies import Stop
from mesh.core.ids import RunId, TenantPath
from serve_apps.cli.commands.runs import resume_run
from serve_apps.cli.completion import complete_runs_and_tenants, complete_tenants
from serve_apps.cli.output import Text, console_for, print_json
from serve_apps.cli.recording import known_tenant, recorded
from serve_apps.cli.session import AddressOption, CliSession, JsonOption, is_elsewhere, open_session, read_view
from serve_apps.cli.state import STATE, StateOption, running_stores
from serve_apps.schemas.stops import StopView
from serve_apps.schemas.tenants import TenantsView
from serve_apps.services.stopping import AT_THE_TERMINAL, resume_tenant, stop_tenant
from serve_apps.views.federation import stop_view

TenantArgument = Annotated[
    str, typer.Argument(help="Path of the tenant; the tenants below it are included.", metavar="TENANT", autocompletion=complete_tenants)
]
ReasonOption = Annotated[str, typer.Option(help="Shown beside the tenant and to users whose work waits for it.")]

#: Action in the URL that sets the stop.
ACTIONS = {Stop.HOLD: "suspend", Stop.DRAIN: "drain"}


def register(app: typer.Typer) -> None:
    app.command()(suspend)
    app.command()(resume)


def suspend(
    tenant: TenantArgument,
    reason: ReasonOption = "",
    address: AddressOption = None,
    state: StateOption = STATE,
    as_json: JsonOption = False,
) -> None:
    """Start no new work of a tenant until `resume`. Running work continues."""
    view = _stop(tenant, Stop.HOLD, reason, address, state)
    _show(view, f"{tenant} is on hold: no new work starts, running work continues", as_json=as_json)


def drain_tenant(
    tenant: TenantArgument,
    reason: ReasonOption = "",
    address: AddressOption = None,
    state: StateOption = STATE,
    as_json: JsonOption = False,
) -> None:
    """Start no new work of a tenant until `resume`, and preempt its running work. Preempted work runs again after `resume`."""
    view = _stop(tenant, Stop.DRAIN, reason, address, state)
    _show(view, f"{tenant} is drained: no new work starts, running work is preempted", as_json=as_json)


def resume(
    name: Annotated[
        str,
        typer.Argument(
            help="Id of a run, or path of a tenant; without a slash, a run if there is one of this id.",
            metavar="NAME",
            autocompletion=complete_runs_and_tenants,
        ),
    ],
    is_tenant: Annotated[bool | None, typer.Option("--tenant/--run", help="Kind of NAME. Default: by its form.")] = None,
    reason: Annotated[str, typer.Option(help="Shown in the events of the run.")] = "",
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Follow the run until it ends.")] = True,
    address: AddressOption = None,
    state: StateOption = STATE,
    as_json: JsonOption = False,
) -> None:
    """Run again what has not succeeded in a failed or cancelled run; or let the work of a stopped tenant start again."""
    is_guessed = is_tenant is None and "/" not in name
    if is_tenant is False or (is_guessed and _is_run(name, address, state)):
        resume_run(_session(address, state, as_json=as_json), name, reason, wait=wait)
        return
    if is_guessed and not _is_tenant(name, address, state):
        near = _session(address, state, as_json=as_json).near_run(name)
        raise UnknownRun(f"there is no run {name}, and no tenant of this name{near or '; `schedulemesh runs` lists the runs'}")
    _resume_tenant(name, address, state, as_json=as_json)


def _session(address: str | None, state: Path, *, as_json: bool) -> CliSession:
    return open_session(address, None if is_elsewhere(address) else state, as_json=as_json)


def _is_run(name: str, address: str | None, state: Path) -> bool:
    if not is_elsewhere(address):
        return running_stores(state).runs.summary(RunId(name)) is not None
    try:
        open_session(address, as_json=False).client.run(name)
    except UnknownRun:
        return False
    return True


def _is_tenant(name: str, address: str | None, state: Path) -> bool:
    if not is_elsewhere(address):
        return name in running_stores(state).ledger.snapshot().tree.tenants
    view = _session(address, state, as_json=False).view(TenantsView, "/v1/tenants")
    return name in {one.tenant for one in view.tenants}


def _resume_tenant(tenant: str, address: str | None, state: Path, *, as_json: bool) -> None:
    if is_elsewhere(address):
        view = _post(f"/v1/tenants/{quote(tenant)}/resume", {}, address)
    else:
        stores = running_stores(state)
        with recorded(stores, "resume", tenant, tenant=known_tenant(stores, tenant)):
            tenant_policies, was_stopped = resume_tenant(
                stores.ledger, stores.tenant_policies, TenantPath(tenant), principal=AT_THE_TERMINAL
            )
        view = stop_view(TenantPath(tenant), tenant_policies, changed=was_stopped)
    words = f"work of {tenant} starts again" if view.changed else f"{tenant} was not stopped by a command"
    if view.stop != Stop.NONE.value:
        words += f"; the federation file still has `stop: {view.stop}` for it"
    _show(view, words, as_json=as_json)


def _stop(tenant: str, stop: Stop, reason: str, address: str | None, state: Path) -> StopView:
    if is_elsewhere(address):
        return _post(f"/v1/tenants/{quote(tenant)}/{ACTIONS[stop]}", {"reason": reason}, address)
    stores = running_stores(state)
    operation = "suspend" if stop is Stop.HOLD else "drain tenant"
    with recorded(stores, operation, tenant, tenant=known_tenant(stores, tenant), details={"reason": reason}):
        tenant_policies = stop_tenant(
            stores.ledger, stores.tenant_policies, TenantPath(tenant), stop, reason=reason, principal=AT_THE_TERMINAL
        )
    return stop_view(TenantPath(tenant), tenant_policies)


def _post(path: str, body: dict[str, str], address: str | None) -> StopView:
    return read_view(StopView, open_session(address, as_json=False).client.post(path, body))


def _show(view: StopView, words: str, *, as_json: bool) -> None:
    if as_json:
        print_json(view.model_dump_json(indent=2))
    else:
        console_for().print(Text(words))
