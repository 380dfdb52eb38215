"""Base class of the sections of a federation file."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Part of the file: unknown keys are errors, values are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True)
