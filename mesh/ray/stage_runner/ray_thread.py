"""Calls in Ray's I/O thread, for `ray.cancel`: see ADR 0034.

`ray.cancel` decides by a task's state, and Ray's I/O thread changes that state between two locks. A cancellation from another thread may
meet a task that is in no list at that moment: its arguments are being put in, or its result is being stored. Ray then fails the task, and
aborts the process when the result arrives. In the I/O thread itself nothing changes meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ray
import structlog

log = structlog.get_logger(__name__)


class RayThread:
    """Ray's I/O thread of this process, which must be connected to a cluster. All methods return at once."""

    def __init__(self) -> None:
        self._landmark: Any = ray.put(None)  #: A value that is there: its callbacks only wait for their turn in the thread.

    def call(self, then: Callable[[], object]) -> None:
        """Call the function in the thread, after the work that Ray has given to the thread so far. The function must not wait."""
        # `future()` would call from this thread if the value came before the callback was added.
        self._landmark._on_completed(lambda _: _call(then))  # noqa: SLF001  Ray has no public name for it

    def cancel(self, references: Sequence[Any], *, force: bool) -> None:
        """Cancel the tasks of the references with their children. Harmless for tasks that have ended.

        All tasks must have reached the thread before: their owner aborts otherwise.
        """
        self.call(lambda: _cancel(references, force))


def _call(then: Callable[[], object]) -> None:
    try:
        then()
    except Exception:  # Ray would only print it.
        log.exception("a call in Ray's thread failed")


def _cancel(references: Sequence[Any], force: bool) -> None:
    for reference in references:
        ray.cancel(reference, force=force, recursive=True)
