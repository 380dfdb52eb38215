"""When a mesh's host says that watchdogs do not guard its nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from mesh.ids import MeshId
from mesh.runtime import host as module
from mesh.runtime.host import RayStageHost


class Guards:
    """Nodes whose watchdogs answer as the test says, look by look."""

    def __init__(self, _mesh: MeshId, _labels: dict[str, str]) -> None:
        self.looks: list[set[str]] = []

    def unguarded(self, wait_s: float | None = None) -> frozenset[str]:
        return frozenset() if wait_s is not None else frozenset(self.looks.pop(0))

    def prove(self, *_: int) -> None:
        """Taken."""


class Actors:
    """Nothing runs."""

    def __init__(self, *_: Any) -> None:
        """Needs nothing."""

    def __getattr__(self, _name: str) -> Any:
        return lambda *_: None


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[RayStageHost]:
    monkeypatch.setattr(module, "NodeGuards", Guards)
    monkeypatch.setattr(module, "StandingActors", Actors)
    made = RayStageHost(
        mesh=MeshId("east"), report=lambda _: None, storage_url="memory://", inline_limit_bytes=1, node_labels={}, warm_runners=0
    )
    yield made
    made.close()


def warned(host: Any, *looks: set[str]) -> list[list[str]]:
    host._guards.looks = list(looks)
    with capture_logs() as lines:
        for _ in looks:
            host.prove(1, 5_000, 9_000, 1)
    return [line["nodes"] for line in lines if line["log_level"] == "warning"]


def test_a_healthy_start_warns_of_nothing(host: RayStageHost):
    assert warned(host, {"n1"}, set(), set()) == []


def test_a_node_that_is_unguarded_twice_in_a_row_is_told(host: RayStageHost):
    assert warned(host, {"n1", "n2"}, {"n1"}, {"n2"}) == [["n1"]]
