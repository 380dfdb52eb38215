"""Shell completion of the names that the running root knows. Silent when no root answers: a shell shows what it prints."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer

from dag.store.client_access import IN_TERMINAL, STATE_FOLDER, Access, find_access
from dag.store.http_calls import Params
from dag.store.remote import Client
from mesh.core.printable import escaped
from mesh.errors import MeshError

#: Time that the root has to answer while a user waits at the tab key, in seconds.
ANSWER_S_MAX = 1.0
#: Names that a shell is offered at most.
OFFERED_MAX = 100


def complete_runs(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the newest runs whose id begins with the text, each with its state."""
    answer = _asked(ctx, "/v1/runs", {"text": incomplete or None, "limit": OFFERED_MAX})
    return list(_beginning(incomplete, answer.get("runs"), "id", "state"))


def complete_tenants(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the tenants whose path begins with the text."""
    return list(_beginning(incomplete, _asked(ctx, "/v1/tenants").get("tenants"), "tenant"))


def complete_meshes(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the meshes whose name begins with the text, absent ones included."""
    answer = _asked(ctx, "/v1/meshes")
    return [*_beginning(incomplete, answer.get("meshes"), "mesh"), *_beginning(incomplete, answer.get("absent"), "mesh")]


def complete_runs_and_tenants(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return what `resume` may name."""
    return [*complete_runs(ctx, incomplete), *complete_tenants(ctx, incomplete)]


def client_for(access: Access) -> Client:
    """Return a client that gives up soon."""
    headers = {"Authorization": f"Bearer {access.api_key}"}
    return Client(access, http=httpx.Client(base_url=access.address, headers=headers, timeout=ANSWER_S_MAX), patience_s=0)


def _asked(ctx: typer.Context, path: str, params: Params | None = None) -> dict[str, Any]:
    """Return the root's answer; empty if there is none."""
    named = ctx.params.get("state_dir") or ctx.params.get("state")  # `runs` has states of runs under this name.
    state_dir = Path(named) if isinstance(named, (str, Path)) and str(named) != STATE_FOLDER else None
    try:
        access = find_access(
            ctx.params.get("address"), None, environment=os.environ, folder=Path.cwd(), state_dir=state_dir, asked=IN_TERMINAL
        )
        with client_for(access) as client:
            answer = client.ask(path, params)
    except (MeshError, httpx.HTTPError, OSError, ValueError):
        return {}
    return answer if isinstance(answer, dict) else {}


def _beginning(incomplete: str, entries: object, name: str, words: str = "") -> Iterator[tuple[str, str]]:
    for entry in entries if isinstance(entries, list) else ():
        value = entry.get(name) if isinstance(entry, dict) else None
        if isinstance(value, str) and value.startswith(incomplete) and escaped(value) == value:
            yield value, str(entry.get(words, ""))


#: Option that names the tenant of a new run.
TenantOption = Annotated[
    str | None,
    typer.Option(
        "--tenant", help="Tenant whose quota the run uses. Default: the tenant of the stack or of the key.", autocompletion=complete_tenants
    ),
]
RunArgument = Annotated[str, typer.Argument(help="Id of the run.", metavar="RUN", autocompletion=complete_runs)]
