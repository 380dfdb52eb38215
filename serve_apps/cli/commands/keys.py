"""Commands for API keys: `keys create`, `keys list`, `keys rotate`, `keys revoke`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from federation.api_keys import EVERYBODY, ApiKey, ApiKeyLine, Role
from federation.config.sections.values import parse_duration
from federation.store.redis.key_ring import RedisKeyRing
from mesh.core.clock import SystemClock, moment, rfc3339
from mesh.core.ids import MeshId, TenantPath
from mesh.core.printable import check_printable
from mesh.errors import MeshError
from serve_apps.cli.completion import complete_meshes, complete_tenants
from serve_apps.cli.output import RoomyTable, console_for, print_json
from serve_apps.cli.recording import recorded
from serve_apps.cli.session import JsonOption
from serve_apps.cli.state import STATE, StateOption, root_settings, running_stores
from serve_apps.requests.auth import id_of, issue, issue_for_mesh, rotate
from serve_apps.standalone.stack_folder import StackFolder

#: Time for which a rotated key stays valid.
OVERLAP = "1d"

keys_app = typer.Typer(help="Create, list, rotate and revoke API keys of tenants and meshes.", no_args_is_help=True)

KeyArgument = Annotated[str, typer.Argument(help="Id of the key.")]


def register(app: typer.Typer) -> None:
    app.add_typer(keys_app, name="keys")


def _printable(name: str) -> str:
    """Return the name if it is printable. Raises typer.BadParameter."""
    try:
        return check_printable(name)
    except ValueError as wrong:
        raise typer.BadParameter(str(wrong)) from None


def _time(text: str) -> str:
    """Return the text if it is a time. Raises typer.BadParameter."""
    try:
        parse_duration(text or "0s")
    except ValueError as wrong:
        raise typer.BadParameter(str(wrong)) from None
    return text


@keys_app.command("create")
def create_key(
    tenant: Annotated[
        str | None,
        typer.Argument(
            help="Path of the tenant; the key also covers the tenants below it. `*`: the key covers all tenants.",
            autocompletion=complete_tenants,
        ),
    ] = None,
    mesh: Annotated[
        str | None,
        typer.Option(
            "--mesh",
            help="Create a key of this mesh instead: the mesh joins with it, and it covers no tenant.",
            autocompletion=complete_meshes,
        ),
    ] = None,
    user: Annotated[str, typer.Option(callback=_printable, help="User of the key: runs submitted with the key belong to this user.")] = "",
    role: Annotated[
        Role | None, typer.Option(help="Permissions of the key; each role includes the earlier ones. Default: operator.")
    ] = None,
    expires: Annotated[
        str, typer.Option(callback=_time, metavar="TIME", help="Refuse the key after this time, like 12h or 30d. Default: never.")
    ] = "",
    state: StateOption = STATE,
    as_json: JsonOption = False,
) -> None:
    """Create an API key and print it. The key cannot be shown again."""
    if (tenant is None) == (mesh is None):
        raise typer.BadParameter("give either a tenant or --mesh MESH")
    if mesh is not None and (user or role is not None or expires):
        raise typer.BadParameter("--user, --role and --expires need a tenant: the key of a mesh has none of them")
    stores, settings = running_stores(state), root_settings(state)
    ring, now_ms = RedisKeyRing(stores.client, stores.keys), SystemClock().wall_ms()
    if mesh is not None:
        if mesh not in settings.configured_meshes.meshes:
            raise MeshError(f"the configuration has no mesh {mesh}; it has {', '.join(settings.configured_meshes.meshes)}")
        with recorded(stores, "keys create", details={"mesh": mesh}) as details:
            text = issue_for_mesh(ring, MeshId(mesh), now_ms)
            details["key"] = id_of(text)
        _show_key(text, as_json=as_json)
        return
    path = TenantPath(str(tenant))
    if path != EVERYBODY:
        stores.ledger.snapshot().tree.tenant(path)
    expires_ms, role = now_ms + parse_duration(expires) if expires else 0, role or Role.OPERATOR
    with recorded(stores, "keys create", tenant=path, details={"user": user, "role": role.value, "expires": expires}) as details:
        text = issue(ring, path, now_ms, user, role=role, expires_ms=expires_ms)
        details["key"] = id_of(text)
    _show_key(text, as_json=as_json)


def _show_key(key: str, *, as_json: bool) -> None:
    typer.echo(json.dumps({"id": id_of(key), "key": key}, indent=2) if as_json else key)


@keys_app.command("ls", hidden=True)
@keys_app.command("list")
def list_keys(state: StateOption = STATE, as_json: JsonOption = False) -> None:
    """List the keys by id. Secrets are not stored."""
    lines = _ring(state).list()
    if as_json:
        print_json(json.dumps({"keys": [_described(line) for line in lines]}, indent=2))
        return
    table = RoomyTable(
        "id", "of", "role", "user", "created", "expires", "last used", "state", box=None, pad_edge=False, header_style="bold"
    )
    now_ms = SystemClock().wall_ms()
    for line in lines:
        of, role = (f"mesh {line.mesh}", "") if line.mesh else (line.tenant, line.role.value)
        times = [moment(line.created_ms)[:10], *(moment(at_ms) if at_ms else "never" for at_ms in (line.expires_ms, line.used_ms))]
        table.add_row(line.key, of, role, line.user, *times, _state(line, now_ms))
    console_for().print(table)


def _described(line: ApiKeyLine) -> dict[str, object]:
    return {
        "id": line.key,
        "created_at": rfc3339(line.created_ms),
        "tenant": line.tenant,
        "mesh": line.mesh,
        "user": line.user,
        "role": line.role.value if line.mesh is None else None,
        "expires_at": rfc3339(line.expires_ms) if line.expires_ms else None,
        "used_at": rfc3339(line.used_ms) if line.used_ms else None,
        "revoked": line.revoked,
    }


def _state(key: ApiKey | ApiKeyLine, now_ms: int) -> str:
    """Return why the key is refused; empty if it is valid."""
    if key.revoked:
        return "revoked"
    return "expired" if 0 < key.expires_ms <= now_ms else ""


@keys_app.command("rotate")
def rotate_key(
    key: KeyArgument,
    overlap: Annotated[
        str, typer.Option(callback=_time, metavar="TIME", help="Time for which the old key stays valid, like 0s, 12h or 7d.")
    ] = OVERLAP,
    state: StateOption = STATE,
    as_json: JsonOption = False,
) -> None:
    """Create a key that may do what an old one may, and print it. The old key is refused after the overlap."""
    stores = running_stores(state)
    ring, now_ms = RedisKeyRing(stores.client, stores.keys), SystemClock().wall_ms()
    old = ring.find(key)
    if old is None:
        raise _unknown(key)
    if ended := _state(old, now_ms):
        raise MeshError(f"key {key} is {ended} and cannot be rotated; `schedulemesh keys create` makes a new one")
    if old.rotated:
        raise MeshError(f"key {key} was rotated already; rotate its newer key, or make another one with `schedulemesh keys create`")
    if place := _place_in_stack(StackFolder(state), key):
        raise MeshError(
            f"key {key} cannot be rotated: the running stack uses it ({place}) and replaces it at each start, by `schedulemesh down` and "
            "`schedulemesh up`; `schedulemesh keys create` makes a key for another use"
        )
    with recorded(stores, "keys rotate", key, tenant=old.tenant or EVERYBODY, details={"overlap": overlap}) as details:
        text = rotate(ring, old, now_ms, parse_duration(overlap))
        details["key"] = id_of(text)
    _show_key(text, as_json=as_json)


def _place_in_stack(folder: StackFolder, key: str) -> str:
    """Return the file of the state folder that has a key of this id; empty if none has."""
    texts = {"client.json": folder.read("client.json").get("api_key")}
    for file in sorted((folder.path / "settings").glob("mesh-*.json")):
        name = f"settings/{file.name}"
        texts[name] = (folder.read(name).get("link") or {}).get("key")
    return next((name for name, text in texts.items() if text and id_of(text) == key), "")


@keys_app.command("revoke")
def revoke_key(key: KeyArgument, state: StateOption = STATE) -> None:
    """Revoke a key at once."""
    stores = running_stores(state)
    ring = RedisKeyRing(stores.client, stores.keys)
    old = ring.find(key)
    with recorded(stores, "keys revoke", key, tenant=(old.tenant if old is not None else EVERYBODY) or EVERYBODY):
        if not ring.revoke(key):
            raise _unknown(key)
    typer.echo(f"revoked {key}")


def _ring(state: Path) -> RedisKeyRing:
    stores = running_stores(state)
    return RedisKeyRing(stores.client, stores.keys)


def _unknown(key: str) -> MeshError:
    return MeshError(f"there is no key {key}; `schedulemesh keys list` lists the keys")
