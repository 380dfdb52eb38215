"""Keyed locks and background tasks on one event loop: work under one name is serial, other work concurrent."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any
from weakref import WeakValueDictionary

import structlog

log = structlog.get_logger(__name__)


class KeyedLocks:
    """Keyed locks and background tasks. All methods belong to one event loop."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  #: Holds locks in use only.
        self._running: set[asyncio.Task[None]] = set()  #: References; the loop itself drops tasks that nothing refers to.

    def lock(self, name: str) -> asyncio.Lock:
        """Return the lock of this name; waiters get it in the order of their requests."""
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        return lock

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start the work, and log its errors."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a decision could not be carried out", decision=task.get_name(), exc_info=task.exception())
