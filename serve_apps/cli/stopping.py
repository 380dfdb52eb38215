"""`hold`, `drain-tenant`, `release`: which tenant is to start nothing new.

Whoever runs the stack of this state folder may stop any tenant; from elsewhere a key of the tenant, or of one above it, is needed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from federation.quota.policies import Stop
from mesh.ids import TenantPath
from serve_apps.answers.stopping import AT_THE_TERMINAL, release_tenant, stop_tenant
from serve_apps.cli.output import Text, console_for, print_json
from serve_apps.cli.session import AddressOption, JsonOption, is_elsewhere, open_session, read_view
from serve_apps.cli.state import STATE, StateOption, running_stores
from serve_apps.schemas.stops import StopView
from serve_apps.views.federation import stop_view

TenantArgument = Annotated[str, typer.Argument(help="The path of the tenant; all below it are meant too.", metavar="TENANT")]
ReasonOption = Annotated[str, typer.Option(help="Shown wherever the tenant is shown, and to whoever waits for it.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(hold)
    app.command()(drain_tenant)
    app.command()(release)


def hold(
    tenant: TenantArgument,
    reason: ReasonOption = "",
    address: AddressOption = None,
    state: StateOption = STATE,
    as_json: JsonOption = False,
) -> None:
    """Let nothing new of a tenant start; what runs goes on. Until `release`."""
    view = _stop(tenant, Stop.HOLD, reason, address, state)
    _show(view, f"{tenant} is on hold: nothing new of it starts, what runs goes on", as_json=as_json)


def drain_tenant(
    tenant: TenantArgument,
    reason: ReasonOption = "",
    address: AddressOption = None,
    state: StateOption = STATE,
    as_json: JsonOption = False,
) -> None:
    """Let nothing new of a tenant start, and stop what runs, to run again after `release`."""
    view = _stop(tenant, Stop.DRAIN, reason, address, state)
    _show(view, f"{tenant} is drained: nothing new of it starts, what runs gives way", as_json=as_json)


def release(tenant: TenantArgument, address: AddressOption = None, state: StateOption = STATE, as_json: JsonOption = False) -> None:
    """Let the work of a tenant start again."""
    if is_elsewhere(address):
        view = _tell(f"/v1/tenants/{quote(tenant)}/release", {}, address)
    else:
        stores = running_stores(state)
        orders, was_stopped = release_tenant(stores.ledger, stores.orders, TenantPath(tenant), principal=AT_THE_TERMINAL)
        view = stop_view(TenantPath(tenant), orders, changed=was_stopped)
    words = f"work of {tenant} starts again" if view.changed else f"{tenant} was not stopped by hand"
    if view.stop != Stop.NONE.value:
        words += f"; the federation file says `stop: {view.stop}` of it, and that stands"
    _show(view, words, as_json=as_json)


def _stop(tenant: str, stop: Stop, reason: str, address: str | None, state: Path) -> StopView:
    if is_elsewhere(address):
        return _tell(f"/v1/tenants/{quote(tenant)}/{stop.value}", {"reason": reason}, address)
    stores = running_stores(state)
    orders = stop_tenant(stores.ledger, stores.orders, TenantPath(tenant), stop, reason=reason, principal=AT_THE_TERMINAL)
    return stop_view(TenantPath(tenant), orders)


def _tell(path: str, body: dict[str, str], address: str | None) -> StopView:
    return read_view(StopView, open_session(address, as_json=False).client.tell(path, body))


def _show(view: StopView, words: str, *, as_json: bool) -> None:
    if as_json:
        print_json(view.model_dump_json(indent=2))
    else:
        console_for().print(Text(words))
