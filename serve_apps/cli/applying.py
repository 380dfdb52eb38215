"""`apply`: another tenant tree and other rules for the federation that runs."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.console import Console

from federation.config import tenants_of
from federation.quota.from_config import standing_orders_of
from federation.tenants import Tenant, TenantTree
from mesh.errors import MeshError
from serve_apps.cli.lifecycle import STATE, ConfigArgument, StateOption, read_told, running_stores
from serve_apps.state_folder import StateFolder
from serve_apps.taken_at_start import differing, running_name


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(apply)


def apply(config: ConfigArgument, state: StateOption = STATE) -> None:
    """Make the file's tenants, quotas, weights, rules and limits those of the running federation; work that runs goes on."""
    checked, folder = read_told(config), StateFolder(state)
    stores = running_stores(state)
    _refuse_another(config, checked.federation.name, folder)
    tenants = tenants_of(checked)
    known = stores.ledger.snapshot().tree.tenants
    before, after = set(known), {tenant.path for tenant in tenants}
    moved = [tenant for tenant in tenants if tenant.path in before and tenant.parent != known[tenant.path].parent]
    stores.ledger.configure(TenantTree(tenants))
    stores.orders.publish(standing_orders_of(checked))
    console = Console(highlight=False)
    told = {
        "applied": f"{len(tenants)} tenants",
        "new tenants": ", ".join(sorted(after - before)),
        "tenants moved, with what they hold": ", ".join(f"{tenant.path} (now {_place(tenant)})" for tenant in moved),
        "tenants gone": ", ".join(sorted(before - after)),
        "not applied, these take `down` and `up`": ", ".join(differing(folder, checked)),
    }
    for what, words in told.items():
        if words:
            console.print(f"{what}: {words}", markup=False, soft_wrap=True)


def _place(tenant: Tenant) -> str:
    return f"below {tenant.parent}" if tenant.parent is not None else "at the top"


def _refuse_another(config: Path, name: str, folder: StateFolder) -> None:
    """Raises MeshError when the file is of another federation than the one that runs: all of that one's tenants would be replaced."""
    running = running_name(folder)
    if running is not None and running != name:
        raise MeshError(
            f"{config} describes the federation {name}, and {running} runs with this state folder; --state names another folder. "
            f"To give {running} these tenants on purpose, write `name: {running}` into the file"
        )
