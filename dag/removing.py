"""Removes an ended run with all that the federation keeps of it, before its retention ends.

One commit decides the removal: it compares versions, so of a removal and a resumption one succeeds. Later steps delete things that
nobody can need again, and each may be repeated: a removal that was interrupted is completed by the next one. The row of the run goes
last, because it tells which meshes have values, and because its id is free afterwards.
"""

from __future__ import annotations

from collections.abc import Callable

from dag.errors import NotRemoved, UnknownRun
from dag.run.runs import NOTHING_CHANGED, RunRecord, RunStore
from dag.run.states import RUN_ENDS
from federation.dispatch import StageQueue
from mesh.core.ids import RunId


def remove_run(runs: RunStore, queue: StageQueue, run: RunId, clear: Callable[[RunId], None]) -> None:
    """Remove the run.

    Args:
        clear: Deletes all files of a run in the value storage.

    Raises:
        UnknownRun: There is no such run.
        NotRemoved: It still goes on, was resumed meanwhile, or its end is still being carried out.
        StoreUnavailable: The outcome is unknown; repeat the call.
    """
    record = runs.load(run)
    if record is None:
        raise UnknownRun(f"there is no run {run}")
    if record.state not in RUN_ENDS:
        raise NotRemoved(f"run {run} still goes on; cancel it, or wait for its end")
    if run not in runs.active() and _is_decided(runs, record):
        meshes = tuple(sorted({stage.mesh for stage in record.stages.values()}))
        if queue.forget(run, meshes, version=record.version):
            clear(run)
            if runs.remove(run):
                return
    raise NotRemoved(f"the end of run {run} is still being carried out; remove it again in a moment")


def _is_decided(runs: RunStore, record: RunRecord) -> bool:
    """Mark the run as one that is being removed; return False if somebody changed the run first."""
    if record.is_removing:
        return True
    record.is_removing = True
    return runs.commit(record, NOTHING_CHANGED)
