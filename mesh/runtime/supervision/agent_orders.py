"""What the supervisor orders of an agent, and what the agent answers and tells: frozen values.

User code, arguments, results and states are pickles in here, which the supervisor passes on and never reads. What a
value holds of Ray are ObjectRefs beside the pickled arguments, so that Ray counts them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from mesh.ids import AgentId, NodeName, TaskId
from mesh.reasons import Reason
from mesh.saved_state import Snapshot

METRICS_PERIOD_MS = 5_000
SAVED_BYTES_MAX = 16 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class PickledArguments:
    """Arguments of a call, as `pickled_code.pickled_arguments` makes them."""

    pickled: bytes = field(repr=False)
    refs: tuple[Any, ...] = ()  #: The ObjectRefs in it, at any depth; the pickle holds their places.


def call_name(task: TaskId, attempt: int, method: str) -> str:
    """The method of one attempt of one task, for `call` and `call_named`."""
    return f"{task}#{attempt}.{method}"


# -- orders ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class HostOrder:
    """Make the task's object. Again for the same attempt: the same answer."""

    task: TaskId
    attempt: int
    code: bytes = field(repr=False)  #: The user's class, from `pickled_code.pickled_class`.
    arguments: PickledArguments | None = None  #: Of its constructor; None: those of `saved`, else none.
    entry: str | None = None  #: The method that `run` calls.
    entry_arguments: PickledArguments | None = None
    saved: Snapshot | None = None  #: Kept state of an earlier attempt, to be restored first.
    handlers: bytes | None = field(default=None, repr=False)  #: Pickled `StateHandlers`; None: those on the class.
    environment: Mapping[str, str] = field(default_factory=dict)  #: Variables, set while the task is here.
    metrics_period_ms: int = METRICS_PERIOD_MS
    saved_bytes_max: int = SAVED_BYTES_MAX  #: Of one snapshot, and of a result that travels inside `Ended`.
    arguments_ms_max: int = 60_000  #: How long ObjectRefs among the arguments are waited for.
    restore_ms_max: int = 30_000  #: How long the user's restorer may take.
    wants_address: bool = False  #: Others have to reach the object: its `address` is part of the answer (see `Hosted`).


@dataclass(frozen=True, slots=True, kw_only=True)
class StopOrder:
    """Bring the task to its end. Answered within `grace_ms + preserve_ms_max`, and a little. Again: the same answer."""

    task: TaskId
    attempt: int
    keep_state: bool = True
    grace_ms: int = 5_000  #: How long a running method may take to a point where it stops.
    preserve_ms_max: int = 5_000  #: How long the user's preserver may take after that.
    reason: Reason = Reason.CANCELLED_BY_USER
    by: TaskId | None = None  #: For whom it gives way.


# -- answers -----------------------------------------------------------------------------------------------------------


class RestoreHow(str, Enum):
    """What a new object was given of an earlier attempt."""

    NOTHING = "NOTHING"
    """There was no kept state."""
    DEFAULT = "DEFAULT"
    """The arguments again; progress and last checkpoint are there for `current_task()`."""
    RESTORER = "RESTORER"
    """The user's restorer has put the state back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosted:
    """The task's object is there and takes calls."""

    task: TaskId
    attempt: int
    agent: AgentId
    pid: int
    node: NodeName
    methods: tuple[str, ...]  #: Public ones of the object, sorted.
    restored: RestoreHow = RestoreHow.NOTHING
    why: str = ""  #: Why not the restorer's way, when there is one.
    unrestored: str = ""  #: Why a preserved state did not come back; empty when it did, or there was none.
    address: str = ""  #: What its `address` says, text or a method; else one of this machine that was free and stood in its environment.


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The task's object could not be made; nothing of it is left."""

    task: TaskId
    attempt: int
    agent: AgentId
    reason: Reason  #: USER_ERROR, CODE_UNAVAILABLE, VALUE_LOST, CAPACITY_BUSY (hosts another), or that of a stop meanwhile.
    detail: str
    traceback: str = ""  #: The user's, without this project's frames.
    pickled: bytes | None = field(default=None, repr=False)  #: The exception, when it is small and can be had back.
    reusable: bool = True  #: The process can host another task of the same tenant.

    @property
    def is_final(self) -> bool:
        """Would it fail again elsewhere?"""
        return self.reason in {Reason.USER_ERROR, Reason.CODE_UNAVAILABLE}


HostedOrFailed = Hosted | Failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The entry method is over by itself. A result that is too large for `result` is the second value of `run`."""

    task: TaskId
    attempt: int
    error: str = ""  #: `builtins.ValueError: no`; empty: it returned.
    traceback: str = ""
    pickled: bytes | None = field(default=None, repr=False)  #: The exception, when it is small and can be had back.
    result: bytes | None = field(default=None, repr=False)  #: The pickled value, when it is small.
    stopped: bool = False  #: It ended because it was asked to: neither success nor failure.


class StopHow(str, Enum):
    """How a task came to its end."""

    IDLE = "IDLE"
    """Nothing of it ran."""
    STOPPED = "STOPPED"
    """Its running calls ended in time: at a stopping point, by a cancelled `await`, or by themselves."""
    STILL_RUNNING = "STILL_RUNNING"
    """A call runs on; the process has to be killed."""
    NOT_HERE = "NOT_HERE"
    """The agent does not have this attempt: it never came, or another was hosted since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The task is over on this agent, or will be when the process is killed (not `reusable`)."""

    task: TaskId
    attempt: int
    saved: Snapshot | None
    lost_ms: int  #: Work since its last kept state.
    how: StopHow
    reusable: bool
    why: str = ""  #: Why the process cannot be used again. What went wrong with keeping the state is `saved.why`.
    ended: Ended | None = None  #: Its entry method was over by itself before it could be stopped.
    unkept: str = ""  #: What its preserver did wrong, so that only the default was kept.


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStatus:
    """How an agent stands, pushed every period and given on request (seed §6.2)."""

    agent: AgentId
    task: TaskId | None  #: None: waits for one.
    attempt: int
    at_ms: int  #: Milliseconds since the epoch.
    pid: int
    node: NodeName
    gpu_ids: tuple[str, ...] = ()
    cpu: float = 0.0  #: CPUs in use since the last report; 1.0 is one core.
    rss_bytes: int = 0
    running: int = 0  #: Calls that run now.
    calls: int = 0  #: Of this attempt, begun.
    failures: int = 0  #: Of this attempt, raised.
    queue_ms: int = 0  #: How long a call waited lately before it began; a call of the agent's own, made once a period, is the measure.
    progress: float | None = None
    checkpoints: int = 0
    stopping: bool = False
    blocked: bool = False
    ended: Ended | None = None  #: Kept until the next order, for a supervisor that was away.
