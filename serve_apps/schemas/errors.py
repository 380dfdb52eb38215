"""Error bodies."""

from __future__ import annotations

from pydantic import Field

from serve_apps.schemas.view import View


class ProblemView(View):
    """One problem of a request."""

    place: str = Field(description="JSON pointer, or the name of a parameter; empty: the whole request.")
    problem: str


class ProblemDetails(View):
    """Body of every response that is not a success, by RFC 9457."""

    type: str = Field(description="URI that identifies the kind of problem; it ends with `code`.")
    title: str = Field(description="The kind of problem in words.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="Message for people: the fault of this request.")
    code: str = Field(description="Name of the error, for programs. It does not change.")
    problems: list[ProblemView] = Field(default=[], description="All problems of the request, each with its place.")
    request_id: str = Field(default="", description="Id under which the log has the details.")
    facts: dict[str, int] = Field(
        default={}, exclude_if=lambda facts: not facts, description="Numbers of the error; absent if there are none."
    )
