"""End of idle runners, and their replacement, on a real cluster."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import patience
import pytest
import ray

from mesh.core.ids import MeshId, RunId, StageId, TenantPath
from mesh.core.resources import NOTHING
from mesh.ray.stage_runner import detached_actors
from mesh.ray.stage_runner.host import RayStageHost
from mesh.stages.hosting import HostReport
from mesh.stages.messages import NodesSucceeded, StageEnded
from mesh.stages.spec import StageSpec, TaskSpec

pytestmark = pytest.mark.ray

eventually = partial(patience.eventually, patience_s=90.0)
EVENT_S_MAX = 120.0


@pytest.fixture
def reports() -> queue.SimpleQueue[HostReport]:
    return queue.SimpleQueue()


@pytest.fixture
def made(
    ray_driver: Any, tmp_path: Path, reports: queue.SimpleQueue[HostReport], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[float], RayStageHost]]:
    """Make hosts of one mesh, one after the other, as its processes do."""
    monkeypatch.setattr(detached_actors, "ANSWER_S", EVENT_S_MAX)  # A recovered runner may answer slowly.
    hosts: list[RayStageHost] = []

    def make(idle_s: float) -> RayStageHost:
        hosts.append(
            RayStageHost(
                mesh=MeshId("idle"),
                address=ray_driver.address,
                report=reports.put,
                storage_url=tmp_path.as_uri(),
                inline_limit_bytes=1024,
                node_labels={},
                warm_runners=0,
                idle_s=idle_s,
            )
        )
        return hosts[-1]

    yield make
    hosts[-1].leave(len(hosts))
    for host in hosts:
        host.stop_all()
        host.close()


@pytest.fixture
def host(made: Callable[[float], RayStageHost]) -> RayStageHost:
    host = made(0.0)
    host.extend_deadline(1, 600_000, 600_000, 1)
    return host


def runners() -> list[str]:
    return [name for name in ray.util.list_named_actors() if name.startswith("mesh/idle/runner")]


def hear_the_end(host: RayStageHost, reports: queue.SimpleQueue[HostReport]) -> list[Any]:
    """Return the messages of the stage, all of them acked."""
    messages: list[Any] = []
    while not any(isinstance(message, StageEnded) for message in messages):
        report = reports.get(timeout=EVENT_S_MAX)
        messages += report.messages
        host.confirm(report.stage, report.number)
    return messages


def a_stage(run: str, task: Callable[..., TaskSpec]) -> StageSpec:
    tasks = (task("a", "call:builtins:int", 3, resources=NOTHING),)
    return StageSpec(stage=StageId(f"{run}.1"), run=RunId(run), tenant=TenantPath("acme"), tasks=tasks, slot=NOTHING, width=1)


def test_a_runner_ends_with_its_last_run_and_is_replaced(
    host: RayStageHost, reports: queue.SimpleQueue[HostReport], task: Callable[..., TaskSpec]
) -> None:
    for token, run in ((7, "r"), (9, "s")):
        assert host.start(a_stage(run, task), 1, token, {}, {}) == token
        assert any(isinstance(message, NodesSucceeded) for message in hear_the_end(host, reports))
        assert len(runners()) == 1
        host.forget(RunId(run))
        eventually(lambda: not runners())


def test_a_recovered_runner_ends_with_the_last_of_its_runs(
    made: Callable[[float], RayStageHost], reports: queue.SimpleQueue[HostReport], task: Callable[..., TaskSpec]
) -> None:
    first = made(600.0)
    first.extend_deadline(1, 600_000, 600_000, 1)
    first.start(a_stage("r", task), 1, 7, {}, {})
    while not any(isinstance(message, StageEnded) for message in reports.get(timeout=EVENT_S_MAX).messages):
        pass  # It is never acked.
    successor = made(0.0)
    assert successor.find() is not None
    successor.go_on(frozenset({StageId("r.1")}))
    successor.extend_deadline(2, 600_000, 600_000, 1)
    hear_the_end(successor, reports)
    assert successor.held() == {RunId("r"): StageId("r.1")}
    successor.forget(RunId("another"))
    assert len(runners()) == 1
    successor.forget(RunId("r"))
    eventually(lambda: not runners())
