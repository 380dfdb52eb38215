"""What `stop_all` leaves of stages whose start still waits for its turn."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mesh.hosting import HostReport
from mesh.ids import MeshId, NodeId, RunId, StageId, TenantPath
from mesh.resources import NOTHING
from mesh.runtime.host import RayStageHost, RunnerKey
from mesh.stages import StageSpec, TaskSpec

PATIENCE_S = 30.0


class Actor:
    """Notes what it is asked to do, by name."""

    def __init__(self, asked: list[str]) -> None:
        self._asked = asked

    def __getattr__(self, method: str) -> Any:
        return SimpleNamespace(remote=lambda *_: self._asked.append(method))


class Host(RayStageHost):
    """Runners of it are never listened to, for there is no Ray."""

    def __init__(self, folder: Path) -> None:
        self.reports: list[HostReport] = []
        self.asked: list[str] = []
        super().__init__(
            mesh=MeshId("m"),
            report=self.reports.append,
            storage_url=folder.as_uri(),
            inline_limit_bytes=1,
            node_labels={},
            warm_runners=0,
        )
        self._actors: Any = SimpleNamespace(
            new_runner=lambda *_: Actor(self.asked), new_keeper=lambda *_: Actor(self.asked), end_all=lambda: None, end=lambda _: None
        )

    def _listen_to(self, key: RunnerKey, runner: Any) -> None:
        self._runners[key] = runner


def test_a_stage_whose_turn_comes_after_everything_was_stopped_is_neither_started_nor_told_of(tmp_path: Path) -> None:
    host = Host(tmp_path)
    may_go_on = threading.Event()
    host._orders.put(lambda: may_go_on.wait(PATIENCE_S))
    task = TaskSpec(node=NodeId("a"), attempt=1, function="call:m:f", resources=NOTHING)
    spec = StageSpec(stage=StageId("r.1"), run=RunId("r"), tenant=TenantPath("t"), tasks=(task,), slot=NOTHING, width=1)
    host.start(spec, 1, 7, {}, {})
    host.stop_all()
    may_go_on.set()
    host.close()
    assert (host.asked, host.reports) == (["bind"], [])
