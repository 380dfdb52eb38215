"""One attempt of one task in an agent: building its object, running its entry method, and stopping it."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mesh.core.ids import AgentId, TaskId
from mesh.core.saved_state import StateHandlers, StateSnapshot
from mesh.ray.local.agent.agent_errors import CallPreempted
from mesh.ray.local.agent.bounded_call import Hangs, Raised, call_bounded
from mesh.ray.local.agent.error_serialization import serialize_error
from mesh.ray.local.agent.hosted_calls import HostedCalls
from mesh.ray.local.agent.state_capture import NO_ARGUMENTS, CaptureContext, Restored, keep_state, restore_state
from mesh.ray.local.agent.stray_threads import StrayThreads
from mesh.ray.local.agent_messages import AgentStatus, Ended, HostCommand, PickledArguments, StopCommand, StopHow, Stopped
from mesh.ray.local.pickled_code import check_picklable, read_arguments
from mesh.ray.user_code.bounded_pickle import pickled_within
from mesh.ray.user_code.task_context import Send, TaskContext, make_current

#: A result up to this size is part of the report of the end.
RESULT_BYTES_MAX = 2**20
#: Ray calls this method before it ends an actor in order; an agent calls it before it releases an object.
_FAREWELL = "__ray_shutdown__"


class Surroundings:
    """Sets environment variables; restores all of them and the working directory later, whatever user code has changed."""

    def __init__(self, wanted: Mapping[str, str]) -> None:
        self._before = dict(os.environ)
        self._folder: Path | None = None
        with contextlib.suppress(FileNotFoundError):  # The folder was removed.
            self._folder = Path.cwd()
        os.environ.update(wanted)

    def restore(self) -> None:
        """Restore variables and directory as they were before."""
        now = dict(os.environ)
        for name in now.keys() - self._before.keys():
            del os.environ[name]
        os.environ.update(dict(self._before.items() - now.items()))
        if self._folder is not None:
            with contextlib.suppress(FileNotFoundError):
                os.chdir(self._folder)


class HostedTask(HostedCalls):
    """One attempt, hosted by an agent: `build` makes the object, `stop` ends everything.

    Args:
        command: Command to host the attempt.
        agent: Id of the agent.
        send: Reports to the supervisor: kind and payload.
    """

    def __init__(self, command: HostCommand, agent: AgentId, send: Send) -> None:
        context = TaskContext(
            task=command.task, attempt=command.attempt, saved=command.saved, saved_bytes_max=command.saved_bytes_max, send=send
        )
        super().__init__(command.task, command.attempt, context)
        self.ended: Ended | None = None  #: How the entry method ended.
        self._agent, self._send = agent, send
        self._entry, self._entry_arguments = command.entry, command.entry_arguments or NO_ARGUMENTS
        self._arguments = _arguments_of(command)
        self._wait_s, self._restore_s = command.arguments_ms_max / 1000, command.restore_ms_max / 1000
        self._bytes_max = command.saved_bytes_max
        self._handlers = StateHandlers()
        self._result: Any = None  #: Result of the entry method, when it is too large for `ended`.
        self._run_lock, self._stop_lock = threading.Lock(), threading.Lock()
        self._stopped: Stopped | None = None
        self._threads_before = StrayThreads.look()
        self._surroundings = Surroundings(command.environment)

    # -- the start -----------------------------------------------------------------------------------------------------

    def build(self, cls: type, handlers: StateHandlers, saved: StateSnapshot | None) -> tuple[Restored, tuple[str, ...]]:
        """Build the object and restore its state; return the way of restoring, and the object's public methods.

        Raises:
            CallPreempted: The task was asked to stop meanwhile.
            BaseException: Any error of the user's constructor or of an argument.
        """
        self._handlers = handlers
        make_current(self.context)
        with self._counted():
            self._actor = self._made(cls)
            restored = restore_state(self._capture, self._actor, saved, timeout_s=self._restore_s)
            if restored.is_spoiled:
                self._actor = self._made(cls)
            return restored, self.method_names()

    def address(self) -> str:
        """Return the object's `address`, text or a method that returns it; empty when it has none."""
        found = getattr(self._actor, "address", "")
        with self._counted():
            address = found() if callable(found) else found
            return "" if address is None else str(address)

    def _made(self, cls: type) -> Any:
        args, kwargs = read_arguments(self._arguments, timeout_s=self._wait_s)
        return cls(*args, **kwargs)

    @property
    def takes_calls(self) -> bool:
        """Whether calls come and can run: a running entry method occupies the thread."""
        return self.calls > 0 and (self._entry is None or self.ended is not None)

    def described(self, status: AgentStatus, *, is_blocked: bool) -> AgentStatus:
        """Return the agent's status with the fields that the task knows."""
        facts = self.context.facts
        return replace(
            status,
            running=self.running,
            calls=self.calls,
            failures=self.failures,
            progress=facts.progress,
            checkpoints=0 if facts.checkpoint is None else facts.checkpoint.number,
            stopping=self._is_closed,
            blocked=is_blocked,
            ended=self.ended,
        )

    # -- the entry method ----------------------------------------------------------------------------------------------

    def run(self) -> tuple[Ended, Any]:
        """Call the entry method once. Return its end, and its value when it is too large for `Ended.result`. Does not raise."""
        with self._run_lock:
            if self.ended is None:
                try:
                    with self._counted():  # Counted until the end is recorded; a stop in between would miss it.
                        self.ended = self._run_entry()
                except CallPreempted as stopped:
                    self.ended = Ended(task=self.task, attempt=self.attempt, error=str(stopped), stopped=True)
            return self.ended, self._result

    def _run_entry(self) -> Ended:
        if self._entry is None:
            return Ended(task=self.task, attempt=self.attempt, error=f"task {self.task} has no entry method")
        try:
            args, kwargs = read_arguments(self._entry_arguments, timeout_s=self._wait_s)
            value = self.call(self._entry, args, kwargs)
        except CallPreempted as stopped:
            return Ended(task=self.task, attempt=self.attempt, error=str(stopped), stopped=True)
        except BaseException as error:  # noqa: BLE001 - any error of user code is reported, SystemExit too
            serialized = serialize_error(error)
            return Ended(
                task=self.task, attempt=self.attempt, error=serialized.words, traceback=serialized.traceback, pickled=serialized.pickled
            )
        if self.context.has_noticed:
            return Ended(task=self.task, attempt=self.attempt, error="it returned when it was asked to stop", stopped=True)
        try:
            return Ended(task=self.task, attempt=self.attempt, result=self._small(value))
        except TypeError as refused:
            return Ended(task=self.task, attempt=self.attempt, error=f"builtins.TypeError: {refused}")

    def _small(self, value: Any) -> bytes | None:
        """Return the pickled result; None when Ray must send it because it is large, or holds values that only Ray can send."""
        with contextlib.suppress(TypeError):
            pickled = pickled_within(value, min(RESULT_BYTES_MAX, self._bytes_max), what="the result")
            if pickled is not None:
                return pickled
        check_picklable(value, what="the result")
        self._result = value
        return None

    # -- the end -------------------------------------------------------------------------------------------------------

    def stop(self, command: StopCommand) -> Stopped:
        """Stop the task within the command's time limits. A second stop waits for the first and gets its answer."""
        was_running = self._ask_to_stop(command.reason)
        with self._stop_lock:
            if self._stopped is None:
                self._stopped = self._stop(command, was_running=was_running)
            return self._stopped

    def release(self) -> Ended | None:
        """Release the object after an entry method that returned, so that the process is free without an command to stop.

        Returns:
            The end, with `spoiled`. None: nothing was released, and the task has to be stopped. It failed, its value is large, its
            object wants to say farewell, other calls of it run, or a stop has begun.
        """
        ended = self.ended
        if ended is None or ended.result is None or ended.stopped or self._has_farewell:
            return None
        with self._stop_lock:
            with self._lock:
                if self._is_closed or self.running:
                    return None
                self._is_closed = True
            ended = replace(ended, spoiled=self.let_go())
            self._stopped = not_here(self.task, self.attempt, ended.spoiled or "", ended)
            return ended

    def let_go(self, *, farewell_s: float = 0.0) -> str:
        """Release the object and everything user code left. Return why the process cannot be reused; empty when it can.

        Does not raise: an error, of the object or of restoring the working directory, is such a reason.

        Args:
            farewell_s: Time limit of the object's `__ray_shutdown__`; 0: it is not called.
        """
        try:
            return self._let_go(farewell_s)
        except BaseException as error:  # noqa: BLE001 - any error of user code is reported
            return f"the task's object cannot be released: {serialize_error(error).words}"

    def _let_go(self, farewell_s: float) -> str:
        spoiled = self._farewell(farewell_s) if farewell_s else ""
        watched = _weakly(self._actor)
        self._actor, self._result, self._handlers = None, None, StateHandlers()
        self._methods.clear()
        if not self._loop.close():
            spoiled = spoiled or "an `async` part of the task does not end"
        make_current(None)
        self._surroundings.restore()
        gc.collect()
        if watched() is not None:
            spoiled = spoiled or "something still refers to the task's object"
        return spoiled or self._threads_before.newcomers()

    def _stop(self, command: StopCommand, *, was_running: bool) -> Stopped:
        ended_in_time = self._await_idle(command.grace_ms / 1000)
        saved, unkept, hangs = None, "", False
        lost_ms = self.context.unkept_ms
        if command.keep_state and self._actor is not None:
            preserve_s = command.preserve_ms_max / 1000
            kept = keep_state(self._capture, self._actor, reason=command.reason, timeout_s=preserve_s, is_running=not ended_in_time)
            saved, unkept, hangs = kept.snapshot, kept.unkept, kept.hangs
            lost_ms = 0 if saved.saved_bytes is not None else lost_ms
        if not ended_in_time:
            why, how = f"a call is still running, {command.grace_ms} ms after it was asked to stop", StopHow.STILL_RUNNING
        else:
            why = "the preserver hangs" if hangs else self.let_go(farewell_s=command.preserve_ms_max / 1000)
            how = StopHow.STOPPED if was_running else StopHow.IDLE
        return Stopped(
            task=self.task,
            attempt=self.attempt,
            saved=saved,
            unkept=unkept,
            lost_ms=lost_ms,
            how=how,
            reusable=not why,
            why=why,
            ended=self._true_end,
        )

    def _farewell(self, timeout_s: float) -> str:
        if not self._has_farewell:
            return ""
        outcome = call_bounded(getattr(self._actor, _FAREWELL), timeout_s=timeout_s, name="farewell")
        if isinstance(outcome, Hangs):
            return f"{_FAREWELL} does not return"
        return f"{_FAREWELL} raised {serialize_error(outcome.error).words}" if isinstance(outcome, Raised) else ""

    @property
    def _has_farewell(self) -> bool:
        return hasattr(type(self._actor), _FAREWELL)  # Not of the object, whose `__getattr__` may raise any error.

    @property
    def _true_end(self) -> Ended | None:
        return None if self.ended is None or self.ended.stopped else self.ended

    @property
    def _capture(self) -> CaptureContext:
        return CaptureContext(
            task=self.task,
            agent=self._agent,
            attempt=self.attempt,
            context=self.context,
            arguments=self._arguments,
            handlers=self._handlers,
            bytes_max=self._bytes_max,
        )


def not_here(task: TaskId, attempt: int, spoiled: str, ended: Ended | None = None) -> Stopped:
    """Return the answer to the stop of an attempt that the agent does not have, or that ended before."""
    return Stopped(task=task, attempt=attempt, saved=None, lost_ms=0, how=StopHow.NOT_HERE, reusable=not spoiled, why=spoiled, ended=ended)


def _arguments_of(command: HostCommand) -> PickledArguments:
    if command.arguments is not None:
        return command.arguments
    if command.saved is not None and command.saved.arguments is not None:
        return PickledArguments(pickled=command.saved.arguments)
    return NO_ARGUMENTS


def _weakly(actor: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(actor)
    except TypeError:  # `__slots__` without `__weakref__`: the check is impossible.
        return lambda: None
