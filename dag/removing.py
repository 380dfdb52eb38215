"""Removes an ended run with all that the federation keeps of it, before its retention ends.

Values that meshes keep for a resumption are forgotten first: afterwards nobody knows which meshes have some.
"""

from __future__ import annotations

from collections.abc import Callable

from dag.errors import NotRemoved, UnknownRun
from dag.run.runs import RunStore
from dag.run.states import RUN_ENDS
from federation.dispatch import StageQueue
from mesh.core.ids import RunId


def remove_run(runs: RunStore, queue: StageQueue, run: RunId, clear: Callable[[RunId], None]) -> None:
    """Remove the run.

    Args:
        clear: Deletes all files of a run in the value storage.

    Raises:
        UnknownRun: There is no such run.
        NotRemoved: It still goes on, or its end is still being carried out.
        StoreUnavailable: The outcome is unknown; repeat the call.
    """
    record = runs.load(run)
    if record is None:
        raise UnknownRun(f"there is no run {run}")
    if record.state not in RUN_ENDS:
        raise NotRemoved(f"run {run} still goes on; cancel it, or wait for its end")
    if run not in runs.active():
        meshes = tuple(sorted({stage.mesh for stage in record.stages.values()}))
        if queue.forget(run, meshes, version=record.version):
            clear(run)
            if runs.remove(run):
                return
    raise NotRemoved(f"the end of run {run} is still being carried out; remove it again in a moment")
