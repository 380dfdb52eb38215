"""Placement groups: resources in Ray that a lease pays for, kept for the next stage of the same shape.

The slots of a stage are small groups, so that a stage can grow and shrink: Ray cannot resize a group.
Ray creates a group in milliseconds when there is room, and in up to a second when it must look again. So a returned group is kept for a
while, and a stage of the same shape reuses it unchanged. Kept groups hold up nobody: the oldest are removed when a new group needs the
room, and all of them when anyone on the cluster waits for resources, this mesh or not. `IDLE_S` is their limit in any case, unless
their pool sets another (`GroupPoolSpec`).

Reserved groups are another layer: made in advance, for stages that admission gives them to by name, and never removed for others. One
that is lost, or that its stage leaves unclean, is made again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group

from mesh.core.ids import GroupId, NodeName, PoolName
from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.shapes import UNBOUNDED, Gang, GroupPoolSpec
from mesh.stages.hosting import ANY_NODE, ANYWHERE, NO_POOL, PARTS_MAX, GroupLayers, Places, ReservedGroup
from mesh.stages.idle_groups import IdleGroups

#: Time that a group is kept for the next stage; seconds.
IDLE_S = 60.0
#: A group that was made on demand.
_NO_NAME = GroupId("")
#: Ray's label that names a node.
NODE_LABEL = "ray.io/node-id"
#: Ray refuses an empty bundle; this is its smallest CPU amount with some margin (its own unit is 1/10 000).
LEAST_CPU = 0.001
_RAY_NAMES = {"cpu": "CPU", "gpu": "GPU"}
_OWN_NAMES = {name: own for own, name in _RAY_NAMES.items()}


@dataclass(frozen=True, slots=True)
class StageGroupShape:
    """Shape of a group; groups of one shape are interchangeable."""

    slot: ResourceSet
    slots: int
    node: NodeName = ANY_NODE  #: Preferred node, by Ray's id; empty: none.
    labels: tuple[tuple[str, str], ...] = ()  #: Selector on the labels of its nodes, besides the mesh's.
    pool: PoolName = NO_POOL  #: Pool whose bounds apply.
    gang: Gang | None = None  #: Gang that the only slot is; None: each slot is one bundle.
    bundle_nodes: tuple[NodeName, ...] = ()  #: Node of each bundle of the gang, by Ray's id; empty: any.

    @property
    def amounts(self) -> ResourceSet:
        """Return the sum over all bundles."""
        return self.slot.times(self.slots)

    @property
    def bundles(self) -> tuple[ResourceSet, ...]:
        """Return what each bundle takes."""
        return (self.slot,) * self.slots if self.gang is None else (self.gang.bundle,) * self.gang.size


@dataclass(slots=True)
class _Reserved:
    """A reserved group as it is."""

    shape: StageGroupShape
    group: PlacementGroup
    is_lent: bool = False


@dataclass(frozen=True, slots=True)
class SlotGroup:
    """Placement group of some of a stage's slots."""

    group: PlacementGroup | None  #: None: its tasks run anywhere in the cluster.
    slots: int
    node: NodeName = ANY_NODE  #: Node that was preferred for its slots; empty: none.
    is_placed: bool = False  #: Ray has placed the group; False: not known.
    reserved: GroupId = _NO_NAME  #: Name of the reserved group; empty: it was made on demand.
    bundle_nodes: tuple[NodeName, ...] = ()  #: Node of each bundle of a gang; empty: any, or the group is no gang.

    @property
    def nodes(self) -> tuple[NodeName, ...]:
        """Return the nodes that its slots were given, as `Places` names them; none: any."""
        return self.bundle_nodes or ((self.node,) * self.slots if self.node else ())

    @property
    def hex_id(self) -> str:
        """Ray's id of the group."""
        return "" if self.group is None else self.group.id.hex()


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
        self._names: dict[str, GroupId] = {}  #: Names of the reserved groups among them.
        self._reserved: dict[GroupId, _Reserved] = {}
        self._wanted: dict[GroupId, StageGroupShape] = {}  #: Reserved groups that there should be.
        self._bounds: Mapping[PoolName, GroupPoolSpec] = {}
        self._guard = threading.Lock()

    def arrange(self, layers: GroupLayers) -> None:
        """Keep these layers from now on: make missing reserved groups, remove idle ones that are not wanted any more."""
        with self._guard:
            self._bounds, self._wanted = layers.pools, {each.group: _shape_of(each) for each in layers.reserved}
            for name, kept in tuple(self._reserved.items()):
                if not kept.is_lent and self._wanted.get(name) != kept.shape:
                    remove_placement_group(self._reserved.pop(name).group)
            self._reserve()

    def reserve_again(self, known: AbstractSet[str]) -> None:
        """Make idle reserved groups again that are not among those that Ray knows, by their ids."""
        with self._guard:
            lost = [name for name, kept in self._reserved.items() if not kept.is_lent and kept.group.id.hex() not in known]
            for name in lost:
                del self._reserved[name]
            self._reserve()

    def reserved_ids(self) -> frozenset[str]:
        """Return the ids of the idle reserved groups."""
        with self._guard:
            return frozenset(kept.group.id.hex() for kept in self._reserved.values() if not kept.is_lent)

    def take_slots(self, slot: ResourceSet, slots: int, places: Places = ANYWHERE) -> tuple[SlotGroup, ...]:
        """Return groups of `slots` bundles of `slot` in all: the reserved ones that are named, kept ones, else new ones.

        Does not wait for Ray to place them.
        """
        labels = tuple(sorted(places.labels.items()))
        shapes = tuple(_shapes(slot, slots - len(places.groups), sorted(places.nodes), labels, places.pool))
        with self._guard:
            reserved = tuple(self._lend(name, StageGroupShape(slot, 1, node, labels, places.pool)) for name, node in places.groups.items())
            groups = self._take(shapes)
        return reserved + tuple(SlotGroup(group, shape.slots, shape.node) for shape, group in zip(shapes, groups, strict=True))

    def _reserve(self) -> None:
        """Make missing reserved groups."""
        for name, shape in self._wanted.items():
            if name not in self._reserved:
                self._make_room(shape.slot)
                self._reserved[name] = _Reserved(shape, self._create(shape))

    def _lend(self, name: GroupId, shape: StageGroupShape) -> SlotGroup:
        """Return the reserved group, or make it anew: its last stage may have ended before it returned the group.

        Args:
            shape: Shape to make where no reserved group of this name is wanted.
        """
        kept = self._reserved.get(name)
        if kept is None or kept.is_lent:  # The older group is removed when its stage returns it.
            shape = self._wanted.get(name, shape)
            kept = self._reserved[name] = _Reserved(shape, self._create(shape))
        kept.is_lent = True
        self._taken[kept.group.id.hex()] = kept.shape, kept.group
        self._names[kept.group.id.hex()] = name
        return SlotGroup(kept.group, 1, kept.shape.node, reserved=name)

    def _return(self, name: GroupId, group: PlacementGroup, *, reuse: bool) -> None:
        """Take a lent reserved group back. Only a clean one that is still wanted is kept."""
        kept = self._reserved.get(name)
        if kept is None or kept.group.id != group.id:
            remove_placement_group(group)
        elif reuse and self._wanted.get(name) == kept.shape:
            kept.is_lent = False
        else:
            remove_placement_group(group)
            del self._reserved[name]
            self._reserve()

    def take_gangs(self, gang: Gang, slots: int, places: Places = ANYWHERE) -> tuple[SlotGroup, ...]:
        """Return a group for each of `slots` gangs, of all its bundles: kept ones, else new ones. Does not wait for Ray to place them.

        Args:
            places: Node of each bundle, gang after gang, by Ray's id; none: any. Ray places a bundle on no other node.
        """
        size, selector = gang.size, tuple(sorted(places.labels.items()))
        nodes = [tuple(sorted(places.nodes[slot * size : (slot + 1) * size])) for slot in range(slots)]
        shapes = [StageGroupShape(gang.slot, 1, labels=selector, pool=places.pool, gang=gang, bundle_nodes=each) for each in nodes]
        with self._guard:
            groups = self._take(shapes)
        return tuple(SlotGroup(group, 1, bundle_nodes=each) for each, group in zip(nodes, groups, strict=True))

    def take(self, slot: ResourceSet, slots: int, node: NodeName = ANY_NODE) -> PlacementGroup:
        """Return one group of `slots` bundles of `slot`: a kept one, else a new one. Does not wait for Ray to place it.

        Tasks submitted to a group that is not placed yet wait in Ray, and start when it is.
        """
        with self._guard:
            return self._take((StageGroupShape(slot, slots, node),))[0]

    def _take(self, shapes: Sequence[StageGroupShape]) -> list[PlacementGroup]:
        kept = [self._idle.take(shape) for shape in shapes]
        found = [(shape, group) for shape, group in zip(shapes, kept, strict=True) if group is not None]
        self._taken.update({group.id.hex(): (shape, group) for shape, group in found})  # Before room is made: they use room.
        if len(found) < len(shapes):
            missing = (shape.amounts for shape, group in zip(shapes, kept, strict=True) if group is None)
            self._make_room(sum(missing, NOTHING))
            for pool in {shape.pool for shape in shapes}:
                self._stay_within(pool, sum(shape.pool == pool and group is None for shape, group in zip(shapes, kept, strict=True)))
        groups = [group or self._create(shape) for shape, group in zip(shapes, kept, strict=True)]
        self._taken.update({group.id.hex(): (shape, group) for shape, group in zip(shapes, groups, strict=True)})
        return groups

    def give_back(self, group: PlacementGroup, *, reuse: bool = True) -> None:
        """Return the group of an ended stage. With `reuse=False` (its tasks may have left something behind) the group is removed."""
        with self._guard:
            taken = self._taken.pop(group.id.hex(), None)
            if taken is None:
                return
            name = self._names.pop(group.id.hex(), None)
            if name is not None:
                self._return(name, group, reuse=reuse)
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
            for pool, spec in self._bounds.items():
                oldest_s = time.monotonic() - spec.idle_ms / 1_000
                self._leaving += self._idle.older_than(oldest_s, retained=spec.min_idle, is_of=partial(_is_of, pool))
            oldest_s = time.monotonic() - IDLE_S
            self._leaving += self._idle.older_than(oldest_s, is_of=lambda shape: shape.pool not in self._bounds)
            while self._leaving:
                remove_placement_group(self._leaving[0])
                del self._leaving[0]

    def keep_only(self, groups: frozenset[str]) -> None:
        """Remove all taken groups but these, by their ids."""
        with self._guard:
            for lost in self._taken.keys() - groups:
                group, name = self._taken.pop(lost)[1], self._names.pop(lost, None)
                if name is None:
                    remove_placement_group(group)
                else:
                    self._return(name, group, reuse=False)

    def close(self) -> None:
        """Remove all groups, taken ones too. The pool can be used again."""
        with self._guard:
            for _, group in self._taken.values():
                remove_placement_group(group)
            for kept in self._reserved.values():
                remove_placement_group(kept.group)
            self._taken.clear()
            self._names.clear()
            self._reserved.clear()
            self._wanted = {}
            for group in self._idle.clear():
                remove_placement_group(group)

    def _create(self, shape: StageGroupShape) -> PlacementGroup:
        common = {**self._node_labels, **dict(shape.labels)}
        selectors = [common | {NODE_LABEL: node} for node in shape.bundle_nodes] or [common] * len(shape.bundles)
        usual = "STRICT_PACK" if shape.node else "PACK"
        group: PlacementGroup = placement_group(
            [bundle_of(amounts) for amounts in shape.bundles],
            strategy=usual if shape.gang is None else shape.gang.strategy,
            bundle_label_selector=selectors if any(selectors) else None,
            # A preference: others may have taken the room since the mesh looked.
            _soft_target_node_id=shape.node or None,
        )
        return group

    def _make_room(self, wanted: ResourceSet) -> None:
        """Remove kept groups whose room the new group needs, as far as this pool can see."""
        if not self._idle:
            return
        used = [shape.amounts for shape, _ in self._taken.values()]
        used += [kept.shape.slot for kept in self._reserved.values() if not kept.is_lent]
        for group in self._idle.in_the_way(wanted, used=used, total=self._total(), amount_of=lambda shape: shape.amounts):
            remove_placement_group(group)

    def _stay_within(self, pool: PoolName, more: int) -> None:
        """Remove the pool's oldest kept groups, so that so many more are within its bound; admission bounds those in use."""
        most = self._bounds[pool].max_dynamic if pool in self._bounds else UNBOUNDED
        used = sum(shape.pool == pool for id_, (shape, _) in self._taken.items() if id_ not in self._names)
        left = max(0, most - used - more)
        for group in self._idle.older_than(time.monotonic(), retained=left, is_of=partial(_is_of, pool)):
            remove_placement_group(group)

    def _total(self) -> ResourceSet:
        """Return the total resources of the mesh's nodes, by this project's names."""
        total = NOTHING
        nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]  # Ray gives it no types
        for node in nodes:
            if node["Alive"] and all(node["Labels"].get(key) == value for key, value in self._node_labels.items()):
                total += ResourceSet.of({_OWN_NAMES.get(name, name): round(amount, 4) for name, amount in node["Resources"].items()})
        return total


def _shapes(
    slot: ResourceSet, slots: int, nodes: Sequence[NodeName], labels: tuple[tuple[str, str], ...], pool: PoolName
) -> Iterator[StageGroupShape]:
    """Yield the shapes of the groups for so many slots: a bundle each, or several when the slots are many."""
    bundles = max(1, -(-slots // PARTS_MAX))
    for first in range(0, slots, bundles):
        its_nodes = set(nodes[first : first + bundles])
        node = its_nodes.pop() if len(its_nodes) == 1 else ANY_NODE
        yield StageGroupShape(slot, min(bundles, slots - first), node, labels, pool)


def _is_of(pool: PoolName, shape: StageGroupShape) -> bool:
    return shape.pool == pool


def _shape_of(reserved: ReservedGroup) -> StageGroupShape:
    return StageGroupShape(reserved.slot, 1, reserved.node, tuple(sorted(reserved.labels.items())), reserved.pool)


def bundle_of(slot: ResourceSet) -> dict[str, float]:
    """Return the slot as Ray's bundle, without zeros: a task takes no resource that its bundle lacks."""
    bundle = {_RAY_NAMES.get(name, name): float(amount) for name, amount in slot.in_ray_units().items()}
    return bundle or {"CPU": LEAST_CPU}
