"""Error bodies."""

from __future__ import annotations

from pydantic import Field

from serve_apps.schemas.view import View


class ProblemView(View):
    """One problem of a request."""

    place: str = Field(description="JSON pointer, or the name of a parameter; empty: the whole request.")
    problem: str


class ErrorView(View):
    """An error."""

    code: str = Field(description="Name of the error, for programs.")
    message: str = Field(description="Message for people.")
    problems: list[ProblemView] = Field(default=[])
    request_id: str = Field(default="", description="Id under which the log has the details.")
    facts: dict[str, int] = Field(
        default={}, exclude_if=lambda facts: not facts, description="Numbers of the error; absent if there are none."
    )


class ErrorBody(View):
    """Body of every response that is not a success."""

    error: ErrorView
