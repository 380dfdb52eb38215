"""One expensive read shared by concurrent callers, so that its cost to the store does not grow with their number."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from mesh.core.clock import Clock
from mesh.errors import MeshError

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Shared result of a costly function; thread-safe.

    Calls run one at a time. A caller that waits for a call that began after it arrived gets that call's result or error. A caller that
    arrives within `kept_ms` of the last call's beginning gets its value.

    Args:
        look: The costly function; raises only `MeshError`, if there is nothing to see.
        kept_ms: Greatest age of a shared value; 0: no older than the caller's arrival.
    """

    def __init__(self, look: Callable[[], T], *, clock: Clock, kept_ms: int) -> None:
        self._look = look
        self._clock = clock
        self._kept_ms = kept_ms
        self._lock = threading.Lock()
        self._begun = 0  #: Calls begun so far.
        self._begun_ms = 0  #: When the last call began.
        self._outcome: tuple[T] | MeshError | None = (
            None  #: Outcome of the last call; None before the first, and after an unexpected error.
        )

    def __call__(self) -> T:
        """Return a value that is new enough. Raises what `look` raises."""
        came = self._begun
        with self._lock:
            if not self._is_good(came):
                self._look_again()
            outcome = self._outcome
        if isinstance(outcome, MeshError):
            raise outcome.with_traceback(None)  # The error is shared, so its traceback would grow with every caller.
        assert outcome is not None  # noqa: S101  what broke has raised already
        return outcome[0]

    def _is_good(self, came: int) -> bool:
        if self._begun > came:
            return self._outcome is not None
        return isinstance(self._outcome, tuple) and self._clock.monotonic_ms() - self._begun_ms < self._kept_ms

    def _look_again(self) -> None:
        self._begun += 1
        self._begun_ms, self._outcome = self._clock.monotonic_ms(), None
        try:
            self._outcome = (self._look(),)
        except MeshError as error:
            self._outcome = error
