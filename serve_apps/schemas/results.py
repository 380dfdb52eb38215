"""The outputs of a run, or why it has none."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from serve_apps.schemas.errors import ErrorBody
from serve_apps.schemas.runs import FailureView, SkippedView
from serve_apps.schemas.view import View


class OutputView(View):
    """An output of a run. JSON values stand in `value`, small pickled ones in `data`; the others are fetched from `href`."""

    encoding: Literal["json", "pickle"]
    sha256: str = Field(description="Of the bytes that `href` gives.")
    size_bytes: int
    href: str = Field(description="Where the bytes are.")
    inline: bool = Field(description="True when `value` or `data` is the whole of it.")
    value: Any = None
    data: str | None = Field(default=None, description="Pickled bytes in base64.")
    uri: str | None = Field(default=None, description="The file that the value is kept in, for readers that reach it.")
    path: list[str | int] = Field(default=[], description="The part of the value that was asked for; `value` is that part already.")


class ResultView(View):
    """The outputs of a run that succeeded."""

    id: str
    state: str
    outputs: dict[str, OutputView]


class NoResultView(ErrorBody):
    """Why a run that ended has no result (409; `run_failed` or `run_cancelled`)."""

    id: str
    state: str
    reason: str | None = None
    detail: str = ""
    failures: list[FailureView] = Field(default=[])
    skipped: list[SkippedView] = Field(default=[])
