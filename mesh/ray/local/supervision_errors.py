"""Errors of orders to the supervisor, part of the tree in `mesh.errors`."""

from __future__ import annotations

from mesh.core.near_names import near_name
from mesh.errors import JobFailed as AnyJobFailed
from mesh.errors import MeshError


class SupervisionError(MeshError):
    """Base of errors that the supervisor raises."""


class TaskUnknown(SupervisionError, KeyError):
    """No task of this name is remembered."""

    def __init__(self, task: str) -> None:
        super().__init__(f"there is no task {task}; it was never submitted, or ended long ago")
        self.task = task

    def __reduce__(self) -> tuple[type[TaskUnknown], tuple[str]]:
        return type(self), (self.task,)

    def __str__(self) -> str:
        return str(self.args[0])


class TaskExists(SupervisionError):
    """Another task has this name: of another class, with other arguments, or with another request."""

    def __init__(self, task: str, state: object) -> None:
        super().__init__(
            f"there is another task {task} ({getattr(state, 'value', state)}), of another class, with other arguments or with another "
            "request; choose another name, or leave the name out"
        )
        self.task = task
        self.state = state

    def __reduce__(self) -> tuple[type[TaskExists], tuple[str, object]]:
        return type(self), (self.task, self.state)


class PoolUnknown(SupervisionError):
    """No pool has this name."""

    def __init__(self, pool: str, known: tuple[str, ...]) -> None:
        super().__init__(f"there is no pool {pool}; {_nearest(pool, known)}known pools: {', '.join(known) or 'none'}")
        self.pool = pool
        self.known = known

    def __reduce__(self) -> tuple[type[PoolUnknown], tuple[str, tuple[str, ...]]]:
        return type(self), (self.pool, self.known)


class JobUnknown(SupervisionError, KeyError):
    """No job of this name is remembered."""

    def __init__(self, job: str, known: tuple[str, ...]) -> None:
        super().__init__(f"there is no job {job}; {_nearest(job, known)}known jobs: {', '.join(known) or 'none'}")
        self.job = job
        self.known = known

    def __reduce__(self) -> tuple[type[JobUnknown], tuple[str, tuple[str, ...]]]:
        return type(self), (self.job, self.known)

    def __str__(self) -> str:
        return str(self.args[0])


class JobExists(SupervisionError):
    """Another job has this name."""


class JobFailed(SupervisionError, AnyJobFailed):
    """The job failed; the message says why, `__cause__` is the leader's exception if it could be unpickled."""


class JobTerminated(SupervisionError):
    """A user terminated the job before its leader returned: there is no result."""


class SubmissionError(SupervisionError, ValueError):
    """An argument of a submission is invalid; the message names the parameter and the remedy."""


class ArgumentError(SubmissionError, TypeError):
    """An argument of a call has the wrong type, is out of bounds, unknown or missing; the message names it and the remedy."""


class GangContradiction(SubmissionError):
    """Two tasks of one gang give different sizes of it; the message names both. The second was not accepted."""


class NotOverYet(SupervisionError, TimeoutError):
    """A task or job has no result within the timeout, and continues; the message names its state."""


class TaskFailed(SupervisionError):
    """The task failed; the message holds the user's traceback, `__cause__` the user's exception if it could be unpickled."""


class ResultLost(SupervisionError):
    """A large result was lost with the supervisor that held its reference."""


class TaskNotRunning(SupervisionError):
    """A call on a task without an agent: it waits, or is over; the message says which and why."""


class StartFailed(SupervisionError):
    """The mesh could not be started, and nothing of the start is left; the message holds the error."""

    def __init__(self, mesh: str, why: str) -> None:
        super().__init__(f"mesh {mesh} cannot be started: {why}; check the options of ScheduleMesh.start, and Ray's logs for details")
        self.mesh = mesh
        self.why = why

    def __reduce__(self) -> tuple[type[StartFailed], tuple[str, str]]:
        return type(self), (self.mesh, self.why)


class SupervisorLost(SupervisionError):
    """The supervisor does not answer, and no new one has come in time."""


class MeshStopped(SupervisorLost):
    """The mesh has been stopped; its supervisor ends in a moment and still has its name."""


class StartsAgain(SupervisorLost):
    """The supervisor restarted after its death and could not start; it retries in a moment. The message names the error."""

    def __init__(self, mesh: str, why: str) -> None:
        super().__init__(f"the supervisor of mesh {mesh} restarted, cannot start, and retries: {why}")
        self.mesh = mesh
        self.why = why

    def __reduce__(self) -> tuple[type[StartsAgain], tuple[str, str]]:
        return type(self), (self.mesh, self.why)


def no_such_mesh(mesh: str, kind: type[SupervisorLost] = SupervisorLost) -> SupervisorLost:
    """Return the error for a mesh that does not run."""
    return kind(f"no mesh {mesh} runs in this cluster; start it with ScheduleMesh.start({mesh!r})")


def _nearest(word: str, known: tuple[str, ...]) -> str:
    near = near_name(str(word), known)
    return f"did you mean {near}? " if near is not None else ""
