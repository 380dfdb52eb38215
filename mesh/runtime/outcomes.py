"""What Ray says when a task does not return, in this project's words.

A failure of the task itself has to be told from a value that was lost before the task could read it: that value is computed again.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from ray.exceptions import (
    NodeDiedError,
    ObjectLostError,
    OutOfDiskError,
    OutOfMemoryError,
    RayError,
    RayTaskError,
    RuntimeEnvSetupError,
    TaskCancelledError,
    TaskPlacementGroupRemoved,
    TaskUnschedulableError,
)

from mesh.messages import Failure
from mesh.reasons import Reason
from mesh.runtime.execution import TaskFailed, TaskFault
from mesh.values import Encoding, StoredValue


@dataclass(frozen=True, slots=True)
class OwnFailure:
    """The task itself went wrong."""

    reason: Reason
    type_name: str
    message: str
    fault: TaskFault | None = None  #: What the worker could tell; None when there is no worker to tell.


@dataclass(frozen=True, slots=True)
class Inherited:
    """Something that the task reads is lost."""

    message: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """The task was cancelled."""


Outcome = OwnFailure | Inherited | Stopped

#: Who is to blame when no worker could tell; the first match holds. All others: a lost worker.
_REASONS: tuple[tuple[type[BaseException], Reason], ...] = (
    (ObjectLostError, Reason.VALUE_LOST),
    (RuntimeEnvSetupError, Reason.CODE_UNAVAILABLE),
    (OutOfMemoryError, Reason.WORKER_LOST),
    (OutOfDiskError, Reason.WORKER_LOST),
    (NodeDiedError, Reason.WORKER_LOST),
    (TaskPlacementGroupRemoved, Reason.WORKER_LOST),
    (TaskUnschedulableError, Reason.WORKER_LOST),
)


def read(error: BaseException) -> Outcome:
    """The meaning of what Ray raised for the report of a task."""
    cause = getattr(error, "cause", None) if isinstance(error, RayTaskError) else None
    if isinstance(cause, TaskFailed):
        fault = cause.fault
        return OwnFailure(fault.reason, fault.type_name, fault.message, fault)
    if isinstance(error, TaskCancelledError):
        return Stopped()
    if isinstance(cause, RayError) and not isinstance(cause, RuntimeEnvSetupError):
        # An error that is no one's exception came with an argument: the worker passes it on inside a task error.
        return Inherited(_words(cause))
    if cause is not None:
        return OwnFailure(_reason_outside_the_call(error), _type_name(cause), _words(cause))
    if isinstance(error, ObjectLostError):
        return Inherited(_words(error))
    reason = next((reason for kind, reason in _REASONS if isinstance(error, kind)), Reason.WORKER_LOST)
    return OwnFailure(reason, _type_name(error), _words(error))


def failure_of(told: OwnFailure) -> tuple[Failure, dict[str, bytes] | None]:
    """The failure as it is reported, and the pickled exception as a blob; None: there is none."""
    fault = told.fault
    pickled, blobs = None, None
    if fault is not None and fault.pickled is not None:
        sha256 = hashlib.sha256(fault.pickled).hexdigest()
        pickled = StoredValue(sha256=sha256, size_bytes=len(fault.pickled), encoding=Encoding.PICKLE)
        blobs = {sha256: fault.pickled}
    traceback = fault.traceback if fault is not None else ""
    failure = Failure(
        reason=told.reason,
        type_name=told.type_name,
        message=told.message,
        traceback=traceback,
        pickled=pickled,
        bases=fault.bases if fault is not None else (),
    )
    return failure, blobs


def _reason_outside_the_call(error: BaseException) -> Reason:
    """The function returned or never began, and Ray's own part of the worker failed."""
    return Reason.CODE_UNAVAILABLE if "failed to import" in str(error) else Reason.RESULT_UNSERIALIZABLE


def _type_name(error: BaseException) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}"


def _words(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
