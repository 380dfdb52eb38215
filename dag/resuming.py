"""Resumes a run that has failed or was cancelled: the same run goes on, and runs only what has not succeeded.

The caller commits the resumption itself, whatever the coordinator does: commits compare versions. The coordinator finds the run in its
inbox.

Source: ADR 0061.
"""

from __future__ import annotations

from collections.abc import Callable

from dag.coordinator import machine_of
from dag.errors import NotResumed, UnknownRun
from dag.run.events import ResumeRequested
from dag.run.runs import RunRecord, RunStore
from dag.run.states import RUN_ENDS, RunState
from dag.spec.plans import blobs_named_in
from federation.blobs import BlobStore
from mesh.core.clock import Clock
from mesh.core.counting import counted
from mesh.core.ids import RunId

#: Tries while the end of the run is still being carried out, and the pause between two of them; seconds.
TRIES_MAX = 60
PAUSE_S = 0.05


def resume(
    runs: RunStore,
    blobs: BlobStore,
    run: RunId,
    clock: Clock,
    pause: Callable[[float], None],
    *,
    reason: str = "",
) -> None:
    """Resume the run. Safe to repeat: a run that was resumed and goes on stays as it is.

    Args:
        pause: Sleeps for so many seconds.
        reason: Shown in the events of the run.

    Raises:
        UnknownRun: There is no such run.
        NotResumed: It has succeeded or still goes on, is being removed, its pickled code is gone, or its end is still being
            carried out.
        BacklogFull, StoreFull: Too much work is open, as for a submission.
        StoreUnavailable: The outcome is unknown; repeat the call.
    """
    for _ in range(TRIES_MAX):
        record = runs.load(run)
        if record is None:
            raise UnknownRun(f"there is no run {run}")
        if record.state not in RUN_ENDS and record.resumed_ms:
            return
        _check(record)
        machine = machine_of(record)
        code = blobs_named_in(machine.plans)
        lost = len(code) - len(blobs.get(run, tuple(sorted(code))))
        if lost:
            raise NotResumed(f"{counted(lost, 'blob')} of pickled code or arguments of run {run} went with its end; submit the graph anew")
        change = machine.handle((ResumeRequested(detail=reason or "resumed by a user"),), clock.wall_ms())
        record.outbox = change.decisions
        if runs.commit(record, change):
            return
        pause(PAUSE_S)
    raise NotResumed(f"the end of run {run} is still being carried out; resume it again in a moment")


def _check(record: RunRecord) -> None:
    if record.is_removing:
        raise NotResumed(f"run {record.run} is being removed; submit the graph anew")
    if record.state is RunState.SUCCEEDED:
        raise NotResumed(f"run {record.run} has succeeded: nothing is left to resume")
    if record.state not in RUN_ENDS:
        raise NotResumed(f"run {record.run} still goes on; wait for its end, or cancel it")
