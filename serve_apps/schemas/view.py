"""Base class of all HTTP responses."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from serve_apps.schemas.moments import wire_names


class View(BaseModel):
    """A response. Readers ignore unknown keys, so that an older client understands a newer root."""

    model_config = ConfigDict(extra="ignore", frozen=True, alias_generator=wire_names(), serialize_by_alias=True)
