"""Keeping a task's state when it gives way, and bringing it back (seed §6.3.1).

The default needs nobody: arguments as they came with the order, progress, last checkpoint. A user's preserver and
restorer come on top of it, each on a thread of its own, because whoever waits for the room must not wait for a function
that hangs. Whatever they do wrong, the default holds and the reason goes with it.
"""

from __future__ import annotations

import pickle
import time
from dataclasses import dataclass, replace
from typing import Any

from mesh.counting import counted
from mesh.ids import AgentId, TaskId
from mesh.reasons import Reason
from mesh.runtime.supervision.agent_context import TaskContext
from mesh.runtime.supervision.agent_orders import PickledArguments, RestoreHow
from mesh.runtime.supervision.bounded_call import Hangs, Raised, call_bounded
from mesh.runtime.supervision.pickled_code import pickled_arguments, pickled_within, read_arguments
from mesh.runtime.supervision.told_errors import tell_error
from mesh.saved_state import (
    CancelContext,
    RestoreContext,
    SavedState,
    Snapshot,
    SnapshotLevel,
    StateHandlers,
)

NO_ARGUMENTS = pickled_arguments()


@dataclass(frozen=True, slots=True, kw_only=True)
class Keepsake:
    """Whose state, and what is at hand for it."""

    task: TaskId
    agent: AgentId
    attempt: int
    context: TaskContext
    arguments: PickledArguments
    handlers: StateHandlers
    bytes_max: int  #: Of the whole snapshot.


@dataclass(frozen=True, slots=True, kw_only=True)
class StateKept:
    """How the state was kept."""

    snapshot: Snapshot
    unkept: str = ""  #: What the preserver did wrong, so that only the default was kept.
    hangs: bool = False  #: The preserver, on its thread.


@dataclass(frozen=True, slots=True)
class Restored:
    """How the state came back."""

    how: RestoreHow
    why: str = ""
    unrestored: str = ""  #: Why a preserved state did not come back; empty when it did, or there was none.
    is_spoiled: bool = False  #: A restorer has failed on the object; only a fresh one is to be trusted.


def keep_state(keepsake: Keepsake, actor: Any, *, reason: Reason, timeout_s: float, is_running: bool) -> StateKept:
    """The snapshot of the task as it stands, and what the user's preserver did wrong.

    Args:
        keepsake: Whose state.
        actor: The user's object.
        reason: Why the task stops.
        timeout_s: How long the preserver may take.
        is_running: A method of the object runs still. The preserver runs beside it then, and is told.
    """
    snapshot = _default_snapshot(keepsake)
    preserver = keepsake.handlers.preserver
    if preserver is None:
        return StateKept(snapshot=snapshot)

    def preserve() -> bytes | str:
        context = _cancel_context(keepsake, actor, reason, is_running=is_running, timeout_s=timeout_s)
        return _pickled(preserver(context), bytes_max=keepsake.bytes_max - snapshot.size_bytes)

    outcome = call_bounded(preserve, timeout_s=timeout_s, name="preserver")
    if isinstance(outcome, Hangs):
        unkept = f"the preserver did not return within {timeout_s:g} s"
    elif isinstance(outcome, Raised):
        unkept = f"the preserver raised {tell_error(outcome.error).words}"
    elif isinstance(outcome.value, str):
        unkept = outcome.value
    else:
        return StateKept(snapshot=replace(snapshot, level=SnapshotLevel.CUSTOM, saved_bytes=outcome.value))
    return StateKept(snapshot=_told(snapshot, unkept), unkept=unkept, hangs=isinstance(outcome, Hangs))


def restore_state(keepsake: Keepsake, actor: Any, saved: Snapshot | None, *, timeout_s: float) -> Restored:
    """Give the object what an earlier attempt has kept; progress and last checkpoint are in the context already."""
    if saved is None:
        return Restored(RestoreHow.NOTHING)
    if saved.saved_bytes is None:
        return Restored(RestoreHow.DEFAULT, saved.why)
    restorer = keepsake.handlers.restorer
    if restorer is None:
        return _not_restored("there is a preserved state and no restorer")
    pickled = saved.saved_bytes

    def restore() -> None:
        context = _restore_context(keepsake, actor, timeout_s=timeout_s)
        restorer(context, pickle.loads(pickled))  # noqa: S301 - the tenant's own bytes, in the tenant's own process

    outcome = call_bounded(restore, timeout_s=timeout_s, name="restorer")
    if isinstance(outcome, Hangs):
        return _not_restored(f"the restorer did not return within {timeout_s:g} s", is_spoiled=True)
    if isinstance(outcome, Raised):
        return _not_restored(f"the restorer raised {tell_error(outcome.error).words}", is_spoiled=True)
    return Restored(RestoreHow.RESTORER)


