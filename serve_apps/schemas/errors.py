"""Why there is no answer."""

from __future__ import annotations

from pydantic import Field

from serve_apps.schemas.view import View


class ProblemView(View):
    """One thing that is wrong with a request."""

    place: str = Field(description="JSON pointer, or the name of a parameter; empty: the request as a whole.")
    problem: str


class ErrorView(View):
    """Why there is no answer."""

    code: str = Field(description="One word for programs.")
    message: str = Field(description="For people.")
    problems: list[ProblemView] = Field(default=[])
    request_id: str = Field(default="", description="The log has the story under this id.")
    facts: dict[str, int] = Field(
        default={}, exclude_if=lambda facts: not facts, description="Numbers that the error carries; left out when there are none."
    )


class ErrorBody(View):
    """The body of every answer that is no success."""

    error: ErrorView
