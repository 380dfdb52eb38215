"""Work on one event loop: none waits for another, but what is done under one name is done in turn."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any
from weakref import WeakValueDictionary

import structlog

log = structlog.get_logger(__name__)


class Turns:
    """All methods belong to one event loop."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  #: Gone when nobody has it or waits for it.
        self._running: set[asyncio.Task[None]] = set()  #: The loop itself forgets tasks that nobody refers to.

    def lock(self, name: str) -> asyncio.Lock:
        """The lock of this name; whoever waits for it gets it in the order in which they came."""
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        return lock

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Begin the work, and log what it raises."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a decision could not be carried out", decision=task.get_name(), exc_info=task.exception())