def _not_restored(why: str, *, is_spoiled: bool = False) -> Restored:
    return Restored(RestoreHow.DEFAULT, why, why, is_spoiled)


def _default_snapshot(keepsake: Keepsake) -> Snapshot:
    facts = keepsake.context.facts
    snapshot = Snapshot(
        task=keepsake.task,
        attempt=keepsake.attempt,
        at_ms=time.time_ns() // 1_000_000,
        level=SnapshotLevel.METADATA if facts.refused and facts.checkpoint is None else SnapshotLevel.DEFAULT,
        progress=facts.progress,
        checkpoint=facts.checkpoint,
        checkpoint_bytes=facts.checkpoint_bytes,
        why=facts.refused,
    )
    arguments = keepsake.arguments
    if arguments.refs:
        return _told(snapshot, "the arguments hold ObjectRefs and stay with the order")
    room = keepsake.bytes_max - snapshot.size_bytes
    if len(arguments.pickled) > room:
        take = f"the arguments take {counted(len(arguments.pickled), 'byte')}, of {room} that are left"
        return _told(snapshot, f"{take}, and stay with the order")
    return replace(snapshot, arguments=arguments.pickled)


def _cancel_context(keepsake: Keepsake, actor: Any, reason: Reason, *, is_running: bool, timeout_s: float) -> CancelContext:
    args, kwargs = read_arguments(keepsake.arguments, timeout_s=timeout_s)
    facts = keepsake.context.facts
    return CancelContext(
        task=keepsake.task,
        agent=keepsake.agent,
        attempt=keepsake.attempt,
        reason=reason,
        args=args,
        kwargs=kwargs,
        progress=facts.progress,
        checkpoint=facts.checkpoint,
        last_checkpoint=keepsake.context.last_checkpoint(),
        actor_state=state_of(actor),
        actor_ref=actor,
        is_running=is_running,
    )


def _restore_context(keepsake: Keepsake, actor: Any, *, timeout_s: float) -> RestoreContext:
    args, kwargs = read_arguments(keepsake.arguments, timeout_s=timeout_s)
    facts = keepsake.context.facts
    return RestoreContext(
        task=keepsake.task,
        agent=keepsake.agent,
        attempt=keepsake.attempt,
        args=args,
        kwargs=kwargs,
        progress=facts.progress,
        checkpoint=facts.checkpoint,
        last_checkpoint=keepsake.context.last_checkpoint(),
        actor_ref=actor,
    )


def _pickled(saved: object, *, bytes_max: int) -> bytes | str:
    """What a preserver returned, as bytes; words when it is of no use."""
    if not isinstance(saved, SavedState):
        return f"the preserver returned a {type(saved).__qualname__}, not a SavedState"
    pickled = pickled_within(saved, bytes_max, what="the preserver's SavedState")
    return f"the preserver's state is larger than the {counted(bytes_max, 'byte')} that are left for it" if pickled is None else pickled


def state_of(actor: Any) -> Any:
    """The object's attributes; what its own `__getstate__` gives, if its class has one."""
    own = getattr(type(actor), "__getstate__", None)
    if own is not None and own is not getattr(object, "__getstate__", None):  # Python 3.11 gives every class one.
        return own(actor)
    slots = {
        name
        for kind in type(actor).__mro__
        for name in _names(getattr(kind, "__slots__", ()))
        if name not in {"__dict__", "__weakref__"} and hasattr(actor, name)
    }
    return {**{name: getattr(actor, name) for name in slots}, **getattr(actor, "__dict__", {})}


def _names(slots: Any) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _told(snapshot: Snapshot, why: str) -> Snapshot:
    return replace(snapshot, why=f"{snapshot.why}; {why}" if snapshot.why else why)
