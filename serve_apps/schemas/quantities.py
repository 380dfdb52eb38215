"""Amounts of resources, as units and as text."""

from __future__ import annotations

from pydantic import Field

from serve_apps.schemas.view import View


class Quantity(View):
    """An amount of a resource."""

    units: int = Field(description="1/10 000 of a CPU, GPU or custom resource; bytes of memory.")
    amount: int | float = Field(description="Whole CPUs, or bytes.")
    text: str = Field(description="Text form: `2`, `0.5`, `4GiB`.")
