"""Placement groups between the mesh and their keeper: groups of an ended stage rest for a moment."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from patience import eventually

from mesh.core.ids import MeshId, NodeName
from mesh.core.resources import ResourceSet
from mesh.ray.placement import SlotGroup
from mesh.ray.stage_runner.actor_calls import ActorCalls
from mesh.ray.stage_runner.detached_actors import DetachedActors
from mesh.ray.stage_runner.stage_groups import StageGroups
from mesh.stages.hosting import Places

CPU = ResourceSet.of({"cpu": 1})
HERE, THERE = Places(nodes=(NodeName("n1"),)), Places(nodes=(NodeName("n2"),))
LONG_S, PATIENCE_S = 3_600.0, 60.0


class Keeper:
    """Keeper that makes a placed group for each slot, and records its calls."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.returned: list[tuple[list[str], bool]] = []
        self._made = 0

    def __getattr__(self, method: str) -> Any:
        return SimpleNamespace(remote=lambda *_: lambda: None)

    @property
    def take(self) -> Any:
        return SimpleNamespace(remote=lambda _slot, slots, _places: lambda: self._take(slots))

    @property
    def give_back(self) -> Any:
        def give_back(groups: tuple[SlotGroup, ...], reuse: bool) -> None:
            self.returned.append(([group.hex_id for group in groups], reuse))

        return SimpleNamespace(remote=give_back)

    def _take(self, slots: int) -> tuple[SlotGroup, ...]:
        self.asked.append(f"take {slots}")
        made = []
        for _ in range(slots):
            self._made += 1
            made.append(SlotGroup(cast(Any, SimpleNamespace(id=bytes([self._made]))), slots=1, is_placed=self.is_placed))
        return tuple(made)

    is_placed = True


class Calls(ActorCalls):
    def result(self, call: Any, limit_s: float | None = None) -> Any:  # noqa: ARG002  as the real one
        return call()


class Mesh:
    def __init__(self, rest_s: float = LONG_S) -> None:
        self.keeper = Keeper()
        actors = SimpleNamespace(new_keeper=lambda *_: self.keeper, end=lambda _: None)
        self.groups = StageGroups(MeshId("m"), cast(DetachedActors, actors), Calls(), lambda _: None, rest_s)
        self.groups.begin(1, 1)

    def take(self, slots: int = 1, places: Places = HERE) -> tuple[SlotGroup, ...]:
        found: queue.SimpleQueue[tuple[SlotGroup, ...]] = queue.SimpleQueue()
        self.groups.take(CPU, slots, places, found.put)
        return found.get(timeout=PATIENCE_S)

    def held_up(self, *steps: Callable[[], object]) -> None:
        """Do these steps while the thread that asks is at another request."""
        goes_on = threading.Event()
        self.groups.after(goes_on.wait)
        for step in steps:
            step()
        goes_on.set()
        self.settled()

    def end_session(self, is_restarted: bool) -> None:
        """End the session, and its keeper with it."""
        self.keeper = Keeper()
        self.groups.end()
        if is_restarted:
            self.groups.begin(2, 2)
            self.groups.settle()

    def settled(self) -> None:
        """Wait until all earlier requests are done."""
        done: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.groups.after(lambda: done.put(None))
        done.get(timeout=PATIENCE_S)


@pytest.fixture
def mesh():
    found = Mesh()
    yield found
    found.groups.close()


def test_a_stage_like_the_one_before_takes_its_groups(mesh):
    first = mesh.take(2)
    mesh.groups.give_back(first)
    assert mesh.take(2) == first
    assert (mesh.keeper.asked, mesh.keeper.returned) == (["take 2"], [])


@pytest.mark.parametrize(("slots", "places"), [(2, HERE), (1, THERE)], ids=["with more slots", "elsewhere"])
def test_another_stage_returns_resting_groups_before_it_asks(mesh, slots, places):
    first = mesh.take()
    mesh.groups.give_back(first)
    assert mesh.take(slots, places) != first
    assert mesh.keeper.returned == [(["01"], True)]


def test_groups_rest_only_for_a_while():
    mesh = Mesh(rest_s=0.01)
    mesh.groups.give_back(mesh.take())
    eventually(lambda: mesh.keeper.returned == [(["01"], True)])
    mesh.groups.close()


def test_unclean_groups_do_not_rest(mesh):
    mesh.groups.give_back(mesh.take(), reuse=False)
    assert mesh.keeper.returned == [(["01"], False)]


def test_of_several_groups_all_must_be_placed_to_rest(mesh):
    mesh.keeper.is_placed = False
    mesh.groups.give_back(mesh.take(2))
    assert mesh.keeper.returned == [(["01", "02"], True)]
    single = mesh.take()
    mesh.groups.give_back(single)
    assert mesh.take() == single


def test_groups_of_a_stage_that_has_grown_do_not_rest(mesh):
    mesh.groups.give_back((*mesh.take(), *mesh.take()))
    mesh.settled()
    assert mesh.keeper.returned == [(["01", "02"], True)]


def test_part_of_a_stages_groups_does_not_rest(mesh):
    mesh.groups.give_back(mesh.take(2)[:1])
    mesh.settled()
    assert mesh.keeper.returned == [(["01"], True)]


def test_groups_of_reserved_layers_do_not_rest(mesh):
    mesh.groups.give_back(mesh.take(1, Places(groups={"urgent/1": NodeName("n1")})))
    mesh.settled()
    assert mesh.keeper.returned == [(["01"], True)]


def test_the_groups_of_an_ended_session_are_forgotten(mesh):
    mesh.groups.give_back(mesh.take())
    mesh.settled()
    mesh.groups.end()
    mesh.groups.begin(2, 2)
    mesh.take()
    assert (mesh.keeper.asked, mesh.keeper.returned) == (["take 1", "take 1"], [])


@pytest.mark.parametrize("is_restarted", [False, True], ids=["before another begins", "after another began"])
def test_groups_that_come_back_late_are_forgotten(mesh, is_restarted):
    """The stages of an ended session return their groups when their runners have ended."""
    first, ended = mesh.take(), mesh.keeper
    mesh.held_up(lambda: mesh.end_session(is_restarted), lambda: mesh.groups.give_back(first))
    mesh.groups.begin(2, 2)
    assert len(mesh.take()) == 1
    assert mesh.keeper is not ended
    assert mesh.keeper.asked == ["take 1"]


def test_close_returns_resting_groups(mesh):
    mesh.groups.give_back(mesh.take())
    mesh.groups.close()
    assert mesh.keeper.returned == [(["01"], True)]
