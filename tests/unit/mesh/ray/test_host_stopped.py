"""End of runners and of their stages: with the host, with the runner, with the last run."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mesh.core.ids import MeshId, NodeId, RunId, StageId, TenantPath
from mesh.core.resources import NOTHING
from mesh.ray.stage_runner import cancellations
from mesh.ray.stage_runner.bound_runner import RunnerKey
from mesh.ray.stage_runner.detached_actors import FoundActors
from mesh.ray.stage_runner.host import RayStageHost
from mesh.ray.stage_runner.runner import Inventory
from mesh.ray.user_code.collector import GarbageCollector
from mesh.ray.user_code.sweep import Swept
from mesh.stages.hosting import HostReport
from mesh.stages.messages import StageEnded
from mesh.stages.spec import StageSpec, TaskSpec

PATIENCE_S = 60.0
IDLE_S = 60.0
KEY: RunnerKey = (TenantPath("t"), "")


class Actor:
    """Actor that records the names of its calls."""

    def __init__(self, asked: list[str]) -> None:
        self._asked = asked

    def __getattr__(self, method: str) -> Any:
        return SimpleNamespace(remote=lambda *_: self._asked.append(method))


class Host(RayStageHost):
    """Host without Ray, which never listens to its runners."""

    def __init__(self, folder: Path) -> None:
        self.reports: list[HostReport] = []
        self.asked: list[str] = []
        super().__init__(
            mesh=MeshId("m"),
            address="127.0.0.1:1",
            report=self.reports.append,
            storage_url=folder.as_uri(),
            inline_limit_bytes=1,
            node_labels={},
            warm_runners=0,
            idle_s=IDLE_S,
        )
        self.ended: list[Any] = []
        self._actors: Any = SimpleNamespace(
            new_runner=lambda *_: Actor(self.asked), new_keeper=lambda *_: Actor(self.asked), end_all=lambda: None, end=self.ended.append
        )

    def _listen_to(self, key: RunnerKey, runner: Any) -> None:
        self._runners[key] = runner

    def _take_group(self, _slot: Any, _slots: int) -> Any:
        return SimpleNamespace(id=b"group")


def a_stage(run: str = "r") -> StageSpec:
    task = TaskSpec(node=NodeId("a"), attempt=1, function="call:m:f", resources=NOTHING)
    return StageSpec(stage=StageId(f"{run}.1"), run=RunId(run), tenant=TenantPath("t"), tasks=(task,), slot=NOTHING, width=1)


def test_a_stage_queued_behind_a_stop_is_not_run_or_reported(tmp_path: Path) -> None:
    host = Host(tmp_path)
    may_go_on = threading.Event()
    host._orders.put(lambda: may_go_on.wait(PATIENCE_S))
    host.start(a_stage(), 1, 7, {}, {})
    host.stop_all()
    may_go_on.set()
    host.close()
    assert (host.asked, host.reports) == (["bind"], [])


def test_orders_run_while_ray_blocks_the_garbage_collector(tmp_path: Path) -> None:
    host = Host(tmp_path)
    answers, is_carried_out = threading.Event(), threading.Event()

    def sweep(_: object) -> Swept:
        answers.wait(PATIENCE_S)
        return Swept.CLEAN

    host._garbage = GarbageCollector(MeshId("m"), sweep)
    host.start(a_stage(), 1, 7, {}, {})
    end_of(host, StageId("r.1"))
    host.start(a_stage("s"), 1, 7, {}, {})
    host._orders.put(is_carried_out.set)
    assert is_carried_out.wait(PATIENCE_S)
    assert not answers.is_set()
    assert host.asked[-1] == "start"
    answers.set()
    host.close()


# -- idle runners ------------------------------------------------------------------------------------------------------


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path)
    yield host
    host.stop_all()
    host.close()


def end_of(host: Host, stage: StageId) -> None:
    host._pass_on(host._runners[KEY], stage, 1, (StageEnded(stage=stage),), {})


def is_ended(host: Host, now_s: float) -> bool:
    return host._end_if_idle(KEY, host._runners[KEY], now_s)


def test_a_runner_ends_when_its_runs_have_been_over_for_long(host: Host) -> None:
    host.start(a_stage(), 1, 7, {}, {})
    end_of(host, StageId("r.1"))
    host.confirm(StageId("r.1"), 1)
    host.forget(RunId("r"))
    assert [is_ended(host, now_s) for now_s in (100.0, 100.0 + IDLE_S - 1)] == [False, False]
    assert host.ended == []
    actor = host._runners[KEY].actor
    assert is_ended(host, 100.0 + IDLE_S)
    assert (host.ended, host._runners) == ([actor], {})
    assert host.start(a_stage("s"), 1, 9, {}, {}) == 9
    assert host._runners[KEY].actor is not actor


@pytest.mark.parametrize("missing", ["the end", "the confirmation", "the word that the run is over"])
def test_a_runner_with_work_or_unsent_reports_stays(host: Host, missing: str) -> None:
    host.start(a_stage(), 1, 7, {}, {})
    if missing != "the end":
        end_of(host, StageId("r.1"))
    if missing != "the confirmation":
        host.confirm(StageId("r.1"), 1)
    if missing != "the word that the run is over":
        host.forget(RunId("r"))
    assert [is_ended(host, now_s) for now_s in (0.0, 10 * IDLE_S)] == [False, False]


def test_a_runner_that_got_work_in_between_waits_anew(host: Host) -> None:
    for run, now_s in (("r", 0.0), ("s", IDLE_S)):
        host.start(a_stage(run), 1, 7, {}, {})
        end_of(host, StageId(f"{run}.1"))
        host.confirm(StageId(f"{run}.1"), 1)
        host.forget(RunId(run))
        assert not is_ended(host, now_s)
    assert is_ended(host, 2 * IDLE_S)


def test_a_recovered_runner_ends_long_after_its_runs(host: Host) -> None:
    runs = {RunId(run): StageId(f"{run}.1") for run in "rs"}
    host._take_over(Actor(host.asked), Inventory(tenant=KEY[0], environment="", holder=3, stages=(), groups={}, runs=runs))
    assert host.held() == runs
    host.forget(RunId("r"))
    assert [is_ended(host, now_s) for now_s in (0.0, 10 * IDLE_S)] == [False, False]
    host.forget(RunId("s"))
    assert host.held() == {}
    assert [is_ended(host, now_s) for now_s in (0.0, IDLE_S)] == [False, True]


@pytest.mark.parametrize("how", ["it ends", "its runner dies", "everything is stopped"])
def test_nothing_is_kept_of_a_cancelled_stage_that_is_over(host: Host, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancellations, "EVICT_AFTER_S", 600.0)
    host.start(a_stage(), 1, 7, {}, {})
    host.cancel(StageId("r.1"))
    eviction = host._cancelled._evictions[StageId("r.1")]
    if how == "it ends":
        end_of(host, StageId("r.1"))
    elif how == "its runner dies":
        host._record_end(KEY, host._runners[KEY], "killed")
    else:
        host.stop_all()
    assert (host._cancelled._stages, host._cancelled._evictions) == (set(), {})
    eviction.join(PATIENCE_S)
    assert not eviction.is_alive()
    host.cancel(StageId("r.1"))
    assert (host._cancelled._stages, host._cancelled._evictions) == (set(), {})


# -- going on with what an earlier process has left --------------------------------------------------------------------


def test_a_recovered_process_has_one_keeper(host: Host) -> None:
    made: list[object] = []
    left: list[str] = []
    settled = threading.Event()
    host._actors.new_keeper = lambda *session: made.append(session)
    host._actors.find = lambda: FoundActors(keeper=Actor(left), incarnation=5, since=5, runners=())
    assert host.find() is not None
    host.extend_deadline(6, 1_000, 2_000, 5)
    host._orders.put(settled.set)  # The orders of the renewal are done before the process reports what it recovers.
    assert settled.wait(PATIENCE_S)
    host.go_on(frozenset())
    host.close()
    assert (made, left) == ([], ["keep_only", "settle"])


# -- a node that has died ----------------------------------------------------------------------------------------------


def test_nothing_new_is_started_while_no_node_is_guarded(host: Host) -> None:
    with socket.create_server(("127.0.0.1", 0)) as cluster:
        host._address = f"127.0.0.1:{cluster.getsockname()[1]}"
        guards: Any = host._guards
        guards._there, guards._guarded = frozenset({"n1"}), {"n1"}
        host.extend_deadline(6, 1_000, 2_000, 6)
        assert host.is_ready()
        guards._drop("n1")  # Its guard has died with it, and Ray has not noticed yet.
        assert not host.is_ready()
        guards._guarded.add("n1")
        assert host.is_ready()
