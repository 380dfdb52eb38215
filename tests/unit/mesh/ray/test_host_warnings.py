"""Warnings of a host about nodes without a watchdog."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from structlog.testing import capture_logs

from mesh.core.ids import MeshId
from mesh.ray.stage_runner import host as module
from mesh.ray.stage_runner.host import RayStageHost

ADDRESS = "127.0.0.1:1"


class Guards:
    """Guards whose watchdogs answer as the test says, look by look."""

    looks: ClassVar[list[set[str]]] = []

    def __init__(self, _mesh: MeshId, _labels: dict[str, str]) -> None:
        self.looks.clear()

    def unguarded(self, wait_s: float | None = None) -> frozenset[str]:
        return frozenset() if wait_s is not None else frozenset(self.looks.pop(0))

    def extend_deadline(self, *_: int) -> None:
        pass


class Actors:
    """Detached actors of which none runs."""

    def __init__(self, *_: Any) -> None:
        pass

    def __getattr__(self, _name: str) -> Any:
        return lambda *_: None


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[RayStageHost]:
    monkeypatch.setattr(module, "NodeGuards", Guards)
    monkeypatch.setattr(module, "DetachedActors", Actors)
    made = RayStageHost(
        mesh=MeshId("east"),
        address=ADDRESS,
        report=lambda _: None,
        storage_url="memory://",
        inline_limit_bytes=1,
        node_labels={},
        warm_runners=0,
    )
    yield made
    made.close()


def warned(host: Any, *looks: set[str]) -> list[list[str]]:
    Guards.looks[:] = looks
    with capture_logs() as lines:
        for _ in looks:
            host.extend_deadline(1, 5_000, 9_000, 1)
    return [line["nodes"] for line in lines if line["log_level"] == "warning"]


def test_a_healthy_start_warns_of_nothing(host: RayStageHost):
    assert warned(host, {"n1"}, set(), set()) == []


def test_a_node_unguarded_twice_in_a_row_is_reported(host: RayStageHost):
    assert warned(host, {"n1", "n2"}, {"n1"}, {"n2"}) == [["n1"]]


def test_a_cluster_that_nobody_serves_is_reported_with_a_remedy(host: RayStageHost):
    with capture_logs() as lines:
        assert not host.is_ready()
    (line,) = lines
    assert (line["log_level"], line["mesh"]) == ("warning", "east")
    assert "restart the cluster" in line["remedy"]


def test_a_busy_cluster_that_accepts_connections_is_up(monkeypatch: pytest.MonkeyPatch, host: Any):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(host, "_address", f"127.0.0.1:{silent.getsockname()[1]}")
        assert host.is_ready()


@pytest.mark.parametrize(("lost", "is_ready"), [(1, True), (2, False)], ids=["once", "twice"])
def test_a_connection_that_timed_out_is_tried_once_more(monkeypatch: pytest.MonkeyPatch, host: RayStageHost, lost: int, is_ready: bool):
    """The network may have lost one packet, and TCP sends it again after a second."""
    answers: list[Exception | None] = [*[TimeoutError("timed out")] * lost, None]

    def can_connect(_address: str, _limit_s: float) -> None:
        if (answer := answers.pop(0)) is not None:
            raise answer

    monkeypatch.setattr(module, "can_connect", can_connect)
    assert host.is_ready() is is_ready
