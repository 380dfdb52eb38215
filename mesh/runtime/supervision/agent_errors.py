"""What a caller of an agent can meet, beside the errors of the user's own code."""

from __future__ import annotations

from mesh.errors import MeshError


class NothingHosted(MeshError):
    """The agent has no task, or not the one that is called: it ended, gave way, or was replaced by another."""


class NoSuchMethod(MeshError, AttributeError):
    """The task's object has no such method; the message names those that it has."""


class TaskGaveWay(MeshError):
    """The call was not finished: its task was asked to stop. Its state is kept as far as it was asked for; call again later."""


class NoCurrentTask(MeshError):
    """`current_task` was asked for in a process that hosts none."""


class TaskPreempted(BaseException):
    """Raised inside of the user's code at a point where it stops, so that `finally` runs and nothing else does.

    Not an `Exception`, for the reason that `KeyboardInterrupt` and `asyncio.CancelledError` are none: training loops catch
    `Exception` to go on with the next batch, and would go on here. Code that wants to do something more catches it by name
    and raises it again. It never leaves the agent: callers see `TaskGaveWay`.
    """
