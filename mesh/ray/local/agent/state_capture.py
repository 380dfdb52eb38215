"""Saving a task's state when it is stopped, and restoring it.

The default state needs no user code: the order's arguments, progress, last checkpoint. A user's preserver and restorer add to
it. Each runs on its own thread with a timeout, because a preemptor must not wait for a function that hangs. When one fails,
the default state is used and the reason is recorded.
"""

from __future__ import annotations

import pickle
import time
from dataclasses import dataclass, replace
from typing import Any

from mesh.core.counting import counted
from mesh.core.ids import AgentId, TaskId
from mesh.core.reasons import Reason
from mesh.core.saved_state import (
    CancelContext,
    RestoreContext,
    SavedState,
    SnapshotLevel,
    StateHandlers,
    StateSnapshot,
)
from mesh.ray.local.agent.bounded_call import Hangs, Raised, call_bounded
from mesh.ray.local.agent.error_serialization import serialize_error
from mesh.ray.local.agent_messages import PickledArguments, RestoreHow
from mesh.ray.local.pickled_code import pickled_arguments, read_arguments
from mesh.ray.user_code.bounded_pickle import pickled_within
from mesh.ray.user_code.task_context import TaskContext

NO_ARGUMENTS = pickled_arguments()


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureContext:
    """The task whose state is saved or restored, and the inputs for it."""

    task: TaskId
    agent: AgentId
    attempt: int
    context: TaskContext
    arguments: PickledArguments
    handlers: StateHandlers
    bytes_max: int  #: Limit of the whole snapshot.


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedState:
    """Result of saving a state."""

    snapshot: StateSnapshot
    unkept: str = ""  #: Error of the preserver, so that only the default was saved.
    hangs: bool = False  #: True: the preserver still runs on its thread.


@dataclass(frozen=True, slots=True)
class Restored:
    """Result of restoring a state."""

    how: RestoreHow
    why: str = ""
    unrestored: str = ""  #: Why a preserved state was not restored; empty when it was, or there was none.
    is_spoiled: bool = False  #: True: a restorer failed on the object, so a fresh object is needed.


def keep_state(capture: CaptureContext, actor: Any, *, reason: Reason, timeout_s: float, is_running: bool) -> CapturedState:
    """Take a snapshot of the task and run the user's preserver.

    Args:
        capture: The task and its inputs.
        actor: The user's object.
        reason: Why the task stops.
        timeout_s: Time limit of the preserver.
        is_running: A method of the object still runs. The preserver then runs beside it, and its context says so.
    """
    snapshot = _default_snapshot(capture)
    preserver = capture.handlers.preserver
    if preserver is None:
        return CapturedState(snapshot=snapshot)

    def preserve() -> bytes | str:
        context = _cancel_context(capture, actor, reason, is_running=is_running, timeout_s=timeout_s)
        return _pickled(preserver(context), bytes_max=capture.bytes_max - snapshot.size_bytes)

    outcome = call_bounded(preserve, timeout_s=timeout_s, name="preserver")
    if isinstance(outcome, Hangs):
        unkept = f"the preserver did not return within {timeout_s:g} s"
    elif isinstance(outcome, Raised):
        unkept = f"the preserver raised {serialize_error(outcome.error).words}"
    elif isinstance(outcome.value, str):
        unkept = outcome.value
    else:
        return CapturedState(snapshot=replace(snapshot, level=SnapshotLevel.CUSTOM, saved_bytes=outcome.value))
    return CapturedState(snapshot=_with_reason(snapshot, unkept), unkept=unkept, hangs=isinstance(outcome, Hangs))


