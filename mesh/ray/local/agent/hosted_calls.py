"""Calls on a task's object: admission, running calls, and the errors that callers see when the task is stopped.

`call` is the path of every `.choose().method()`: one dict lookup, a rarely contended lock, two counters.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from functools import partial
from typing import Any

from mesh.core.ids import TaskId
from mesh.core.reasons import Reason
from mesh.ray.local.agent.agent_errors import CallPreempted, NoSuchMethod, NothingHosted
from mesh.ray.local.agent.error_serialization import serialize_error
from mesh.ray.local.agent.loop_thread import LoopThread
from mesh.ray.local.agent_messages import call_name
from mesh.ray.user_code.task_context import TaskContext, TaskPreempted


class HostedCalls:
    """The object of one attempt and its calls. Thread-safe.

    Invariant: once it is closed no call begins, and `running` only falls.
    """

    def __init__(self, task: TaskId, attempt: int, context: TaskContext) -> None:
        self.task, self.attempt, self.context = task, attempt, context
        self.running = 0  #: Calls that run now, the constructor included.
        self.calls = 0  #: Calls begun.
        self.failures = 0  #: Calls that raised.
        self._own_prefix = call_name(task, attempt, "")
        self._actor: Any = None
        self._methods: dict[str, Callable[..., Any]] = {}
        self._loop = LoopThread(f"{task}:async")
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._is_closed = False  #: True: no further call begins.

    def method_names(self) -> tuple[str, ...]:
        """Return the public methods of the object, sorted."""
        kind = type(self._actor)
        return tuple(sorted(name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name, None))))

    def call(self, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Call a method of the object, plain or `async def`, by its name or by a `call_name`.

        Raises:
            NothingHosted: The `call_name` is of another task or attempt.
            NoSuchMethod: The object has no method of this name.
            CallPreempted: The task was asked to stop, before or during the call.
            BaseException: Any error of the method.
        """
        bound = self._methods.get(method)
        if bound is None:
            bound = self._look_up(method)
        with self._lock:
            if self._is_closed:
                raise self._call_preempted(method)
            self.running += 1
            self.calls += 1
        try:
            return bound(*args, **kwargs)
        except BaseException as error:
            understood = self._understood(error, method)
            if understood is error:
                raise
        finally:
            with self._lock:
                self.running -= 1
                if self._is_closed:
                    self._idle.notify_all()
        # Raised outside the `except` block: without context, the traceback does not keep the user's object alive.
        del bound
        raise understood

    def stream(self, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[Any]:
        """Yield the values of a generator method. The task can stop between two values. Raises as `call` does."""
        produced = self._member(method)(*args, **kwargs)
        if not hasattr(produced, "__anext__") and not hasattr(produced, "__next__"):
            if inspect.iscoroutine(produced):
                produced.close()
            raise TypeError(f"{method} returned a {type(produced).__qualname__}, not a generator; use `call`")
        with self._counted(calls=1):
            try:
                while True:
                    value = self._next(produced)
                    if value is _OVER:
                        return
                    yield value
                    self.context.stop_if_asked()
            except GeneratorExit:
                raise
            except BaseException as error:
                understood = self._understood(error, method)
                if understood is error:
                    raise
                raise understood from None
            finally:
                self._close(produced)

    # -- stopping ------------------------------------------------------------------------------------------------------

    def _ask_to_stop(self, reason: Reason) -> bool:
        """Ask all calls to stop; return whether any ran. Checked before the request, because a cancelled call may end at once."""
        with self._lock:
            was_running = self.running > 0
        self.context.ask_to_stop(reason)
        with self._lock:
            self._is_closed = True
        self._loop.cancel_all()
        return was_running

    def _await_idle(self, grace_s: float) -> bool:
        """Wait until no call runs; return False at the end of the grace period."""
        with self._idle:
            return self._idle.wait_for(lambda: self.running == 0, timeout=max(0.0, grace_s))

    # -- one call ------------------------------------------------------------------------------------------------------

    def _look_up(self, method: str) -> Callable[..., Any]:
        found = self._member(method)
        if inspect.isgeneratorfunction(found) or inspect.isasyncgenfunction(found):
            raise TypeError(f"{method} is a generator; use `stream`")
        if inspect.iscoroutinefunction(found):
            found = partial(self._run_async, found)
        self._methods[method] = found
        return found

    def _member(self, method: str) -> Callable[..., Any]:
        if method.startswith(self._own_prefix):
            method = method[len(self._own_prefix) :]
        elif "#" in method:
            raise NothingHosted(
                f"{method} was called, but this agent hosts task {self.task}, attempt {self.attempt}; ask the mesh where it runs now"
            )
        if self._is_closed:
            raise self._call_preempted(method)
        is_hidden = method.startswith("__") and method != "__call__"
        found = None if is_hidden else getattr(self._actor, method, None)
        if not callable(found):
            there = ", ".join(self.method_names()) or "none"
            raise NoSuchMethod(f"{type(self._actor).__qualname__} of task {self.task} has no method {method!r}; it has: {there}")
        return found  # type: ignore[no-any-return]  # the user's own

    def _run_async(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self._loop.run(function(*args, **kwargs))

    def _next(self, produced: Any) -> Any:
        if hasattr(produced, "__anext__"):
            return self._loop.run(_next_or_over(produced))
        return next(produced, _OVER)

    def _close(self, produced: Any) -> None:
        if isinstance(produced, AsyncGenerator):
            self._loop.run(_closed(produced), despite_cancel=True)
        elif hasattr(produced, "close"):
            produced.close()

    @contextlib.contextmanager
    def _counted(self, calls: int = 0) -> Iterator[None]:
        with self._lock:
            if self._is_closed:
                raise self._call_preempted("nothing")
            self.running += 1
            self.calls += calls
        try:
            yield
        finally:
            with self._lock:
                self.running -= 1
                self._idle.notify_all()

    def _understood(self, error: BaseException, method: str) -> BaseException:
        """Return the error that the caller sees."""
        if isinstance(error, TaskPreempted) or (self._is_closed and isinstance(error, asyncio.CancelledError)):
            return self._call_preempted(method)
        self.failures += 1
        if isinstance(error, (Exception, SystemExit, KeyboardInterrupt)):
            return error
        # Ray takes any other exception for a crash of the worker itself.
        return RuntimeError(f"{method} raised {serialize_error(error).words}")

    def _call_preempted(self, method: str) -> CallPreempted:
        return CallPreempted(f"{method} of task {self.task} was not finished: the task, attempt {self.attempt}, was asked to stop")


_OVER = object()


async def _next_or_over(produced: Any) -> Any:
    try:
        return await produced.__anext__()
    except StopAsyncIteration:
        return _OVER


async def _closed(produced: AsyncGenerator[Any, Any]) -> None:
    await produced.aclose()
