"""State that is kept of a preempted task, and the handlers by which a user takes part in that.

Two levels. The default keeps what the mesh knows by itself: the arguments, the reported progress, the last checkpoint. A
user's *preserver* adds the object's own state, and the *restorer* puts that state back into a new object. If a handler fails
(raises, hangs, returns another type, returns too much), the default applies, and the snapshot holds the reason.

Bytes here are a tenant's pickles: only processes that run that tenant's code read them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, TypeVar

from mesh.core.ids import AgentId, TaskId
from mesh.core.reasons import Reason
from mesh.errors import MeshError

C = TypeVar("C")

#: Class attribute that holds the handlers of a decorated class.
HANDLERS_ATTRIBUTE = "__schedulemesh_state_handlers__"


class StateHandlerError(MeshError, TypeError):
    """A preserver or a restorer cannot be called."""


class SnapshotLevel(str, Enum):
    """Part of a task that a snapshot holds."""

    METADATA = "METADATA"
    """Only progress and the checkpoint's number: the rest was too large, or could not be pickled."""
    DEFAULT = "DEFAULT"
    """Arguments, progress, last checkpoint."""
    CUSTOM = "CUSTOM"
    """The default, and what the user's preserver returned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedState:
    """Return value of a preserver, passed to its restorer."""

    payload: Any  #: Any value that can be pickled; bytes are best.
    notes: Mapping[str, str] = field(default_factory=dict)  #: For people, and for the restorer: a format, a path.


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Metadata of a checkpoint."""

    number: int  #: From 1, over all attempts of the task.
    at_ms: int  #: Milliseconds since the epoch, on the agent's clock.
    size_bytes: int
    progress: float | None = None  #: As reported with the checkpoint.


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSnapshot:
    """State kept of one attempt, for the next one."""

    task: TaskId
    attempt: int
    at_ms: int  #: Milliseconds since the epoch, on the agent's clock.
    level: SnapshotLevel
    progress: float | None = None  #: 0 to 1, as the task reported it.
    checkpoint: Checkpoint | None = None
    checkpoint_bytes: bytes | None = field(default=None, repr=False)  #: The pickled checkpoint.
    arguments: bytes | None = field(default=None, repr=False)  #: The pickled arguments, as submitted.
    saved_bytes: bytes | None = field(default=None, repr=False)  #: The preserver's pickled `SavedState`.
    why: str = ""  #: Why the level is not higher; empty when nothing went wrong.

    @property
    def size_bytes(self) -> int:
        """Total size of its pickles."""
        return sum(len(part) for part in (self.checkpoint_bytes, self.arguments, self.saved_bytes) if part is not None)

    def without_bytes(self, why: str) -> StateSnapshot:
        """Return the snapshot without its pickles, for a store that has no room for them."""
        reasons = f"{self.why}; {why}" if self.why else why
        return replace(
            self, level=SnapshotLevel.METADATA, checkpoint=None, checkpoint_bytes=None, arguments=None, saved_bytes=None, why=reasons
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelContext:
    """Argument of a preserver."""

    task: TaskId
    agent: AgentId
    attempt: int
    reason: Reason  #: PREEMPTED, CANCELLED_BY_USER, …
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    progress: float | None
    checkpoint: Checkpoint | None  #: Metadata of the last checkpoint.
    last_checkpoint: Any  #: Value of the last checkpoint; None when there is none.
    actor_state: Any  #: The object's attributes (its own `__getstate__`, if its class has one).
    actor_ref: Any  #: The object itself.
    is_running: bool = False  #: A method of the object still runs beside the preserver: it did not stop in time.


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreContext:
    """Argument of a restorer."""

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
    """A preserver and its restorer. Both must be idempotent: after a crash they may be called again.

    Used as a decorator, it stores them on the class, below or above `@ray.remote`.
    """

    preserver: Preserver | None = None
    restorer: Restorer | None = None

    def __call__(self, cls: C) -> C:
        """Store the handlers on a class."""
        setattr(plain_class(cls), HANDLERS_ATTRIBUTE, self)
        return cls


def register_state_handlers(*, preserver: Preserver | None = None, restorer: Restorer | None = None) -> StateHandlers:
    """Name the functions that preserve and restore a task's state.

    The result is an argument for `submit_task`, and a decorator for the class of the task::

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
    """Return the handlers of a decorated class; empty ones for any other class."""
    found = getattr(plain_class(cls), HANDLERS_ATTRIBUTE, None)
    return found if isinstance(found, StateHandlers) else StateHandlers()


def plain_class(cls: Any) -> Any:
    """Return the class that a user wrote: a `@ray.remote` class wraps it."""
    metadata = getattr(cls, "__ray_metadata__", None)
    return cls if metadata is None else metadata.modified_class


@dataclass(frozen=True, slots=True, kw_only=True)
class PutResult:
    """Result of storing a snapshot."""

    level: SnapshotLevel  #: Level of the stored snapshot.
    dropped: tuple[TaskId, ...] = ()  #: Tasks whose snapshots were dropped to make room.
    why: str = ""  #: Why only a part was stored.
