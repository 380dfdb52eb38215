"""How every answer over HTTP behaves."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class View(BaseModel):
    """An answer. A reader ignores keys that it does not know, so that an older client understands a newer root."""

    model_config = ConfigDict(extra="ignore", frozen=True)
