"""One look for all who ask at about the same time: what a look costs the store is not multiplied by whoever asks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from mesh.clock import Clock
from mesh.errors import MeshError

T = TypeVar("T")


class SharedLook(Generic[T]):
    """Looks one at a time. Whoever waits for a look that began after he came takes its outcome, also when it is an error; whoever comes
    within `kept_ms` of the last look's beginning takes its value. Safe to use from many threads.

    Args:
        look: Costly; raises no other than `MeshError` when there is nothing to see.
        kept_ms: How old a value may be; 0: no older than the question.
    """

    def __init__(self, look: Callable[[], T], *, clock: Clock, kept_ms: int) -> None:
        self._look = look
        self._clock = clock
        self._kept_ms = kept_ms
        self._lock = threading.Lock()
        self._begun = 0  #: Looks so far.
        self._begun_ms = 0  #: When the last one began.
        self._outcome: tuple[T] | MeshError | None = None  #: Of the last one; None before it, and when it broke.

    def __call__(self) -> T:
        """A value that is new enough. Raises what the look raises."""
        came = self._begun
        with self._lock:
            if not self._is_good(came):
                self._look_again()
            outcome = self._outcome
        if isinstance(outcome, MeshError):
            raise outcome.with_traceback(None)  # Shared: it would gather the way of everybody who was told it.
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
        except MeshError as told:
            self._outcome = told
