"""API keys as an admin sees them."""

from __future__ import annotations

from pydantic import Field

from federation.api_keys import Role
from serve_apps.schemas.moments import LaterMoment, Moment
from serve_apps.schemas.view import View


class KeyView(View):
    """An API key, without its secret."""

    key: str = Field(description="Id of the key.")
    tenant: str = Field(description="The key reaches this tenant and the tenants below it; `*`: all tenants; empty: the key of a mesh.")
    mesh: str | None = Field(description="Mesh that the key authenticates; null: the key of a tenant.")
    role: Role = Field(description="Role of a tenant's key.")
    user: str = Field(description="User of every run submitted with the key; empty: the graph may name the user.")
    created_ms: Moment
    expires_ms: LaterMoment = Field(description="Time from which the key is refused; null: never.")
    used_ms: LaterMoment = Field(description="Last use, to the minute; null: never used.")
    revoked: bool


class KeysView(View):
    """API keys within reach of the request's key."""

    keys: list[KeyView]
