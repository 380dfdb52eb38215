"""Control loop: a failed batch has no effect, and a fenced plugin no part in a decision."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace

import pytest

from mesh.core.pools import PoolSpec
from mesh.core.resources import ResourceSet
from mesh.core.task_spec import TaskRequest
from mesh.errors import MeshError, RuntimeAdapterError
from mesh.jobs.events import JobSubmitted
from mesh.jobs.spec import JobSpec, ReplicaSpec
from mesh.plugins import PluginFenced
from mesh.ray.local.store.archive import Archive
from mesh.ray.local.store.journal_file import JournalFile
from mesh.ray.local.supervisor.control_loop import ControlLoop, MeshClock
from mesh.ray.plugins.plugin_host import PluginHost
from mesh.tasks.decisions import StartTask
from mesh.tasks.events import Event, NodeJoined, PoolConfigured, TaskSubmitted
from mesh.tasks.settings import SchedulerSettings

ONE = ResourceSet.of({"cpu": 1})


class LikesTheSecondNode:
    """Plugin that scores so many times, and then raises."""

    patience = 2

    def __init__(self):
        self.asked = 0

    def score(self, _demand, view):
        self.asked += 1
        if self.asked > self.patience:
            raise OSError("the model server is gone")
        return [-1.0] * (len(view.total) - 1) + [1.0]


class Urgent:
    """Plugin that makes the label `now` urgent, and returns nonsense for any other label."""

    def priority(self, facts):
        return 9.0 if facts.label == "now" else None


@pytest.fixture(autouse=True)
def _no_budget_is_measured(monkeypatch):
    """Exempt plugins from the time budget: a busy machine must not fence them."""
    monkeypatch.setattr(PluginHost, "_now_ms", lambda _: 0.0)


def plugins_of(**sources):
    return PluginHost({name: f"{__name__}:{kind.__name__}" for name, kind in sources.items()})


def loop_on(folder, lines_max=10_000, plugins=None, **sources):
    plugins = plugins or plugins_of(**sources)
    archive = Archive(folder, lines_max=lines_max, plugins=plugins)
    return ControlLoop(archive, lambda: plugins.scheduler(SchedulerSettings(), 0), MeshClock(), plugins), archive


def two_nodes(loop, policy="hybrid"):
    for name in ("a", "b"):
        loop.send(NodeJoined(at_ms=1, node=name, total=ONE.times(8), labels={}))
    loop.send(PoolConfigured(at_ms=2, spec=PoolSpec(pool="p", capacity=ONE.times(16), policy=policy)))


def submit(loop, task, **more):
    request = loop.prioritised(TaskRequest(task=task, pool="p", resources=ONE, **more))
    (started,) = [each for each in loop.send(TaskSubmitted(at_ms=3, request=request)) if isinstance(each, StartTask)]
    return started


def state_of(loop):
    return loop.scheduler.to_snapshot(), loop.task_index


def test_a_batch_that_is_not_understood_has_no_effect(tmp_path):
    loop, _ = loop_on(tmp_path)
    two_nodes(loop)
    submit(loop, "t1")
    request = TaskRequest(task="t2", pool="p", resources=ONE)
    with pytest.raises(MeshError, match="does not know"):
        loop.send(TaskSubmitted(at_ms=4, request=request), Event(at_ms=4))
    assert "t2" not in loop.task_index.tasks
    assert "t2" not in loop.scheduler.state.records
    assert submit(loop, "t2").node in ("a", "b")


def test_a_batch_that_the_disk_does_not_take_has_never_happened(tmp_path, monkeypatch):
    loop, archive = loop_on(tmp_path)
    two_nodes(loop)

    def full(*_):
        raise RuntimeAdapterError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(archive, "append", full)
        with pytest.raises(RuntimeAdapterError):
            submit(loop, "t1")
    assert "t1" not in loop.scheduler.state.records
    assert submit(loop, "t1").attempt == 1


def test_s22_snapshots_follow_the_journal_and_restore_all(tmp_path):
    loop, archive = loop_on(tmp_path, lines_max=4)
    two_nodes(loop)
    for number in range(9):
        submit(loop, f"t{number}")
    loop.send_to_jobs(JobSubmitted(at_ms=5, spec=JobSpec(job="j", pool="p", leader=ReplicaSpec(), min_workers_num=0)))
    assert list(tmp_path.glob("snapshot-*"))
    archive.close()
    again, _ = loop_on(tmp_path, lines_max=4)
    assert state_of(again) == state_of(loop)
    assert list(again.jobs.jobs) == ["j"]
    assert again.jobs.to_snapshot() == loop.jobs.to_snapshot()


def test_a_failed_snapshot_leaves_the_journal_unchanged(tmp_path, monkeypatch):
    loop, archive = loop_on(tmp_path, lines_max=1)

    def full(*_):
        raise RuntimeAdapterError("no space left")

    monkeypatch.setattr(JournalFile, "snapshot", full)
    two_nodes(loop)
    submit(loop, "t1")
    archive.close()
    again, _ = loop_on(tmp_path)
    assert state_of(again) == state_of(loop)


def test_a_failed_snapshot_is_tried_again_after_as_many_lines(tmp_path, monkeypatch):
    loop, archive = loop_on(tmp_path, lines_max=3)
    tried_at: list[int] = []

    def full(*_):
        tried_at.append(loop.scheduler.state.version)
        raise RuntimeAdapterError("no space left")

    monkeypatch.setattr(JournalFile, "snapshot", full)
    two_nodes(loop)
    begun = loop.scheduler.state.version
    for number in range(9):
        submit(loop, f"t{number}")
    monkeypatch.undo()
    tried = [version - begun for version in tried_at if version > begun]
    assert all(later - sooner == 3 for sooner, later in itertools.pairwise(tried))
    assert len(tried) in (2, 3)
    archive.close()


def test_s13_a_replay_knows_when_a_plugin_was_fenced(tmp_path):
    loop, archive = loop_on(tmp_path, second=LikesTheSecondNode)
    fenced: list[PluginFenced] = []
    loop.on_fenced = fenced.append
    two_nodes(loop, policy="second")
    nodes = [submit(loop, f"t{number}").node for number in range(2)]
    assert nodes == ["b", "b"]
    while not fenced:
        loop.send(NodeJoined(at_ms=5, node=f"n{len(loop.scheduler.state.table.names)}", total=ONE, labels={}))
        submit(loop, f"more-{len(loop.task_index.tasks)}")
    assert [(each.plugin, each.hook, each.why) for each in fenced] == [("second", "score", "raised OSError: the model server is gone")]
    placed = {task: row.node for task, row in loop.task_index.tasks.items()}
    archive.close()
    plugins = plugins_of(second=LikesTheSecondNode)
    again, _ = loop_on(tmp_path, plugins=plugins)
    assert {task: row.node for task, row in again.task_index.tasks.items()} == placed
    assert plugins.plugins.fenced == tuple(fenced)
    assert state_of(again) == state_of(loop)


def test_s13_a_plugins_priority_is_journaled_and_replayed(tmp_path):
    loop, archive = loop_on(tmp_path, urgent=Urgent)
    fenced: list[PluginFenced] = []
    loop.on_fenced = fenced.append
    two_nodes(loop)
    submit(loop, "t1", label="now")
    submit(loop, "t2", label="later")
    assert [(each.plugin, each.hook) for each in fenced] == [("urgent", "priority")]
    submit(loop, "t3", label="now")
    priorities = {task: row.request.priority for task, row in loop.task_index.tasks.items()}
    assert priorities == {"t1": 9.0, "t2": 5.0, "t3": 5.0}
    archive.close()
    again, _ = loop_on(tmp_path)
    assert {task: row.request.priority for task, row in again.task_index.tasks.items()} == priorities


def test_whoever_waits_is_woken_by_name(tmp_path):
    async def scene():
        loop, _ = loop_on(tmp_path)
        seen = []
        waiting = asyncio.create_task(loop.until("j::job", lambda: bool(seen), 30))
        await asyncio.sleep(0)
        seen.append(1)
        loop.wake("j::job")
        return await waiting

    assert asyncio.run(scene())


def test_a_raising_listener_stops_no_decision_and_no_waiter(tmp_path):
    async def scene():
        loop, _ = loop_on(tmp_path)
        carried, heard = [], []
        loop.driver = SimpleNamespace(carry_out=carried.append)

        def broken(*_):
            raise OSError("the figures are lost")

        loop.listeners += [broken, lambda *batch: heard.append(batch)]
        two_nodes(loop)
        waiting = asyncio.create_task(loop.until("t1", lambda: "t1" in loop.task_index.tasks, 30))
        await asyncio.sleep(0)
        assert submit(loop, "t1") in carried
        assert len(heard) == 4
        return await waiting

    assert asyncio.run(scene())
