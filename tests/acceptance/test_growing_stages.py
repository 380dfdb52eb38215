"""Stages that grow and shrink while they run, in a federation over two real Ray clusters."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import ray
from federation_bed import LIMIT_S, eventually, submit, wait_for

import dag
from dag.client.tasks import Node
from dag.errors import ApiError
from dag.store.remote import Client
from mesh.core.reasons import Reason

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


def look_around() -> tuple[int, bool]:
    """Return the number of bundles of this node's group, and whether the tasks that it starts run in the group."""
    group = ray.util.get_current_placement_group()
    assert group is not None
    inside = ray.get([ray.remote(ray.util.get_current_placement_group).remote() for _ in range(2)])
    return group.bundle_count, inside == [group, group]


def test_s41_a_gang_starts_whole_or_waits_whole(client: Client, tmp_path: Path) -> None:
    single = submit(client, dag.task(hold, labels={"zone": "west"}).bind(str(tmp_path), "single"))
    eventually(lambda: _is_there(tmp_path / "single"))
    gang = submit(client, dag.gang(look_around, size=2, strategy="STRICT_PACK", labels={"zone": "west"}).bind())
    waits = wait_for(gang, lambda event: "2 bundles of 1 cpu each" in event.detail)
    assert waits.reason is Reason.POOL_BUSY
    (tmp_path / "single.go").touch()
    assert gang.result(LIMIT_S) == (2, True)
    assert single.result(LIMIT_S) == "single"


def test_s41_a_gang_that_no_mesh_can_hold_is_refused(client: Client) -> None:
    apart = dag.gang(look_around, size=2, strategy="STRICT_SPREAD", num_cpus=0.5).bind()
    with pytest.raises(ApiError) as refused:
        submit(client, apart)
    assert refused.value.code == "no_mesh_fits"
    words = "needs 2 bundles of 0.5 cpu each on nodes of their own, and its nodes hold 1 of them when empty"
    assert [words in problem for _, problem in refused.value.problems[:2]] == [True, True]


def _is_there(path: Path) -> None:
    assert path.exists()
