"""Cached values of nodes."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from serve_apps.schemas.moments import Moment
from serve_apps.schemas.view import View


class CachedView(View):
    """A value in the cache of a tenant."""

    key: str = Field(description="Hash of function, version, closure and arguments.")
    tenant: str
    function: str = Field(description="As the graph names it: `call:module:qualname`, or `blob:` with the hash of the pickled function.")
    run: str = Field(description="Run that computed it.")
    node: str = Field(description="Node that computed it.")
    size_bytes: int
    created_ms: Moment
    expires_ms: Moment
    took_ms: int = Field(description="Run time that each hit saves.")
    hits: int


class CacheView(View):
    """Cached values, newest first."""

    entries: list[CachedView]


class CacheDropRequest(BaseModel):
    """Cached values of a tenant to remove."""

    model_config = ConfigDict(extra="forbid")

    tenant: str | None = Field(default=None, description="Their tenant. Default: the key's own.")
    keys: list[str] = Field(default=[], max_length=1_000, description="Their keys.")
    run: str | None = Field(default=None, max_length=200, description="All that this run has computed.")
    all: bool = Field(default=False, description="All of the tenant.")


class CacheDroppedView(View):
    """Response after cached values were removed."""

    entries: int = Field(description="Number of values removed.")
