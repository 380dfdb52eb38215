"""Cache of nodes before a silent control service."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from structlog.testing import capture_logs

from mesh.ray.stage_runner.node_guards import REMEDY, SILENT, NodeCache

PATIENCE_S = 30.0


class Control:
    """Fake of Ray's control service: returns `nodes` in turn, and holds an answer while it is silent."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.speaks = threading.Event()
        self.asked = 0
        self.was_asked = threading.Event()

    def __call__(self) -> list[dict[str, Any]]:
        self.asked += 1
        self.was_asked.set()
        assert self.speaks.wait(PATIENCE_S)
        said = self.nodes.pop(0)
        if isinstance(said, Exception):
            raise said
        return [{"NodeID": said}]


@pytest.fixture
def control() -> Control:
    return Control()


def test_a_silent_control_service_blocks_nobody(control: Control) -> None:
    known = NodeCache(control)
    control.nodes = ["a"]
    assert known.look(0.0) is None
    assert control.was_asked.wait(PATIENCE_S)
    assert known.look(0.0) is None
    control.speaks.set()
    assert known.look(PATIENCE_S) == [{"NodeID": "a"}]
    assert control.asked == 1


def test_known_nodes_are_reported_while_the_service_is_silent(control: Control) -> None:
    known = NodeCache(control)
    control.nodes = ["a", "b"]
    control.speaks.set()
    assert known.look(PATIENCE_S) == [{"NodeID": "a"}]
    control.speaks.clear()
    assert known.look(0.0) == [{"NodeID": "a"}]
    control.speaks.set()
    assert known.look(PATIENCE_S) == [{"NodeID": "b"}]


def test_after_an_error_it_is_asked_again(control: Control) -> None:
    known = NodeCache(control)
    control.nodes = ["a", RuntimeError("away"), "c"]
    control.speaks.set()
    assert [known.look(PATIENCE_S) for _ in range(3)] == [[{"NodeID": "a"}], [{"NodeID": "a"}], [{"NodeID": "c"}]]


def test_each_way_of_silence_is_logged_with_what_to_look_at(control: Control) -> None:
    known = NodeCache(control)
    control.nodes = [RuntimeError("away")]
    with capture_logs() as logged:
        known.look(0.0)
        control.speaks.set()
        known.look(PATIENCE_S)
    assert [(line["event"], line["remedy"]) for line in logged] == [(SILENT, REMEDY)] * 2
    assert logged[1]["error"] == "away"
