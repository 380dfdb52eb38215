"""Errors of calls to an agent, beside the errors of user code."""

from __future__ import annotations

from mesh.errors import MeshError


class NothingHosted(MeshError):
    """The agent hosts no task, or not the called one: the task ended, was preempted, or was replaced."""


class NoSuchMethod(MeshError, AttributeError):
    """The task's object has no such method; the message lists its methods."""


class CallPreempted(MeshError):
    """The call was not finished because its task was asked to stop. State is saved as configured; call again later."""


class NoCurrentTask(MeshError):
    """`current_task` was called in a process that hosts no task."""


class TaskPreempted(BaseException):
    """Raised inside user code at a stopping point, so that only `finally` blocks run.

    Not an `Exception`, like `KeyboardInterrupt` and `asyncio.CancelledError`: training loops catch `Exception` and continue
    with the next batch, and they must stop here. Code that needs to clean up catches this class by name and raises it again.
    It never leaves the agent: callers see `CallPreempted`.
    """
