"""Nodes that failed for good, kept to be looked at and submitted again."""

from __future__ import annotations

from pydantic import Field

from serve_apps.schemas.view import View


class LetterView(View):
    """A node that failed for good."""

    letter: str = Field(description="Its name, for `requeue` and `drop`.")
    run: str
    node: str
    tenant: str
    stage: str | None
    mesh: str | None
    reason: str
    type: str
    message: str
    attempts: int
    retries_used: int = Field(description="Attempts that its own errors have cost.")
    losses: int = Field(description="Attempts that lost meshes and runners have cost.")
    kills: int = Field(description="Workers that died under it.")
    at_ms: int


class LettersView(View):
    """Dead letters, the latest first."""

    letters: list[LetterView]


class RequeuedView(View):
    """A dead letter was submitted again."""

    letter: str
    run: str = Field(description="The new run.")


class DroppedView(View):
    """Dead letters were taken away."""

    letters: int = Field(description="How many there were.")
