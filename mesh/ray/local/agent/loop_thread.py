"""Event loop on its own thread, for the `async def` methods of a hosted object."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

_CLOSE_S_MAX = 2.0


@dataclass(frozen=True, slots=True)
class _Exit:
    """Carrier for the two exceptions that would end asyncio's loop; the caller raises them."""

    error: SystemExit | KeyboardInterrupt


class LoopThread:
    """The event loop of one hosted object, started by its first coroutine; shared, so that the object's locks and queues work."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_cancelled = False

    def run(self, coroutine: Coroutine[Any, Any, Any], *, despite_cancel: bool = False) -> Any:
        """Run the coroutine on the loop and wait for its end. Raises its errors; `asyncio.CancelledError` when it was cancelled.

        Args:
            coroutine: Coroutine to run.
            despite_cancel: Run even after `cancel_all`, for clean-up.
        """
        answer: Future[Any] = Future()
        self._started().call_soon_threadsafe(self._begin, coroutine, answer, despite_cancel)
        value = answer.result()
        if isinstance(value, _Exit):
            raise value.error
        return value

    def cancel_all(self) -> None:
        """Cancel running and later coroutines. Returns at once; each `run` returns when its coroutine has ended."""
        self._is_cancelled = True  # Set first: a call may be starting the loop just now.
        if self._loop is not None:
            self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in tuple(self._tasks)])

    def close(self) -> bool:
        """End the loop and all its tasks; return False when a task does not end. Idempotent."""
        if self._loop is None or self._thread is None:
            return True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_S_MAX)
        return not self._thread.is_alive()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._turn, args=(self._loop,), name=self._name, daemon=True)
                self._thread.start()
            return self._loop

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()
        loop.run_until_complete(_cancel_others())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()

    def _begin(self, coroutine: Coroutine[Any, Any, Any], answer: Future[Any], despite_cancel: bool) -> None:
        task = asyncio.get_running_loop().create_task(_carried(coroutine))
        self._tasks.add(task)
        task.add_done_callback(partial(self._end, coroutine, answer))
        if self._is_cancelled and not despite_cancel:
            task.cancel()

    def _end(self, coroutine: Coroutine[Any, Any, Any], answer: Future[Any], task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        coroutine.close()  # A coroutine that was cancelled before its first step must be closed.
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None:
            answer.set_result(task.result())
        else:
            answer.set_exception(error)


async def _carried(coroutine: Coroutine[Any, Any, Any]) -> Any:
    try:
        return await coroutine
    except (SystemExit, KeyboardInterrupt) as error:
        return _Exit(error)


async def _cancel_others() -> None:
    """Cancel tasks that user code started beside its calls."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
