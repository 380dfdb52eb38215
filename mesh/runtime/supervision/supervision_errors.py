"""What can be wrong with an order to the supervisor, as errors of the tree in `mesh.errors`."""

from __future__ import annotations

from difflib import get_close_matches

from mesh.errors import MeshError


class SupervisionError(MeshError):
    """Root of this branch."""


class TaskUnknown(SupervisionError, KeyError):
    """No task of this name is remembered."""

    def __init__(self, task: str) -> None:
        super().__init__(f"there is no task {task}; it was never submitted, or has been over for long")
        self.task = task

    def __reduce__(self) -> tuple[type[TaskUnknown], tuple[str]]:
        """Across processes."""
        return type(self), (self.task,)

    def __str__(self) -> str:
        return str(self.args[0])


class TaskExists(SupervisionError):
    """Another task of this name is known: of another class, with other arguments, or with another request."""

    def __init__(self, task: str, state: object) -> None:
        super().__init__(
            f"there is another task {task} ({getattr(state, 'value', state)}), of another class, with other arguments or with another "
            "request; choose another name, or leave the name out"
        )
        self.task = task
        self.state = state

    def __reduce__(self) -> tuple[type[TaskExists], tuple[str, object]]:
        """Across processes."""
        return type(self), (self.task, self.state)


class PoolUnknown(SupervisionError):
    """No pool of this name."""

    def __init__(self, pool: str, known: tuple[str, ...]) -> None:
        super().__init__(f"there is no pool {pool}; {_nearest(pool, known)}there is {', '.join(known) or 'none'}")
        self.pool = pool
        self.known = known

    def __reduce__(self) -> tuple[type[PoolUnknown], tuple[str, tuple[str, ...]]]:
        """Across processes."""
        return type(self), (self.pool, self.known)


class JobUnknown(SupervisionError, KeyError):
    """No job of this name is remembered."""

    def __init__(self, job: str, known: tuple[str, ...]) -> None:
        super().__init__(f"there is no job {job}; {_nearest(job, known)}there is {', '.join(known) or 'none'}")
        self.job = job
        self.known = known

    def __reduce__(self) -> tuple[type[JobUnknown], tuple[str, tuple[str, ...]]]:
        """Across processes."""
        return type(self), (self.job, self.known)

    def __str__(self) -> str:
        return str(self.args[0])


class JobExists(SupervisionError):
    """Another job of this name is known; the message says so."""


class JobFailed(SupervisionError):
    """The job failed; the message says why, `__cause__` is the leader's exception where it could travel."""


class JobTerminated(SupervisionError):
    """The job was ended by a user before its leader returned: there is no result."""


class SubmissionError(SupervisionError, ValueError):
    """A task was submitted in a form that cannot be; the message names the parameter and the remedy."""


class ArgumentError(SubmissionError, TypeError):
    """An argument of a call is of another type, out of bounds, unknown or missing; the message names it and what to give."""


class GangContradiction(SubmissionError):
    """Two tasks of one gang say different sizes of it; the message names both. The second was not taken."""


class NotOverYet(SupervisionError, TimeoutError):
    """A task or a job has no result within the time that was given, and goes on; the message says where it stands."""


class TaskFailed(SupervisionError):
    """The task failed; the message holds the user's traceback, `__cause__` the user's exception where it could travel."""


class ResultLost(SupervisionError):
    """A large result went with the supervisor that held its reference."""


class TaskNotRunning(SupervisionError):
    """A call on a task that no agent has: it waits, or is over; the message says which and why."""


class StartFailed(SupervisionError):
    """The mesh could not be started, and nothing of the start is left; the message holds what was raised."""

    def __init__(self, mesh: str, why: str) -> None:
        super().__init__(f"mesh {mesh} cannot be started: {why}; look at the options of ScheduleMesh.start, and at Ray's logs for the rest")
        self.mesh = mesh
        self.why = why

    def __reduce__(self) -> tuple[type[StartFailed], tuple[str, str]]:
        """Across processes."""
        return type(self), (self.mesh, self.why)


class SupervisorLost(SupervisionError):
    """The supervisor does not answer, and no new one has come in time."""


class MeshStopped(SupervisorLost):
    """The mesh has been stopped; its supervisor is there for a moment yet, and has its name."""


class StartsAgain(SupervisorLost):
    """The supervisor came back after its death and could not start; it is tried again in a moment. The message says what is wrong."""

    def __init__(self, mesh: str, why: str) -> None:
        super().__init__(f"the supervisor of mesh {mesh} came back and cannot start, and tries again: {why}")
        self.mesh = mesh
        self.why = why

    def __reduce__(self) -> tuple[type[StartsAgain], tuple[str, str]]:
        """Across processes."""
        return type(self), (self.mesh, self.why)


def no_such_mesh(mesh: str, kind: type[SupervisorLost] = SupervisorLost) -> SupervisorLost:
    """What to raise when no mesh of this name runs."""
    return kind(f"no mesh {mesh} runs in this cluster; start it with ScheduleMesh.start({mesh!r})")


def _nearest(word: str, known: tuple[str, ...]) -> str:
    close = get_close_matches(str(word), known, n=1)
    return f"did you mean {close[0]}? " if close else ""
