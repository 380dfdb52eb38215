"""Changes of runs."""

from __future__ import annotations

from pydantic import Field

from serve_apps.schemas.runs import RunLine
from serve_apps.schemas.view import View


class RemovedRun(View):
    """A run that is no longer kept."""

    id: str
    tenant: str


class RunChangesView(View):
    """Runs that were submitted, changed or removed."""

    runs: list[RunLine] = Field(description="The runs as they are now.")
    removed: list[RemovedRun]
    next: str = Field(description="Pass this as `after` to continue.")
    gap: bool = Field(description="Changes after `after` are no longer kept: list the runs again.")
