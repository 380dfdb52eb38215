"""Queues that change while they are read."""

from __future__ import annotations

from federation.dispatch import QueuedStage
from mesh.core.ids import MeshId, RunId, StageId, TenantPath
from mesh.core.resources import ResourceSet
from serve_apps.snapshot_cache.waits import without_moved

EAST, WEST = MeshId("east"), MeshId("west")


def queued(stage: str) -> QueuedStage:
    run = RunId(stage.partition(".")[0])
    slot = ResourceSet.of({"cpu": 1})
    return QueuedStage(stage=StageId(stage), run=run, tenant=TenantPath("lab"), slot=slot, width=1, priority=0)


class Ids:
    """Queues by the ids of their stages; counts the questions."""

    def __init__(self, **ids: tuple[str, ...]) -> None:
        self._ids = ids
        self.asked: list[str] = []

    def queued(self, mesh: MeshId) -> tuple[StageId, ...]:
        self.asked.append(mesh)
        return tuple(map(StageId, self._ids[mesh]))


def test_a_stage_that_moves_during_the_reads_is_listed_once():
    read = {EAST: (queued("night.1"), queued("other.1")), WEST: (queued("night.2"),)}
    queue = Ids(east=("other.1",), west=("night.2",))
    assert without_moved(read, queue) == {EAST: (queued("other.1"),), WEST: (queued("night.2"),)}
    assert queue.asked == [EAST]


def test_two_stages_of_one_run_are_both_listed():
    read = {EAST: (queued("night.1"),), WEST: (queued("night.2"),)}
    assert without_moved(read, Ids(east=("night.1",))) == read


def test_queues_without_a_common_run_are_read_once():
    read = {EAST: (queued("night.1"), queued("night.2")), WEST: (queued("day.1"),)}
    queue = Ids()
    assert without_moved(read, queue) == read
    assert queue.asked == []
