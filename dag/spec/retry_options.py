"""Options that decide when a node is tried again: which errors, after which wait, with how much memory.

An error is named by its class, `module.Class` as failures report it; a class of Python itself needs no module. The class covers its
subclasses. Errors that have no class in the user's code have the names of their reasons.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from mesh.core.near_names import nearest
from mesh.core.printable import check_printable
from mesh.core.reasons import Reason

#: Reasons of failures that `retry_on` and `never_on` may name beside classes.
NAMED_REASONS = (Reason.OUT_OF_MEMORY, Reason.START_TO_CLOSE_TIMEOUT, Reason.WORKER_LOST, Reason.CODE_UNAVAILABLE)
_REASON_NAMES = frozenset(reason.value for reason in NAMED_REASONS)
ERRORS_MAX = 100
ERROR_CHARS_MAX = 200
#: Limit on a wait and on a timeout; a year.
SECONDS_MAX = 31_536_000
FACTOR_MAX = 100.0
MEMORY_GROWTH_MAX = 10.0


def full_name(written: str) -> str:
    """Return the name of an error as failures report it: `builtins.OSError` for `OSError`."""
    return f"builtins.{written}" if "." not in written and written not in _REASON_NAMES else written


def full_names(written: Iterable[str]) -> frozenset[str]:
    """Return the names of errors as failures report them."""
    return frozenset(map(full_name, written))


def error_name(written: str) -> str:
    """Return the name. Raises ValueError if it can match no error."""
    check_printable(written)
    if "." in written or written in _REASON_NAMES:
        return written
    kind = getattr(builtins, written, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        return written
    known = [name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, Exception)]
    hint = nearest(written, [*known, *_REASON_NAMES]) or f"; beside classes there are {', '.join(sorted(_REASON_NAMES))}"
    raise ValueError(f"{written!r} is no exception of Python; write module.Class, like requests.exceptions.Timeout{hint}")


class BackoffOptions(BaseModel):
    """Wait before each retry of a node. Default of each field: that of the federation's `dispatch` section."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    initial_s: float | None = Field(default=None, ge=0, le=SECONDS_MAX, description="Wait after the first failure, in seconds.")
    factor: float | None = Field(default=None, ge=1, le=FACTOR_MAX, description="Each further wait is so many times as long; 2 by default.")
    max_s: float | None = Field(default=None, ge=0, le=SECONDS_MAX, description="Longest wait, without its jitter, in seconds.")
    jitter: float | None = Field(default=None, ge=0, le=1, description="Largest share of the wait that is added to it; 0.5 by default.")

    def as_backoff(self) -> Backoff:
        """Return the waits in milliseconds."""
        return Backoff(initial_ms=_ms(self.initial_s), factor=self.factor, max_ms=_ms(self.max_s), jitter=self.jitter)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Waits of one node before its retries; None: as in the federation."""

    initial_ms: int | None = None
    factor: float | None = None
    max_ms: int | None = None
    jitter: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTimeouts:
    """Time limits of a node that the root keeps; None: no limit. The limit of each attempt is in its task."""

    schedule_to_start_ms: int | None = None  #: Limit on each attempt, from the moment when the node could start but for room or quota.
    schedule_to_close_ms: int | None = None  #: Limit on all attempts together, from the moment when the node could start first.


NO_BACKOFF = Backoff()
NO_TIMEOUTS = NodeTimeouts()


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1000)


def at_least_one_ms(seconds: float | None) -> int | None:
    """Return a time limit in milliseconds; no limit is none at all."""
    return None if seconds is None else max(1, int(seconds * 1000))
