"""Outputs of a run, or why it has none."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from serve_apps.schemas.errors import ProblemDetails
from serve_apps.schemas.runs import FailureView, SkippedView
from serve_apps.schemas.view import View


class OutputView(View):
    """An output of a run. `value` holds small JSON values, `data` small pickled ones; fetch the others from `href`."""

    encoding: Literal["json", "pickle"]
    sha256: str = Field(description="Hash of the bytes at `href`.")
    size_bytes: int
    href: str = Field(description="Path of the bytes.")
    inline: bool = Field(description="Whether `value` or `data` holds the whole output.")
    value: Any = None
    data: str | None = Field(default=None, description="Pickled bytes in base64.")
    uri: str | None = Field(default=None, description="File that stores the value, for readers with access to it.")
    cached: bool = Field(default=False, description="Whether the value is of the cache, and its node did not run.")
    path: list[str | int] = Field(default=[], description="Part of the node's value that the output selects; `value` is already that part.")


class ResultView(View):
    """Outputs of a run that succeeded."""

    id: str
    state: str
    outputs: dict[str, OutputView]
    skipped: list[str] = Field(default=[], description="Outputs without a value: their nodes belong to branches that were not taken.")


class NoResultView(ProblemDetails):
    """Why an ended run has no result (409; `run_failed` or `run_cancelled`)."""

    id: str
    state: str
    reason: str | None = None
    run_detail: str = Field(default="", description="Detail of the run, which `detail` has too.")
    failures: list[FailureView] = Field(default=[])
    skipped: list[SkippedView] = Field(default=[])