def restore_state(capture: CaptureContext, actor: Any, saved: StateSnapshot | None, *, timeout_s: float) -> Restored:
    """Restore the state of an earlier attempt; the context already holds progress and last checkpoint."""
    if saved is None:
        return Restored(RestoreHow.NOTHING)
    if saved.saved_bytes is None:
        return Restored(RestoreHow.DEFAULT, saved.why)
    restorer = capture.handlers.restorer
    if restorer is None:
        return _not_restored("there is a preserved state but no restorer")
    pickled = saved.saved_bytes

    def restore() -> None:
        context = _restore_context(capture, actor, timeout_s=timeout_s)
        restorer(context, pickle.loads(pickled))  # noqa: S301 - the tenant's own bytes, in the tenant's own process

    outcome = call_bounded(restore, timeout_s=timeout_s, name="restorer")
    if isinstance(outcome, Hangs):
        return _not_restored(f"the restorer did not return within {timeout_s:g} s", is_spoiled=True)
    if isinstance(outcome, Raised):
        return _not_restored(f"the restorer raised {serialize_error(outcome.error).words}", is_spoiled=True)
    return Restored(RestoreHow.RESTORER)


def _not_restored(why: str, *, is_spoiled: bool = False) -> Restored:
    return Restored(RestoreHow.DEFAULT, why, why, is_spoiled)


def _default_snapshot(capture: CaptureContext) -> StateSnapshot:
    facts = capture.context.facts
    snapshot = StateSnapshot(
        task=capture.task,
        attempt=capture.attempt,
        at_ms=time.time_ns() // 1_000_000,
        level=SnapshotLevel.METADATA if facts.refused and facts.checkpoint is None else SnapshotLevel.DEFAULT,
        progress=facts.progress,
        checkpoint=facts.checkpoint,
        checkpoint_bytes=facts.checkpoint_bytes,
        why=facts.refused,
    )
    arguments = capture.arguments
    if arguments.refs:
        return _with_reason(snapshot, "the arguments hold ObjectRefs and stay with the order")
    room = capture.bytes_max - snapshot.size_bytes
    if len(arguments.pickled) > room:
        take = f"the arguments take {counted(len(arguments.pickled), 'byte')}, and {room} are left"
        return _with_reason(snapshot, f"{take}, so they stay with the order")
    return replace(snapshot, arguments=arguments.pickled)


def _cancel_context(capture: CaptureContext, actor: Any, reason: Reason, *, is_running: bool, timeout_s: float) -> CancelContext:
    args, kwargs = read_arguments(capture.arguments, timeout_s=timeout_s)
    facts = capture.context.facts
    return CancelContext(
        task=capture.task,
        agent=capture.agent,
        attempt=capture.attempt,
        reason=reason,
        args=args,
        kwargs=kwargs,
        progress=facts.progress,
        checkpoint=facts.checkpoint,
        last_checkpoint=capture.context.last_checkpoint(),
        actor_state=state_of(actor),
        actor_ref=actor,
        is_running=is_running,
    )


def _restore_context(capture: CaptureContext, actor: Any, *, timeout_s: float) -> RestoreContext:
    args, kwargs = read_arguments(capture.arguments, timeout_s=timeout_s)
    facts = capture.context.facts
    return RestoreContext(
        task=capture.task,
        agent=capture.agent,
        attempt=capture.attempt,
        args=args,
        kwargs=kwargs,
        progress=facts.progress,
        checkpoint=facts.checkpoint,
        last_checkpoint=capture.context.last_checkpoint(),
        actor_ref=actor,
    )


def _pickled(saved: object, *, bytes_max: int) -> bytes | str:
    """Pickle the preserver's result; return a text when it cannot be used."""
    if not isinstance(saved, SavedState):
        return f"the preserver returned a {type(saved).__qualname__}, not a SavedState"
    pickled = pickled_within(saved, bytes_max, what="the preserver's SavedState")
    return f"the preserver's state is larger than the remaining {counted(bytes_max, 'byte')}" if pickled is None else pickled


def state_of(actor: Any) -> Any:
    """Return the object's attributes, or the result of its own `__getstate__`."""
    own = getattr(type(actor), "__getstate__", None)
    if own is not None and own is not getattr(object, "__getstate__", None):  # From Python 3.11 every class has one.
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


def _with_reason(snapshot: StateSnapshot, why: str) -> StateSnapshot:
    return replace(snapshot, why=f"{snapshot.why}; {why}" if snapshot.why else why)
