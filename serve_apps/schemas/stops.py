"""Requests to hold or drain a tenant, and their responses."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from mesh.core.printable import check_printable
from serve_apps.schemas.moments import LaterMoment
from serve_apps.schemas.view import View


class StopRequest(BaseModel):
    """Request to hold or drain a tenant."""

    model_config = ConfigDict(extra="forbid")

    reason: Annotated[str, AfterValidator(check_printable)] = Field(
        default="", max_length=1_000, description="Shown beside the tenant and to users whose work waits for it."
    )


class StopView(View):
    """A tenant, and whether its work may start."""

    tenant: str
    stop: str = Field(description="`none`, `hold` or `drain`, by a command or by the file.")
    reason: str = ""
    by: str = Field(default="", description="Id of the key that stopped the tenant.")
    since_ms: LaterMoment = 0
    changed: bool = Field(default=True, description="False: no command had stopped the tenant, so nothing changed.")
