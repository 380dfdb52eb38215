"""Command `cache`: values of nodes that later nodes take instead of running."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import RenderableType

from mesh.core.clock import moment
from mesh.core.counting import counted
from serve_apps.cli.completion import complete_runs, complete_tenants
from serve_apps.cli.output import RoomyTable, Text
from serve_apps.cli.session import AddressOption, CliSession, JsonOption, StateDirOption, open_session, read_view
from serve_apps.schemas.cached import CacheDroppedView, CachedView, CacheView

#: Characters of a key that are shown, and that are enough to name it.
KEY_SHOWN, KEY_MIN = 12, 6
#: Most entries that a beginning of a key is looked for in.
LOOKED_AT = 1_000

TenantOption = Annotated[
    str | None,
    typer.Option("--tenant", help="Tenant of the values. Default: all that the key covers.", autocompletion=complete_tenants),
]

cache_app = typer.Typer(help="Cached values of nodes.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(cache_app, name="cache")


@cache_app.command("ls")
def list_cache(
    tenant: TenantOption = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most this many.")] = 100,
    address: AddressOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """List cached values, newest first."""
    session = open_session(address, state_dir, as_json=as_json)
    view = _listed(session, tenant, limit)
    if as_json:
        session.print_json_view(view)
    else:
        session.console.print(cache_table(view))


@cache_app.command("rm")
def remove(
    keys: Annotated[list[str] | None, typer.Argument(help="Keys of the values, or their first characters.", metavar="[KEY]...")] = None,
    run: Annotated[str | None, typer.Option("--run", help="All values that this run has computed.", autocompletion=complete_runs)] = None,
    everything: Annotated[bool, typer.Option("--all", help="All values of the tenant.")] = False,
    tenant: TenantOption = None,
    address: AddressOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove cached values: the next node with the same function and arguments runs again."""
    if not (keys or run or everything):
        raise typer.BadParameter("name the values: KEY, --run RUN or --all")
    session = open_session(address, state_dir, as_json=as_json)
    removed = 0
    for owner, whole in _whole_keys(session, keys or [], tenant).items():
        removed += _dropped(session, {"tenant": owner, "keys": whole}).entries
    if run or everything:
        owner_of_all = tenant or session.client.access.tenant
        removed += _dropped(session, {"tenant": owner_of_all, "run": run, "all": everything}).entries
    if as_json:
        session.print_json_view(CacheDroppedView(entries=removed))
    else:
        session.console.print(f"removed {counted(removed, 'value')}")


def _listed(session: CliSession, tenant: str | None, limit: int) -> CacheView:
    return session.view(CacheView, "/v1/cache", {"limit": limit, **({"tenant": tenant} if tenant else {})})


def _dropped(session: CliSession, asked: dict[str, object]) -> CacheDroppedView:
    return read_view(CacheDroppedView, session.client.post("/v1/cache/drop", {name: value for name, value in asked.items() if value}))


def _whole_keys(session: CliSession, given: list[str], tenant: str | None) -> dict[str, list[str]]:
    """Return the whole keys by tenant. Raises typer.BadParameter."""
    found: dict[str, list[str]] = {}
    there = _listed(session, tenant, LOOKED_AT).entries if given else []
    for beginning in given:
        fitting = [entry for entry in there if entry.key.startswith(beginning)]
        if len(beginning) < KEY_MIN or not fitting:
            words = f"give {KEY_MIN} characters or more" if len(beginning) < KEY_MIN else "`schedulemesh cache ls` lists them"
            raise typer.BadParameter(f"there is no cached value {beginning!r}; {words}", param_hint="KEY")
        if len(fitting) > 1:
            raise typer.BadParameter(f"{beginning!r} begins {counted(len(fitting), 'key')}; give more of it, or --tenant", param_hint="KEY")
        found.setdefault(fitting[0].tenant, []).append(fitting[0].key)
    return found


def cache_table(view: CacheView) -> RenderableType:
    """Render `schedulemesh cache ls`."""
    if not view.entries:
        return Text('nothing is cached; f.options(cache=True) or `"cache": true` caches the value of a node')
    table = RoomyTable(box=None, pad_edge=False, header_style="bold")
    for title in ("key", "tenant", "node", "run", "size", "took", "hits", "expires"):
        table.add_column(title, no_wrap=True, overflow="ellipsis", justify="right" if title in ("size", "took", "hits") else "left")
    for entry in view.entries:
        table.add_row(*_cells(entry))
    return table


def _cells(entry: CachedView) -> tuple[str, ...]:
    expires = moment(entry.expires_ms)
    size = f"{entry.size_bytes / 1024:.1f} KiB"
    return entry.key[:KEY_SHOWN], entry.tenant, entry.node, entry.run, size, f"{entry.took_ms / 1000:.1f} s", str(entry.hits), expires
