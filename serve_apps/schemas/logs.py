"""Lines that the nodes of a run have printed."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from serve_apps.schemas.moments import Moment
from serve_apps.schemas.view import View


class OutputView(View):
    """Lines that one node printed to one stream, in one attempt."""

    seq: int = Field(description="Number of this entry in the run's log, from 1; dropped entries leave gaps.")
    at_ms: Moment = Field(description="When the worker read the lines.")
    mesh: str
    node: str
    attempt: int
    stream: Literal["stdout", "stderr"]
    number: int = Field(
        description="Number of the first line, in this attempt of the node, from 1. Lines whose numbers are missing were left out."
    )
    lines: list[str] = Field(description="The lines without their ends.")


class LogsView(View):
    """Entries of a run's log, oldest first."""

    entries: list[OutputView]
    next: int = Field(description="Pass this as `after` to continue.")
    more: bool = Field(description="Whether there are more entries now.")
