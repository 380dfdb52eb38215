"""`/v1/keys`, for admins. Keys are made where the federation runs, so no secret travels over HTTP."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from federation.api_keys import ApiKeyLine
from serve_apps.requests.access import Asking, reaches
from serve_apps.requests.auth import Principal
from serve_apps.requests.dependencies import Dependencies, Ports
from serve_apps.requests.errors import UnknownKey
from serve_apps.requests.openapi import refused
from serve_apps.schemas.api_keys import KeysView, KeyView

router = APIRouter(prefix="/v1/keys", tags=["keys"])


@router.get("")
def list_keys(ports: Ports, principal: Asking) -> KeysView:
    """List the keys of the tenants that the key covers, revoked and expired keys included; keys of meshes for a key of all tenants."""
    return KeysView(keys=[_view(line) for line in _within(ports, principal)])


@router.post("/{key}/revoke", responses=refused(404))
def revoke_key(key: Annotated[str, Path(description="Id of the key.", max_length=64)], ports: Ports, principal: Asking) -> KeyView:
    """Refuse a key from now on; this cannot be undone. Does nothing if the key is revoked already."""
    _find(ports, principal, key)
    ports.keys.revoke(key)
    ports.known_keys.drop(key)
    return _view(_find(ports, principal, key))


def _within(ports: Dependencies, principal: Principal) -> list[ApiKeyLine]:
    return [line for line in ports.keys.list() if reaches(principal, line.tenant)]


def _find(ports: Dependencies, principal: Principal, key: str) -> ApiKeyLine:
    """Return the key. Raises UnknownKey."""
    found = next((line for line in _within(ports, principal) if line.key == key), None)
    if found is None:
        raise UnknownKey(f"there is no API key {key}; GET /v1/keys lists the keys that this key may see")
    return found


def _view(line: ApiKeyLine) -> KeyView:
    return KeyView(
        key=line.key,
        tenant=line.tenant,
        mesh=line.mesh,
        role=line.role,
        user=line.user,
        created_ms=line.created_ms,
        expires_ms=line.expires_ms,
        used_ms=line.used_ms,
        revoked=line.revoked,
    )
