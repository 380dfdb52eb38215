"""Meaning of the errors that Ray raises when a task does not return.

A task is submitted when its inputs are there, so an error is its own, unless Ray loses an input before the task reads it. Then the input
is computed again.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from ray.exceptions import (
    CrossLanguageError,
    ObjectLostError,
    OutOfMemoryError,
    PlasmaObjectNotAvailable,
    RayChannelError,
    RayError,
    RaySystemError,
    RayTaskError,
    RuntimeEnvSetupError,
    TaskCancelledError,
    TaskPlacementGroupRemoved,
    UnserializableException,
    UserCodeException,
)

from mesh.core.ids import NodeId
from mesh.core.reasons import Reason
from mesh.core.values import Encoding, StoredValue
from mesh.ray.worker.execution import TaskCodeFailed, TaskFault, class_name
from mesh.stages.messages import Failure


@dataclass(frozen=True, slots=True)
class OwnFailure:
    """The task itself failed."""

    reason: Reason
    type_name: str
    message: str
    fault: TaskFault | None = None  #: The worker's own report; None when the worker could not report.


@dataclass(frozen=True, slots=True)
class InputGone:
    """Ray has lost an input of the task, or could not compute it again."""

    message: str
    lost_id: str = ""  #: Ray's id of the lost value; empty: it is unknown.


@dataclass(frozen=True, slots=True)
class TaskInterrupted:
    """The task was cancelled."""


@dataclass(frozen=True, slots=True)
class GroupLost:
    """The placement group was removed before the task began."""


Outcome = OwnFailure | InputGone | TaskInterrupted | GroupLost

#: Meaning of Ray's own errors, in place of a report or as the cause of a task's error; the first match holds. Any other is a lost worker.
_REASONS: tuple[tuple[type[BaseException], Reason], ...] = (
    (ObjectLostError, Reason.VALUE_LOST),
    (PlasmaObjectNotAvailable, Reason.VALUE_LOST),
    (OutOfMemoryError, Reason.OUT_OF_MEMORY),
    (RuntimeEnvSetupError, Reason.CODE_UNAVAILABLE),
    (RayChannelError, Reason.WORKER_LOST),
    (RaySystemError, Reason.CODE_UNAVAILABLE),  # Ray raises it when it cannot unpickle an argument.
    (CrossLanguageError, Reason.USER_ERROR),
    (UnserializableException, Reason.USER_ERROR),
    (UserCodeException, Reason.USER_ERROR),
)


def read(error: BaseException, node: NodeId) -> Outcome:
    """Return the meaning of the error that Ray raised for the report of `node`'s task."""
    cause = getattr(error, "cause", None) if isinstance(error, RayTaskError) else None
    if isinstance(cause, TaskCodeFailed):
        fault = cause.fault
        if fault.node != node:
            return InputGone(str(cause))
        return OwnFailure(fault.reason, fault.type_name, fault.message, fault)
    if isinstance(error, TaskCancelledError):
        return TaskInterrupted()
    if isinstance(error, TaskPlacementGroupRemoved):
        return GroupLost()
    if cause is not None and not isinstance(cause, RayError):
        return OwnFailure(_reason_outside_the_call(error), class_name(type(cause)), _words(cause))
    met = error if cause is None else cause
    reason = next((reason for kind, reason in _REASONS if isinstance(met, kind)), Reason.WORKER_LOST)
    lost_id = getattr(met, "object_ref_hex", None) or ""
    return InputGone(_words(met), lost_id) if reason is Reason.VALUE_LOST else OwnFailure(reason, class_name(type(met)), _words(met))


def failure_of(own_failure: OwnFailure) -> tuple[Failure, dict[str, bytes] | None]:
    """Return the failure as it is reported, and the pickled exception as a blob; None: there is none."""
    fault = own_failure.fault
    pickled, blobs = None, None
    if fault is not None and fault.pickled is not None:
        sha256 = hashlib.sha256(fault.pickled).hexdigest()
        pickled = StoredValue(sha256=sha256, size_bytes=len(fault.pickled), encoding=Encoding.PICKLE)
        blobs = {sha256: fault.pickled}
    traceback = fault.traceback if fault is not None else ""
    failure = Failure(
        reason=own_failure.reason,
        type_name=own_failure.type_name,
        message=own_failure.message,
        traceback=traceback,
        pickled=pickled,
        bases=fault.bases if fault is not None else (),
        elements=fault.elements if fault is not None else (),
        of=fault.of if fault is not None else None,
    )
    return failure, blobs


def _reason_outside_the_call(error: BaseException) -> Reason:
    """Return the reason of a failure of Ray's own part of the worker, before the function began or after it returned."""
    return Reason.CODE_UNAVAILABLE if "failed to import" in str(error) else Reason.RESULT_UNSERIALIZABLE


def _words(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
