"""Holders of API keys."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from federation.api_keys import Role
from serve_apps.schemas.moments import LaterMoment
from serve_apps.schemas.view import View

Permission = Literal["read", "submit", "cancel", "stop_tenants", "manage_keys", "drain_meshes", "dead_letters", "audit", "metrics"]


class CallerView(View):
    """Holder of the API key of a request, and what the key may do."""

    key: str = Field(description="Id of the key.")
    tenant: str = Field(description="The key reaches this tenant and the tenants below it; `*`: all tenants.")
    user: str = Field(description="User of every run submitted with the key; empty: the graph may name the user.")
    operator: bool = Field(description="Whether the key reaches all tenants.")
    role: Role = Field(description="Role of the key.")
    expires_ms: LaterMoment = Field(default=0, description="Time from which the key is refused; null: never.")
    permissions: list[Permission] = Field(description="Permissions of the key, in the tenants that it reaches.")
