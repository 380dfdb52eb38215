"""Stages that grow and shrink while they run, in a federation over two real Ray clusters."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from federation_bed import LIMIT_S, eventually, submit, wait_for

import dag
from dag.client.tasks import Node
from dag.store.remote import Client

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("nothing_left")]


def hold(folder: str, name: str) -> str:
    """Leave a file, and wait for the one that lets this node go."""
    Path(folder, name).touch()
    while not Path(folder, f"{name}.go").exists():
        time.sleep(0.01)
    return name


def test_s41_a_stage_grows_and_gives_its_slots_back(client: Client, tmp_path: Path) -> None:
    def node(name: str) -> Node:
        return dag.task(hold, labels={"zone": "west"}, num_cpus=1).bind(str(tmp_path), name)

    def begun(*names: str) -> None:
        assert {path.name for path in tmp_path.iterdir() if path.suffix != ".go"} >= set(names)

    def let_go(name: str) -> None:
        (tmp_path / f"{name}.go").touch()

    first = submit(client, node("first"))
    eventually(lambda: begun("first"))
    fan = submit(client, {"a": node("a"), "b": node("b")})
    eventually(lambda: begun("a"))
    let_go("first")
    eventually(lambda: begun("a", "b"))
    assert wait_for(fan, lambda event: "2 slots instead of 1" in event.detail).mesh == "west"
    let_go("a")
    later = submit(client, node("later"))
    eventually(lambda: begun("later"))  # In the room of `a`, while `b` still runs.
    for name in ("b", "later"):
        let_go(name)
    assert fan.result(LIMIT_S) == {"a": "a", "b": "b"}
    assert (first.result(LIMIT_S), later.result(LIMIT_S)) == ("first", "later")
