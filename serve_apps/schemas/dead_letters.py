"""Dead letters: nodes that failed for good, kept for inspection and requeueing."""

from __future__ import annotations

from pydantic import Field

from serve_apps.schemas.moments import Moment
from serve_apps.schemas.view import View


class LetterView(View):
    """A node that failed for good."""

    letter: str = Field(description="Name of the dead letter, for `requeue` and `drop`.")
    run: str
    node: str
    tenant: str
    stage: str | None
    mesh: str | None
    reason: str
    type: str
    message: str
    attempts: int
    retries_used: int = Field(description="Attempts that failed with the node's own errors.")
    losses: int = Field(description="Attempts lost with a mesh or a runner.")
    kills: int = Field(description="Workers that died while running the node.")
    at_ms: Moment


class LettersView(View):
    """Dead letters, newest first."""

    letters: list[LetterView]


class RequeuedView(View):
    """Response after a dead letter was submitted again."""

    letter: str
    run: str = Field(description="Id of the new run.")


class DroppedView(View):
    """Response after dead letters were removed."""

    letters: int = Field(description="Number of dead letters removed.")
