"""Detached actors that outlive a mesh's process, on a real cluster: discovery, sessions and ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import patience
import pytest
import ray
from ray.exceptions import ActorDiedError, RayActorError
from ray.util.placement_group import placement_group_table

from mesh.core.ids import MeshId, RunId, StageId, TenantPath
from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.wire import decode, encode
from mesh.ray.stage_runner import detached_actors
from mesh.ray.stage_runner.detached_actors import DetachedActors, FoundActors, detached_name
from mesh.ray.stage_runner.runner import Inventory
from mesh.ray.worker.watch_folder import watch_folder
from mesh.stages.hosting import HeldStage
from mesh.stages.messages import STAGE_MESSAGE, StageEnded
from mesh.stages.spec import StageSpec, TaskSpec

pytestmark = pytest.mark.ray

eventually = partial(patience.eventually, patience_s=90.0)
#: Limit for finding new actors, whose processes may still be starting.
ANSWER_S = 90.0
HALF = ResourceSet.of({"cpu": 0.5})
TENANT = TenantPath("acme")


@pytest.fixture
def actors(ray_driver: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[DetachedActors]:
    monkeypatch.setattr(detached_actors, "ANSWER_S", ANSWER_S)
    actors = DetachedActors(MeshId("standing"), {"zone": "east"})
    yield actors
    actors.end_all()
    eventually(lambda: actors.find() is None and not names())


def names() -> list[str]:
    return [name for name in ray.util.list_named_actors() if name.startswith("mesh/standing/")]


def found(actors: DetachedActors) -> FoundActors:
    there = actors.find()
    assert there is not None
    return there


def state_of(group: Any) -> str:
    return str(placement_group_table(group.group)["state"])


def has_died(runner: Any) -> bool:
    """Return whether Ray reports the death, which takes a moment: until then calls may be answered or lost."""
    try:
        ray.get(runner.inventory.remote())
    except RayActorError as error:
        return isinstance(error, ActorDiedError)
    return False


def start(runner: Any, storage: Path, task: Callable[..., TaskSpec], note: bytes) -> StageId:
    """Start a bound runner with a stage that ends at once."""
    ray.get(runner.bind.remote(TENANT, storage.as_uri(), 1024, MeshId("standing"), 7))
    tasks = (task("a", "call:builtins:int", 3, resources=NOTHING),)
    spec = StageSpec(stage=StageId("r.1"), run=RunId("r"), tenant=TENANT, tasks=tasks, slot=NOTHING, width=1)
    ray.get(runner.start.remote(encode(spec), {}, {}, (), note))
    return spec.stage


def hear_the_end(runner: Any, listener: int) -> list[Any]:
    """Return all batches up to the end of the stage, none of them acked."""
    heard: list[Any] = []
    while not any(isinstance(decode(STAGE_MESSAGE, message), StageEnded) for _, _, messages, *_ in heard for message in messages):
        heard += ray.get(runner.next_batch.remote(5.0, listener))
    return heard


def test_the_groups_of_a_keeper_go_with_it(actors: DetachedActors) -> None:
    keeper = actors.new_keeper(1, 1)
    taken, kept = ray.get(keeper.take.remote(HALF, 2))
    ray.get(keeper.give_back.remote((kept,), True))
    eventually(lambda: (state_of(taken), state_of(kept)) == ("CREATED", "CREATED"))
    ray.kill(keeper)
    eventually(lambda: (state_of(taken), state_of(kept)) == ("REMOVED", "REMOVED"))


def test_a_keeper_removes_what_nobody_gave_back(actors: DetachedActors) -> None:
    keeper = actors.new_keeper(1, 1)
    one, two = ray.get(keeper.take.remote(HALF, 2))
    ray.get(keeper.keep_only.remote(frozenset({one.hex_id})))
    eventually(lambda: (state_of(one), state_of(two)) == ("CREATED", "REMOVED"))


def test_a_found_runner_has_session_stages_and_unacked_messages(
    actors: DetachedActors, tmp_path: Path, task: Callable[..., TaskSpec]
) -> None:
    actors.new_keeper(5, 3)
    runner, _ = actors.new_runner({}, ""), actors.new_runner({}, "")
    stage = start(runner, tmp_path, task, b"noted")
    first = hear_the_end(runner, listener=5)
    there = found(actors)
    assert (there.incarnation, there.since) == (5, 3)
    inventories = {inventory.tenant: (actor, inventory) for actor, inventory in there.runners}
    assert inventories.keys() == {TENANT, ""}
    again, inventory = inventories[TENANT]
    assert isinstance(inventory, Inventory)
    assert inventory.stages == (HeldStage(stage=stage, note=b"noted", holder=7),)
    assert (inventory.holder, inventory.groups) == (7, {})
    assert hear_the_end(again, listener=6) == first
    ray.get(again.next_batch.remote(0.0, 6, {stage: first[-1][1]}))
    assert ray.get(again.inventory.remote()).stages == ()


def test_a_dead_runner_is_omitted_and_two_keepers_are_refused(actors: DetachedActors) -> None:
    actors.new_keeper(1, 1)
    alive, dead = actors.new_runner({}, ""), actors.new_runner({}, "")
    ray.get([runner.inventory.remote() for runner in (alive, dead)])
    ray.kill(dead)
    eventually(lambda: has_died(dead))
    assert len(found(actors).runners) == 1
    actors.new_keeper(2, 2)
    assert actors.find() is None


def test_only_the_actors_of_the_mesh_itself_are_found_and_ended(actors: DetachedActors) -> None:
    others = DetachedActors(MeshId("standing-too"), {"zone": "east"})
    others.new_keeper(1, 1)
    assert actors.find() is None
    actors.end_all()
    assert found(others).incarnation == 1
    others.end_all()
    eventually(lambda: others.find() is None)


def test_a_namesake_mesh_of_another_federation_is_left_alone(actors: DetachedActors) -> None:
    ours, theirs = (DetachedActors(detached_name(ledger, MeshId("standing")), {"zone": "east"}) for ledger in ("one", "two"))
    ours.new_keeper(1, 1)
    theirs.new_keeper(2, 2)
    assert (found(ours).incarnation, found(theirs).incarnation) == (1, 2)
    actors.end_all()  # A mesh of no federation.
    ours.end_all()
    eventually(lambda: ours.find() is None)
    assert found(theirs).incarnation == 2
    assert watch_folder(detached_name("one", MeshId("standing"))) != watch_folder(detached_name("two", MeshId("standing")))
    theirs.end_all()
    eventually(lambda: theirs.find() is None)
