"""What is kept of a task when it gives way, and how a user takes part in that (seed §6.3.1).

Two levels. The default keeps what the mesh knows by itself: the arguments, the progress that was reported, the last
checkpoint. A user's *preserver* keeps the object's own state on top of it, and the *restorer* puts that back into a new
object. Whatever theirs does wrong (raises, hangs, returns something else, grows too large), the default holds, and the
reason is told beside it.

Bytes here are a tenant's pickles: only processes that run that tenant's code read them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from mesh.errors import MeshError
from mesh.ids import AgentId, TaskId
from mesh.reasons import Reason

C = TypeVar("C")

#: Where a class keeps the handlers that it was decorated with.
HANDLERS_ATTRIBUTE = "__schedulemesh_state_handlers__"
_NO_NOTES: Mapping[str, str] = MappingProxyType({})


class StateHandlerError(MeshError, TypeError):
    """A preserver or a restorer is no function."""


class SnapshotLevel(str, Enum):
    """How much of a task a snapshot holds."""

    METADATA = "METADATA"
    """Progress and the checkpoint's number only: the rest was too large, or could not be pickled."""
    DEFAULT = "DEFAULT"
    """Arguments, progress, last checkpoint."""
    CUSTOM = "CUSTOM"
    """What the user's preserver returned, and the default beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedState:
    """What a preserver returns and its restorer gets."""

    payload: Any  #: Anything that can be pickled; bytes are best.
    notes: Mapping[str, str] = field(default_factory=dict)  #: For people, and for the restorer: a format, a path.


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What is known of a checkpoint without reading it."""

    number: int  #: From 1, over all attempts of the task.
    at_ms: int  #: Milliseconds since the epoch, on the agent's clock.
    size_bytes: int
    progress: float | None = None  #: As reported when it was made.


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSnapshot:
    """What is kept of one attempt, for the next one."""

    task: TaskId
    attempt: int
    at_ms: int  #: Milliseconds since the epoch, on the agent's clock.
    level: SnapshotLevel
    progress: float | None = None  #: 0 to 1, as the task reported it.
    checkpoint: Checkpoint | None = None
    checkpoint_bytes: bytes | None = field(default=None, repr=False)  #: The pickled checkpoint.
    arguments: bytes | None = field(default=None, repr=False)  #: The pickled arguments, as they came with the order.
    saved_bytes: bytes | None = field(default=None, repr=False)  #: The preserver's pickled `SavedState`.
    why: str = ""  #: Why it is not of a higher level; empty when nothing went wrong.

    @property
    def size_bytes(self) -> int:
        """Of the pickles in it."""
        return sum(len(part) for part in (self.checkpoint_bytes, self.arguments, self.saved_bytes) if part is not None)

    def without_bytes(self, why: str) -> StateSnapshot:
        """What is left when there is no room for the pickles."""
        reasons = f"{self.why}; {why}" if self.why else why
        return replace(
            self, level=SnapshotLevel.METADATA, checkpoint=None, checkpoint_bytes=None, arguments=None, saved_bytes=None, why=reasons
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelContext:
    """What a preserver is given."""

    task: TaskId
    agent: AgentId
    attempt: int
    reason: Reason  #: PREEMPTED, CANCELLED_BY_USER, …
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    progress: float | None
    checkpoint: Checkpoint | None  #: Of the last checkpoint.
    last_checkpoint: Any  #: Its value; None when there is none.
    actor_state: Any  #: The object's attributes (its own `__getstate__`, if its class has one).
    actor_ref: Any  #: The object itself.
    is_running: bool = False  #: A method of the object runs still, beside the preserver: it did not stop in time.


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreContext:
    """What a restorer is given."""

    task: TaskId
    agent: AgentId
    attempt: int
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    progress: float | None
    checkpoint: Checkpoint | None
    last_checkpoint: Any
    actor_ref: Any  #: The new object, made with the same arguments.


Preserver = Callable[[CancelContext], SavedState]
Restorer = Callable[[RestoreContext, SavedState], None]


@dataclass(frozen=True, slots=True)
class StateHandlers:
    """A preserver and its restorer. Both have to be idempotent: after a crash they may be called again.

    As a decorator it leaves them on the class, below or above `@ray.remote`.
    """

    preserver: Preserver | None = None
    restorer: Restorer | None = None

    def __call__(self, cls: C) -> C:
        """Put the handlers on a class."""
        setattr(plain_class(cls), HANDLERS_ATTRIBUTE, self)
        return cls


def register_state_handlers(*, preserver: Preserver | None = None, restorer: Restorer | None = None) -> StateHandlers:
    """Name the functions that keep and bring back a task's state.

    The answer is a value for `submit_task`, and a decorator for the class of the task::

        @mesh.register_state_handlers(
            preserver=lambda ctx: SavedState(payload=ctx.actor_state),
            restorer=lambda ctx, saved: vars(ctx.actor_ref).update(saved.payload),
        )
        class Trainer: ...

    Raises:
        StateHandlerError: One of them cannot be called.
    """
    for name, handler in (("preserver", preserver), ("restorer", restorer)):
        if handler is not None and not callable(handler):
            raise StateHandlerError(f"{name} is {handler!r}, which cannot be called; give a function")
    return StateHandlers(preserver, restorer)


def handlers_of(cls: object) -> StateHandlers:
    """What the class was decorated with; nothing for one that was not."""
    found = getattr(plain_class(cls), HANDLERS_ATTRIBUTE, None)
    return found if isinstance(found, StateHandlers) else StateHandlers()


def plain_class(cls: Any) -> Any:
    """The class that a user wrote: a `@ray.remote` class keeps it inside."""
    metadata = getattr(cls, "__ray_metadata__", None)
    return cls if metadata is None else metadata.modified_class


@dataclass(frozen=True, slots=True, kw_only=True)
class PutResult:
    """How a store took a snapshot."""

    level: SnapshotLevel  #: Of what is kept now.
    dropped: tuple[TaskId, ...] = ()  #: Tasks whose snapshots had to go for it.
    why: str = ""  #: Why not all of it was kept.


class SnapshotStore(Protocol):
    """Where snapshots are kept centrally, from a task's first kept state until its end and the retention after it.

    A store is bounded: beyond its bytes the oldest snapshots go first, those of ended tasks before all others.
    """

    def put(self, snapshot: StateSnapshot) -> PutResult:
        """Keep it in place of the task's earlier one. An older attempt's, or an older one of the same attempt, changes nothing."""
        ...

    def get(self, task: TaskId) -> StateSnapshot | None:
        """The last one of the task; None when there is none, or its room was needed."""
        ...

    def end(self, task: TaskId, at_ms: int) -> None:
        """The task is over; its snapshot is dropped when the retention has passed."""
        ...

    def drop(self, task: TaskId) -> None:
        """Forget it now. Harmless when there is none."""
        ...

    def sweep(self, now_ms: int) -> tuple[TaskId, ...]:
        """Drop what has been over for longer than the retention; the tasks whose snapshots went."""
        ...

    def tasks(self) -> tuple[TaskId, ...]:
        """The tasks with a snapshot, oldest snapshot first."""
        ...

    @property
    def size_bytes(self) -> int:
        """What all of it takes."""
        ...
