"""Outcomes of tasks, from Ray's errors."""

from __future__ import annotations

import pytest
import ray
from ray.exceptions import (
    NodeDiedError,
    ObjectLostError,
    ObjectStoreFullError,
    OutOfMemoryError,
    RaySystemError,
    RayTaskError,
    RuntimeEnvSetupError,
    TaskCancelledError,
    WorkerCrashedError,
)

from mesh.core.reasons import Reason
from mesh.ray.stage_runner.outcomes import GroupLost, InputGone, OwnFailure, TaskInterrupted, read
from mesh.ray.worker.execution import TaskCodeFailed, TaskFault, TaskReport

FAULT = TaskFault("n", Reason.CODE_UNAVAILABLE, "builtins.ImportError", "no module", "", None, TaskReport(1, 2, "host:1"))


def inside_a_task(cause):
    """Wrap an exception as Ray does when it leaves a worker's function."""
    error = RayTaskError("f", f"Traceback: {cause}", cause, proctitle="p", pid=1, ip="127.0.0.1")
    return error.as_instanceof_cause()


def lost():
    return ObjectLostError("aa", None, "")


LOST, CODE, USERS, VALUE = Reason.WORKER_LOST, Reason.CODE_UNAVAILABLE, Reason.USER_ERROR, Reason.VALUE_LOST
#: Ray's exceptions, each with its meaning for a task. No task alone meets those of the last two groups.
MEANINGS = {
    "WorkerCrashedError NodeDiedError LocalRayletDiedError": LOST,
    "OutOfMemoryError": Reason.OUT_OF_MEMORY,
    "OutOfDiskError ObjectStoreFullError TaskUnschedulableError RpcError": LOST,
    "RuntimeEnvSetupError RaySystemError": CODE,
    "RayTaskError": LOST,  # Without a cause: a task's own exception comes as the cause.
    "UserCodeException CrossLanguageError UnserializableException": USERS,
    "ObjectLostError ObjectFetchTimedOutError ObjectFreedError ObjectReconstructionFailedError OwnerDiedError": VALUE,
    "ReferenceCountingAssertionError PlasmaObjectNotAvailable": VALUE,
    "TaskCancelledError": TaskInterrupted,
    "TaskPlacementGroupRemoved": GroupLost,
    "RayError RayActorError ActorDiedError ActorUnavailableError ActorUnschedulableError ActorPlacementGroupRemoved AsyncioActorExit "
    "ActorAlreadyExistsError ActorHandleNotFoundError PendingCallsLimitExceeded AuthenticationError GetTimeoutError RayChannelError "
    "RayChannelTimeoutError OufOfBandObjectRefSerializationException ObjectRefStreamEndOfStreamError": LOST,
    "RayCgraphCapacityExceeded RayDirectTransportError StreamingGeneratorReplayInconsistentError": CODE,
}


def errors_of_ray():
    """Return one error of each class, made without arguments: `read` uses its class and text only."""
    kinds = [kind for kind in vars(ray.exceptions).values() if isinstance(kind, type) and issubclass(kind, ray.exceptions.RayError)]
    bare = {"__init__": lambda _: None, "__str__": lambda _: "it broke", "cause": None}
    return {kind.__name__: type(kind.__name__, (kind,), bare)() for kind in kinds}


def test_each_exception_of_ray_has_a_meaning():
    meanings = {name: meaning for names, meaning in MEANINGS.items() for name in names.split()}
    found = {}
    for name, error in errors_of_ray().items():
        outcome = read(error, "n")
        found[name] = outcome.reason if isinstance(outcome, OwnFailure) else VALUE if isinstance(outcome, InputGone) else type(outcome)
    assert found == meanings


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        pytest.param(inside_a_task(TaskCodeFailed(FAULT)), Reason.CODE_UNAVAILABLE, id="what the worker could tell"),
        pytest.param(WorkerCrashedError(), Reason.WORKER_LOST, id="a crashed worker"),
        pytest.param(OutOfMemoryError("too much"), Reason.OUT_OF_MEMORY, id="out of memory"),
        pytest.param(NodeDiedError("gone"), Reason.WORKER_LOST, id="a dead node"),
        pytest.param(RuntimeEnvSetupError("no pip"), Reason.CODE_UNAVAILABLE, id="an environment that could not be made"),
        pytest.param(inside_a_task(RaySystemError("no module")), Reason.CODE_UNAVAILABLE, id="an argument that cannot be unpickled"),
        pytest.param(inside_a_task(ObjectStoreFullError("full")), Reason.WORKER_LOST, id="no room for the result"),
        pytest.param(inside_a_task(TypeError("cannot pickle")), Reason.RESULT_UNSERIALIZABLE, id="Ray could not write the result"),
        pytest.param(inside_a_task(RuntimeError("failed to import")), Reason.CODE_UNAVAILABLE, id="Ray could not read the function"),
    ],
)
def test_a_tasks_own_failure_has_a_reason(error, reason):
    outcome = read(error, "n")
    assert isinstance(outcome, OwnFailure)
    assert outcome.reason is reason
    assert outcome.message


@pytest.mark.parametrize("error", [inside_a_task(lost()), lost()], ids=["seen by the worker", "seen by the owner"])
def test_an_argument_that_was_lost_is_not_the_tasks_own_failure(error):
    assert isinstance(read(error, "n"), InputGone)


def test_the_failure_of_another_task_is_not_the_tasks_own():
    outcome = read(inside_a_task(TaskCodeFailed(FAULT)), "another")
    assert isinstance(outcome, InputGone)


def test_the_workers_report_comes_along():
    assert read(inside_a_task(TaskCodeFailed(FAULT)), "n").fault == FAULT


@pytest.mark.parametrize("error", [TaskCancelledError(), inside_a_task(TaskCancelledError())], ids=["before it ran", "while it ran"])
def test_a_cancelled_task_was_stopped(error):
    assert read(error, "n") == TaskInterrupted()
