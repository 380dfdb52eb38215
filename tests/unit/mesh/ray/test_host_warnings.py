"""Warnings of a host about nodes without a watchdog."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from structlog.testing import capture_logs

from mesh.core.ids import MeshId
from mesh.ray.stage_runner import host as module
from mesh.ray.stage_runner.detached_actors import DetachedActors
from mesh.ray.stage_runner.host import HostParts, RayStageHost
from mesh.ray.stage_runner.node_guards import NodeGuards
from mesh.ray.user_code.sweep import Swept

ADDRESS = "127.0.0.1:1"


class Guards(NodeGuards):
    """Guards whose watchdogs answer as the test says, look by look."""

    def __init__(self) -> None:
        super().__init__(MeshId("east"), {})
        self.looks: list[set[str]] = []

    def unguarded(self, wait_s: float | None = None) -> frozenset[str]:
        return frozenset() if wait_s is not None else frozenset(self.looks.pop(0))

    def extend_deadline(self, *_: object, **__: object) -> None:
        pass


class Actors(DetachedActors):
    """Detached actors of which none runs."""

    def new_keeper(self, *_: object, **__: object) -> Any:
        return None


def a_host(guards: NodeGuards, address: str = ADDRESS) -> RayStageHost:
    return RayStageHost(
        mesh=MeshId("east"),
        address=address,
        report=lambda _: None,
        storage_url="memory://",
        inline_limit_bytes=1,
        node_labels={},
        warm_runners=0,
        parts=HostParts(actors=Actors(MeshId("east"), {}), guards=guards, sweep=lambda *_: Swept.CLEAN),
    )


@pytest.fixture
def guards() -> Guards:
    return Guards()


@pytest.fixture
def host(guards: Guards) -> Iterator[RayStageHost]:
    with closing(a_host(guards)) as host:
        yield host


def warned(host: RayStageHost, guards: Guards, *looks: set[str]) -> list[list[str]]:
    guards.looks = list(looks)
    with capture_logs() as lines:
        for _ in looks:
            host.extend_deadline(1, 5_000, 9_000, 1)
    return [line["nodes"] for line in lines if line["log_level"] == "warning"]


def test_a_healthy_start_warns_of_nothing(host: RayStageHost, guards: Guards):
    assert warned(host, guards, {"n1"}, set(), set()) == []


def test_a_node_unguarded_twice_in_a_row_is_reported(host: RayStageHost, guards: Guards):
    assert warned(host, guards, {"n1", "n2"}, {"n1"}, {"n2"}) == [["n1"]]


def test_a_cluster_that_nobody_serves_is_reported_with_a_remedy(host: RayStageHost):
    with capture_logs() as lines:
        assert not host.is_ready()
    (line,) = lines
    assert (line["log_level"], line["mesh"]) == ("warning", "east")
    assert "restart the cluster" in line["remedy"]


def test_a_busy_cluster_that_accepts_connections_is_up(guards: Guards):
    with socket.create_server(("127.0.0.1", 0)) as silent, closing(a_host(guards, f"127.0.0.1:{silent.getsockname()[1]}")) as host:
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
