"""Placement groups: resources in Ray that a lease pays for, kept for the next stage of the same shape.

Ray creates a group in milliseconds when there is room, and in up to a second when it must look again. So a returned group is kept for a
while, and a stage of the same shape reuses it unchanged. Kept groups hold up nobody: the oldest are removed when a new group needs the
room, and all of them when anyone on the cluster waits for resources, this mesh or not. `IDLE_S` is their limit in any case.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group

from mesh.core.resources import NOTHING, ResourceSet
from mesh.stages.idle_groups import IdleGroups

#: Time that a group is kept for the next stage; seconds.
IDLE_S = 60.0
#: Ray refuses an empty bundle; this is its smallest CPU amount with some margin (its own unit is 1/10 000).
LEAST_CPU = 0.001
_RAY_NAMES = {"cpu": "CPU", "gpu": "GPU"}
_OWN_NAMES = {name: own for own, name in _RAY_NAMES.items()}


@dataclass(frozen=True, slots=True)
class StageGroupShape:
    """Shape of a group; groups of one shape are interchangeable."""

    slot: ResourceSet
    slots: int


class PlacementPool:
    """The placement groups of one mesh. Safe to use from several threads.

    Args:
        node_labels: Labels of the nodes that the mesh may use; empty: all of the cluster.
    """

    def __init__(self, node_labels: Mapping[str, str]) -> None:
        self._node_labels = dict(node_labels)
        self._idle: IdleGroups[StageGroupShape, PlacementGroup] = IdleGroups()
        self._leaving: list[PlacementGroup] = []  #: To be removed, first to last; Ray may not answer.
        self._taken: dict[str, tuple[StageGroupShape, PlacementGroup]] = {}  #: By the id of the group.
        self._guard = threading.Lock()

    def take(self, slot: ResourceSet, slots: int) -> PlacementGroup:
        """Return a group of `slots` bundles of `slot`: a kept one, else a new one. Does not wait for Ray to place it.

        Tasks submitted to a group that is not placed yet wait in Ray, and start when it is.
        """
        shape = StageGroupShape(slot, slots)
        with self._guard:
            group = self._idle.take(shape)
            if group is None:
                self._make_room(slot.times(slots))
                group = self._create(shape)
            self._taken[group.id.hex()] = shape, group
        return group

    def give_back(self, group: PlacementGroup, *, reuse: bool = True) -> None:
        """Return the group of an ended stage. With `reuse=False` (its tasks may have left something behind) the group is removed."""
        with self._guard:
            taken = self._taken.pop(group.id.hex(), None)
            if taken is None:
                return
            if not reuse:
                remove_placement_group(group)
                return
            self._idle.put(taken[0], group, time.monotonic())

    def has_idle(self) -> bool:
        """Return whether groups are kept for later, or are still to be removed."""
        with self._guard:
            return bool(self._idle or self._leaving)

    def release(self, waited_for: AbstractSet[str] = frozenset()) -> None:
        """Remove the kept groups that are over their time, and those that hold a resource that others wait for, by Ray's names.

        Raises Ray's own errors; the next call then removes the rest.
        """
        with self._guard:
            self._leaving += self._idle.holding(lambda shape: not waited_for.isdisjoint(bundle_of(shape.slot)))
            self._leaving += self._idle.older_than(time.monotonic() - IDLE_S)
            while self._leaving:
                remove_placement_group(self._leaving[0])
                del self._leaving[0]

    def keep_only(self, groups: frozenset[str]) -> None:
        """Remove all taken groups but these, by their ids."""
        with self._guard:
            for lost in self._taken.keys() - groups:
                remove_placement_group(self._taken.pop(lost)[1])

    def close(self) -> None:
        """Remove all groups, taken ones too. The pool can be used again."""
        with self._guard:
            for _, group in self._taken.values():
                remove_placement_group(group)
            self._taken.clear()
            for group in self._idle.clear():
                remove_placement_group(group)

    def _create(self, shape: StageGroupShape) -> PlacementGroup:
        selectors = [self._node_labels] * shape.slots if self._node_labels else None
        group: PlacementGroup = placement_group([bundle_of(shape.slot)] * shape.slots, bundle_label_selector=selectors)
        return group

    def _make_room(self, wanted: ResourceSet) -> None:
        """Remove kept groups whose room the new group needs, as far as this pool can see."""
        if not self._idle:
            return
        used = [shape.slot.times(shape.slots) for shape, _ in self._taken.values()]
        for group in self._idle.in_the_way(wanted, used=used, total=self._total(), amount_of=lambda shape: shape.slot.times(shape.slots)):
            remove_placement_group(group)

    def _total(self) -> ResourceSet:
        """Return the total resources of the mesh's nodes, by this project's names."""
        total = NOTHING
        nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]  # Ray gives it no types
        for node in nodes:
            if node["Alive"] and all(node["Labels"].get(key) == value for key, value in self._node_labels.items()):
                total += ResourceSet.of({_OWN_NAMES.get(name, name): round(amount, 4) for name, amount in node["Resources"].items()})
        return total


def bundle_of(slot: ResourceSet) -> dict[str, float]:
    """Return the slot as Ray's bundle, without zeros: a task takes no resource that its bundle lacks."""
    bundle = {_RAY_NAMES.get(name, name): float(amount) for name, amount in slot.for_people().items()}
    return bundle or {"CPU": LEAST_CPU}
