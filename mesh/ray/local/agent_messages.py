"""Orders of the supervisor to an agent, and the agent's answers and reports: frozen values.

User code, arguments, results and states are pickles, which the supervisor passes on and never reads. ObjectRefs in a value
stand beside the pickled arguments, so that Ray counts them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from mesh.core.ids import AgentId, NodeName, TaskId
from mesh.core.reasons import Reason
from mesh.core.saved_state import StateSnapshot

METRICS_PERIOD_MS = 5_000
SAVED_BYTES_MAX = 16 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class PickledArguments:
    """Arguments of a call, made by `pickled_code.pickled_arguments`."""

    pickled: bytes = field(repr=False)
    refs: tuple[Any, ...] = ()  #: ObjectRefs in the arguments, at any depth; the pickle holds their positions.


def call_name(task: TaskId, attempt: int, method: str) -> str:
    """Return the name of a method of one attempt of one task, for `call` and `call_named`."""
    return f"{task}#{attempt}.{method}"


# -- commands -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCommand:
    """Order to build the task's object. Idempotent per attempt."""

    task: TaskId
    attempt: int
    code: bytes = field(repr=False)  #: The user's class, from `pickled_code.pickled_class`.
    arguments: PickledArguments | None = None  #: Arguments of the constructor; None: those of `saved`, else none.
    entry: str | None = None  #: The method that `run` calls.
    entry_arguments: PickledArguments | None = None
    saved: StateSnapshot | None = None  #: Saved state of an earlier attempt, to be restored first.
    handlers: bytes | None = field(default=None, repr=False)  #: Pickled `StateHandlers`; None: those on the class.
    environment: Mapping[str, str] = field(default_factory=dict)  #: Environment variables, set while the task is hosted.
    metrics_period_ms: int = METRICS_PERIOD_MS
    saved_bytes_max: int = SAVED_BYTES_MAX  #: Limit of one snapshot, and of a result inside `Ended`.
    arguments_ms_max: int = 60_000  #: Time limit for ObjectRefs among the arguments.
    restore_ms_max: int = 30_000  #: Time limit of the user's restorer.
    submitter: str = ""  #: Ray job of the client; tasks of one may share processes. Empty: of no client, such as a job's member.
    own_process: bool = False  #: The process serves no other task, neither before nor after.
    needs_address: bool = False  #: Others have to reach the object; the answer then holds its `address` (`Hosted.address`).


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPayload:
    """Payload of a job's members: a command per role, without the task."""

    commands: Mapping[str, HostCommand]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopCommand:
    """Order to stop the task. Answered within about `grace_ms + preserve_ms_max`. Idempotent per attempt."""

    task: TaskId
    attempt: int
    keep_state: bool = True
    grace_ms: int = 5_000  #: Time limit for a running method to reach a stopping point.
    preserve_ms_max: int = 5_000  #: Time limit of the user's preserver after that.
    reason: Reason = Reason.CANCELLED_BY_USER
    by: TaskId | None = None  #: The preemptor.


# -- answers -----------------------------------------------------------------------------------------------------------


class RestoreHow(str, Enum):
    """Way in which the state of an earlier attempt was restored."""

    NOTHING = "NOTHING"
    """There was no saved state."""
    DEFAULT = "DEFAULT"
    """The arguments of the command; `current_task()` has progress and last checkpoint."""
    RESTORER = "RESTORER"
    """The user's restorer restored the state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosted:
    """The task's object is built and accepts calls."""

    task: TaskId
    attempt: int
    agent: AgentId
    pid: int
    node: NodeName
    methods: tuple[str, ...]  #: Public ones of the object, sorted.
    restored: RestoreHow = RestoreHow.NOTHING
    why: str = ""  #: Why the restorer was not used, when there is one.
    unrestored: str = ""  #: Why a preserved state was not restored; empty when it was, or there was none.
    address: str = ""  #: From the object's `address`, text or method; else a free address of this machine that the environment offered.


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The task's object could not be built; nothing of it is left."""

    task: TaskId
    attempt: int
    agent: AgentId
    reason: Reason  #: USER_ERROR, CODE_UNAVAILABLE, VALUE_LOST, START_FAILED (hosts another task), or the reason of a concurrent stop.
    detail: str
    traceback: str = ""  #: The user's traceback, without this project's frames.
    pickled: bytes | None = field(default=None, repr=False)  #: The exception, when it is small and can be unpickled.
    reusable: bool = True  #: True: the process can host another task of the same tenant.

    @property
    def is_final(self) -> bool:
        """Whether the build would fail on another agent too."""
        return self.reason in {Reason.USER_ERROR, Reason.CODE_UNAVAILABLE}


HostedOrFailed = Hosted | Failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The entry method ended by itself. A result too large for `result` is the second value of `run`."""

    task: TaskId
    attempt: int
    error: str = ""  #: For example `builtins.ValueError: no`; empty: the method returned.
    traceback: str = ""
    pickled: bytes | None = field(default=None, repr=False)  #: The exception, when it is small and can be unpickled.
    result: bytes | None = field(default=None, repr=False)  #: The pickled value, when it is small.
    stopped: bool = False  #: True: it ended because it was asked to, neither success nor failure.
    spoiled: str | None = None  #: Why the process can host no further task, empty when it can; None: the task has to be stopped first.


class StopHow(str, Enum):
    """Way in which a task was stopped."""

    IDLE = "IDLE"
    """Nothing of the task was running."""
    STOPPED = "STOPPED"
    """Running calls ended in time: at a stopping point, by a cancelled `await`, or by themselves."""
    STILL_RUNNING = "STILL_RUNNING"
    """A call is still running; the process has to be killed."""
    NOT_HERE = "NOT_HERE"
    """The agent does not have this attempt: the command to host never came, it ended before, or another attempt was hosted since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The task is over on this agent, or will be when the process is killed (not `reusable`)."""

    task: TaskId
    attempt: int
    saved: StateSnapshot | None
    lost_ms: int  #: Milliseconds of work since the last saved state.
    how: StopHow
    reusable: bool
    why: str = ""  #: Why the process cannot be reused. `saved.why` has errors of saving the state.
    ended: Ended | None = None  #: Set when the entry method ended by itself before it could be stopped.
    unkept: str = ""  #: Error of the preserver, so that only the default was saved.


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStatus:
    """Status of an agent, reported every period and on request."""

    agent: AgentId
    task: TaskId | None  #: None: the agent is idle.
    attempt: int
    at_ms: int  #: Milliseconds since the epoch.
    pid: int
    node: NodeName
    gpu_ids: tuple[str, ...] = ()
    cpu: float = 0.0  #: CPUs in use since the last report; 1.0 is one core.
    rss_bytes: int = 0
    running: int = 0  #: Calls that run now.
    calls: int = 0  #: Calls begun in this attempt.
    failures: int = 0  #: Calls that raised in this attempt.
    queue_ms: int = 0  #: Recent waiting time of a call before it begins, measured by the agent's own periodic call.
    progress: float | None = None
    checkpoints: int = 0
    stopping: bool = False
    blocked: bool = False
    ended: Ended | None = None  #: Kept until the next command, for a supervisor that was away.
