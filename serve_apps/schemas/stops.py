"""Tenants that take in no work: the order, and the answer to it."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from mesh.printable import check_printable
from serve_apps.schemas.view import View


class StopRequest(BaseModel):
    """Hold or drain a tenant."""

    model_config = ConfigDict(extra="forbid")

    reason: Annotated[str, AfterValidator(check_printable)] = Field(
        default="", max_length=1_000, description="Shown wherever the tenant is shown, and to whoever waits for it."
    )


class StopView(View):
    """A tenant, and whether it takes in work."""

    tenant: str
    stop: str = Field(description="`none`, `hold` or `drain`, by hand or by the file.")
    reason: str = ""
    by: str = Field(default="", description="The id of the key.")
    since_ms: int = 0
    changed: bool = Field(default=True, description="False: it was not stopped by hand, so there was nothing to take back.")
