"""Placement of slots on the nodes of a mesh, by the policy and the label selector of each pool. Pure.

Each slot lies on one node. The placement knows what the mesh's own stages hold there, and what others use. Candidates and policies are
those of tasks (`mesh.tasks.queued_shapes`): scores are kept per slot size and pool, and a placement changes one row.

Or each slot is a gang: bundles on several nodes, which are found all together or not at all. They are equal, so best fit by the gang's
strategy (`mesh.tasks.gang_placement`) finds places for all of them whenever there are any.

Placement is left to Ray, and slots have no node, while the nodes are unknown, and where a mesh may grow: an autoscaler adds nodes only
for work that waits in Ray. See `mesh.core.node_sizes.may_grow`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace

import numpy as np

from mesh.core.counting import counted
from mesh.core.ids import NodeName, PoolName, StageId, TaskId
from mesh.core.labels import mismatch
from mesh.core.node_instances import UNIT_INSTANCE_RESOURCES, copies_on_node, is_possible
from mesh.core.node_sizes import may_grow
from mesh.core.nodes import NodeTable, Units
from mesh.core.pools import PoolLedger
from mesh.core.random_stream import RandomStream
from mesh.core.reasons import Reason
from mesh.core.resources import NOTHING, ResourceSet, format_units
from mesh.core.seen_nodes import ForeignUse, NodeSeen
from mesh.core.shapes import Gang, SlotShape, bundles_in, without_slots
from mesh.core.task_spec import TaskRequest, Weights
from mesh.placement.candidates import Candidates
from mesh.placement.feasibility import impossible, in_parts
from mesh.placement.two_pass import promise_copies
from mesh.policies.catalogue import ALIASES, BUILT_INS, Catalogue, UnknownPolicy, parts_of
from mesh.tasks.gang_placement import PlacementUnit, arrange
from mesh.tasks.queued_shapes import QueuedShapes
from mesh.tasks.settings import SchedulerSettings

#: Node policies that read what a stage's slot has not: arguments on a node, a job, a named node, the priority of one task.
_OF_TASKS = frozenset({"gang", "job_affinity", "job_anti_affinity", "leader_first", "locality", "node_affinity", "priority"})
#: Number of slot sizes whose candidates, and copies on the empty nodes, are kept.
_COPIES_KEPT_MAX = 1_000
#: Length at which the node table's log of touched rows is cut.
_TOUCHED_MAX = 1 << 16


class SlotPlacement:
    """Nodes of a mesh, and the slots of stages on them.

    Args:
        pools: Pools of the mesh with their selectors and policies; read only.
        weights: Weights of the `weighted` policy.
        seed: For policies that draw.
    """

    def __init__(self, pools: PoolLedger, *, weights: Weights | None = None, catalogue: Catalogue = BUILT_INS, seed: int = 0) -> None:
        self._pools = pools
        self._table = NodeTable()
        settings = SchedulerSettings(weights=weights) if weights is not None else SchedulerSettings()
        self._shapes = QueuedShapes(settings, catalogue, self._table, pools, {})
        self._draw = RandomStream(seed).draw
        self._foreign = ForeignUse()
        self._nodes: dict[NodeName, NodeSeen] = {}
        self._held: dict[StageId, tuple[SlotShape, tuple[NodeName, ...]]] = {}  #: The node of each slot, or of each bundle of each gang.
        self._copies: dict[tuple[PoolName, SlotShape], int | None] = {}  #: Cache of `copies` until the nodes change.
        self._found: dict[tuple[PoolName, ResourceSet], Candidates] = {}  #: Cache of `_candidates`.
        self._asked = 0  #: Number of placements, for the census of slot sizes.

    # -- nodes ---------------------------------------------------------------------------------------------------------

    @property
    def totals(self) -> tuple[ResourceSet, ...]:
        """Total resources of each node; empty: the nodes are unknown."""
        return tuple(node.total for node in self._nodes.values())

    def see(self, nodes: Sequence[NodeSeen]) -> bool:
        """Take in a look at all nodes of the mesh. Return whether a slot may fit that did not, or fits no more.

        Args:
            nodes: `available` leaves out what the mesh's own placement groups hold.
        """
        names = {node.node for node in nodes}
        gone = self._nodes.keys() - names
        has_changed = bool(gone)
        for name in gone:
            del self._nodes[name]
            self._foreign.forget(name)
            self._table.leave(name)
        for node in nodes:
            before = self._nodes.get(node.node)
            if before is None or (before.total, before.labels) != (node.total, node.labels):
                self._table.join(node.node, node.total, node.labels)
                has_changed = True
            if before is None:
                self._place_again(node.node)
            self._nodes[node.node] = node
            foreign = self._foreign.change(node.node, node.used_beside(NOTHING))
            if foreign is not None:
                self._table.see_foreign(node.node, self._table.vector(foreign))
                has_changed = True
        if has_changed:
            self._copies.clear()
        return has_changed

    def _place_again(self, name: NodeName) -> None:
        """Charge a node that is listed again for the slots that were on it: Ray may have missed it for one look."""
        row = self._table.row(name)
        for stage, (slot, nodes) in self._held.items():
            for node in nodes:
                if node == name:
                    self._table.queue_for(row, self._piece(slot), stage)

    # -- questions -----------------------------------------------------------------------------------------------------

    def copies(self, pool: PoolName, slot: SlotShape) -> int | None:
        """Return how many slots the pool's nodes hold when empty; None: any number, or Ray places them."""
        key = pool, slot
        if key not in self._copies:
            if len(self._copies) >= _COPIES_KEPT_MAX:
                self._copies.clear()
            self._copies[key] = self._count(pool, slot)
        return self._copies[key]

    def _count(self, pool: PoolName, slot: SlotShape) -> int | None:
        amounts = slot.slot if isinstance(slot, Gang) else slot
        if not amounts or not self._nodes:
            return None
        if may_grow(amounts, (each.spec.capacity for each in self._pools.pools.values()), self.totals):
            return None
        if isinstance(slot, Gang):
            return slot.copies_in(self._empty(pool))
        rows = self._candidates(pool, slot).feasible_rows().tolist()
        return sum(copies_on_node(slot, self._nodes[self._table.name(row)].total) for row in rows)

    def _empty(self, pool: PoolName) -> list[tuple[ResourceSet, int]]:
        """Return the totals of the pool's nodes."""
        return [(node.total, 1) for node in self._nodes.values() if self._is_labelled(node, pool)]

    def fits(self, pool: PoolName, slot: SlotShape) -> bool:
        """Return whether the nodes of the pool have a slot free now."""
        copies = self.copies(pool, slot)
        if isinstance(slot, Gang):
            return copies is None or (copies > 0 and self._free_bundles(pool, slot) == slot.size)
        return copies is None or (copies > 0 and self._candidates(pool, slot).fit())

    def _free_bundles(self, pool: PoolName, gang: Gang) -> int:
        """Return how many bundles of one gang have a node now."""
        (unit, *_) = self._units(pool, gang)
        columns = np.flatnonzero(unit.vector)
        copies = (self._free_for(gang)[unit.rows][:, columns] // unit.vector[columns]).min(axis=1, initial=gang.size)
        found = int(np.minimum(copies, 1).sum() if gang.strategy == "STRICT_SPREAD" else copies.sum())
        return min(gang.size, found * unit.bundles)

    def _free_for(self, gang: Gang) -> Units:
        """Return what bundles of this size can use of each node: GPUs in parts are no use to a bundle of a whole one."""
        free: Units = np.maximum(self._table.left_for((self._table.vector(gang.bundle),)), 0)
        return free

    def _units(self, pool: PoolName, gang: Gang) -> tuple[PlacementUnit, ...]:
        """Return the places that a gang needs."""
        wanted, count = gang.places
        vector, rows = self._table.vector(wanted), self._candidates(pool, gang.bundle).feasible_rows()
        unit = PlacementUnit(
            task=TaskId(""),
            vector=vector,
            rows=rows[(self._table.total[rows] >= vector).all(axis=1)],
            strategy=gang.strategy if count > 1 else "",
            bundles=gang.size // count,
        )
        return (unit,) * count

    def refusal(self, pool: PoolName, slot: SlotShape) -> tuple[Reason, str]:
        """Return why no node of the pool has a slot free."""
        if isinstance(slot, Gang):
            return self._refusal_of_gang(pool, slot)
        wanted = ", ".join(f"{format_units(name, units)} {name}" for name, units in slot.items())
        candidates = self._candidates(pool, slot)
        count = len(candidates.feasible_rows())
        split = candidates.in_parts() if count else None
        if split is not None:
            return Reason.INSTANCES_FRAGMENTED, f"one slot takes {wanted}, and {in_parts(*split)} free on no node of the mesh"
        if count:
            words = f"one slot takes {wanted}, and {counted(count, 'node')} of the mesh would hold it when empty; none has that much free"
            return Reason.NODES_BUSY, words
        return Reason.NO_NODE_FITS, self._no_node(pool, slot, wanted)

    def _refusal_of_gang(self, pool: PoolName, gang: Gang) -> tuple[Reason, str]:
        if self.copies(pool, gang) == 0:
            empty = gang.places_in(self._empty(pool))
            return Reason.NO_NODE_FITS, f"{gang.words()}, {empty} would have a node of pool {pool} when all are empty"
        has = "has a node" if (found := self._free_bundles(pool, gang)) == 1 else "have a node"
        return Reason.NODES_BUSY, f"{gang.words()}, {found} {has}; the gang starts when all have one"

    def _no_node(self, pool: PoolName, slot: ResourceSet, wanted: str) -> str:
        split = next((name for name in slot if name in UNIT_INSTANCE_RESOURCES and not is_possible(slot[name])), None)
        if split is not None:
            return f"one slot takes {wanted}: {impossible(split, slot[split])}"
        selector = self._pools.pools[pool].spec.selector
        allowed = [node.total for node in self._nodes.values() if self._is_labelled(node, pool)]
        if not allowed:
            labels = ", ".join(f"{key}={value}" for key, value in sorted(selector.items()))
            return f"no node of the mesh has the labels of pool {pool}: {labels}"
        most = {name: max(total[name] for total in allowed) for name in slot}
        short = next((name for name in slot if slot[name] > most[name]), None)
        takes = wanted if short is None else f"{format_units(short, slot[short])} {short}"
        has = f"; the largest has {format_units(short, most[short])}" if short is not None else " together"
        where = f"pool {pool}" if selector else "the mesh"
        return f"one slot takes {takes}, and no node of {where} has that much{has}"

    def _is_labelled(self, node: NodeSeen, pool: PoolName) -> bool:
        return mismatch(self._pools.pools[pool].spec.selector, node.labels) is None

    # -- slots of stages -----------------------------------------------------------------------------------------------

    def place(self, stage: StageId, pool: PoolName, slot: SlotShape, most: int) -> int:
        """Hold up to `most` more slots for the stage; return how many. Those beyond `nodes_of` are placed by Ray."""
        if self.copies(pool, slot) is None:
            return most
        self._asked += 1
        chosen = self._choose_gangs(stage, pool, slot, most) if isinstance(slot, Gang) else self._choose(stage, pool, slot, most)
        self._held[stage] = slot, (*self.nodes_of(stage), *chosen)
        if len(self._table.touched) > _TOUCHED_MAX:
            self._table.touched.clear()
            self._table.shape_version += 1
        return len(chosen) // _bundles_of(slot)

    def _choose(self, stage: StageId, pool: PoolName, slot: ResourceSet, most: int) -> list[NodeName]:
        self._shapes.count_demand(_request(pool, slot), self._asked)
        rows = promise_copies(self._candidates(pool, slot), self._table, self._draw, most, stage)
        return [self._table.name(row) for row in rows]

    def _choose_gangs(self, stage: StageId, pool: PoolName, gang: Gang, most: int) -> list[NodeName]:
        """Hold whole gangs: the nodes of all bundles are found before the first is charged."""
        vector, chosen = self._table.vector(gang.bundle), list[NodeName]()
        while len(chosen) < most * gang.size and (rows := self._arrange(pool, gang)) is not None:
            for row in rows:
                self._table.promise(row, vector, stage)
                chosen.append(self._table.name(row))
        return chosen

    def _arrange(self, pool: PoolName, gang: Gang) -> list[int] | None:
        """Return a row for each bundle. Under PACK, one node for all of them comes first."""
        tried = (replace(gang, strategy="STRICT_PACK"), gang) if gang.strategy == "PACK" else (gang,)
        for units in (self._units(pool, each) for each in tried):
            rows = arrange(units, self._free_for(gang))
            if rows is not None:
                return [row for unit, row in zip(units, rows, strict=True) for _ in range(unit.bundles)]
        return None

    def nodes_of(self, stage: StageId) -> tuple[NodeName, ...]:
        """Return the node of each slot of the stage, or of each bundle, gang after gang; empty: Ray places the slots."""
        return self._held[stage][1] if stage in self._held else ()

    def find(self, stage: StageId, slot: SlotShape, nodes: Sequence[NodeName]) -> None:
        """Charge the nodes for a stage that an earlier process of the mesh has placed."""
        if nodes:
            self._held[stage] = slot, tuple(nodes)
            self._charge(stage, slot, nodes)

    def keep(self, stage: StageId, slots: int) -> None:
        """Release the stage's slots beyond the first `slots`."""
        slot, nodes = self._held.get(stage, (NOTHING, ()))
        kept = slots * _bundles_of(slot)
        if len(nodes) > kept:
            self._withdraw(stage, slot, nodes[kept:])
            self._held[stage] = slot, nodes[:kept]

    def withdraw(self, stage: StageId, nodes: Sequence[NodeName]) -> None:
        """Release one slot of the stage on each of these nodes, or each gang on them, as far as the stage has them."""
        slot, held = self._held.get(stage, (NOTHING, ()))
        left = without_slots(held, nodes, _bundles_of(slot))
        self._withdraw(stage, slot, tuple((Counter(held) - Counter(left)).elements()))
        if stage in self._held:
            self._held[stage] = slot, left

    def join(self, stage: StageId, other: StageId) -> None:
        """Add the slots that are held under another name to those of the stage."""
        slot, nodes = self._held.pop(other, (NOTHING, ()))
        if nodes:
            self._held[stage] = slot, (*self.nodes_of(stage), *nodes)
            for node in {*nodes}:
                if node in self._table:
                    self._table.move_instances(self._table.row(node), other, stage)

    def lend(self, lender: StageId, stage: StageId, slot: ResourceSet) -> None:
        """Move a slot from the lender's to the stage, on the same node; the lender keeps what is left there. Harmless if it has no node."""
        bundle, nodes = self._held.pop(lender, (NOTHING, ()))
        if not nodes or isinstance(bundle, Gang):
            return
        rest = bundle - slot
        self._held[stage] = slot, (*self.nodes_of(stage), *nodes)
        if rest:
            self._withdraw(lender, bundle, nodes)
            self._charge(stage, slot, nodes)
            self.find(lender, rest, nodes)
            return
        for node in nodes:
            if node in self._table:
                self._table.move_instances(self._table.row(node), lender, stage)

    def take_back(self, lender: StageId, stage: StageId, bundle: ResourceSet, node: NodeName) -> bool:
        """Move a lent slot back; the lender has its whole bundle on the node again. False: the stage has no slot on this node."""
        slot, held = self._held.get(stage, (NOTHING, ()))
        self.release(lender)
        if node not in held or node not in self._table:
            return False
        place = held.index(node)
        self._withdraw(stage, slot, (node,))
        self._held[stage] = slot, (*held[:place], *held[place + 1 :])
        self.find(lender, bundle, (node,))
        return True

    def is_known(self, node: NodeName) -> bool:
        """Return whether the node is in the mesh; any node is while the nodes are unknown."""
        return not self._nodes or node in self._nodes

    def release(self, stage: StageId) -> None:
        """Release all slots of the stage. Harmless if it has none."""
        self._withdraw(stage, *self._held.pop(stage, (NOTHING, ())))

    def change_weights(self, weights: Weights) -> None:
        """Score nodes by these weights of the `weighted` policy from now on. Slots stay where they are."""
        if weights != self._shapes.settings.weights:
            self._shapes.change_settings({f"weights.{name.name}": getattr(weights, name.name) for name in fields(weights)})
            self._shapes.drop_buckets()
            self._found.clear()

    def _charge(self, stage: StageId, slot: SlotShape, nodes: Sequence[NodeName]) -> None:
        for node in nodes:
            if node in self._table:
                self._table.queue_for(self._table.row(node), self._piece(slot), stage)

    def _withdraw(self, stage: StageId, slot: SlotShape, nodes: Sequence[NodeName]) -> None:
        rows = [self._table.row(node) for node in nodes if node in self._table]
        if rows:
            self._table.withdraw_each(rows, self._piece(slot), stage)

    def _piece(self, slot: SlotShape) -> Units:
        """Return what a slot, or each bundle of a gang, takes of its node."""
        return self._table.vector(slot.bundle if isinstance(slot, Gang) else slot)

    def _candidates(self, pool: PoolName, slot: ResourceSet) -> Candidates:
        found = self._found.get((pool, slot))
        if found is None:
            if len(self._found) >= _COPIES_KEPT_MAX:
                self._found.clear()
            found = self._found[pool, slot] = self._shapes.bucket_for(_request(pool, slot)).candidates
        return found

    def check(self) -> Iterator[str]:
        """Yield a message per broken invariant: each node's load is the sum of the slots on it, and gangs are whole."""
        load = self._table.load * 0
        for stage, (slot, nodes) in self._held.items():
            for node in nodes:
                if node in self._table:
                    load[self._table.row(node)] += self._piece(slot)
            if isinstance(slot, Gang):
                yield from _wrong_gangs(stage, slot, nodes)
        if (load != self._table.load).any():
            yield f"nodes promise {self._table.load.tolist()}, expected {load.tolist()}"
        yield from self._table.check_instances()


def check_policy(name: str, catalogue: Catalogue = BUILT_INS) -> None:
    """Check the name of a pool's node policy.

    Raises:
        UnknownPolicy: The catalogue has no policy of this name, or it places single tasks only.
    """
    catalogue.policy(name)
    for _, part in parts_of(name):
        if ALIASES.get(part, part) in _OF_TASKS:
            usable = ", ".join(known for known in catalogue.names if known not in _OF_TASKS)
            raise UnknownPolicy(f"the policy {part!r} places single tasks, not the slots of stages; use one of {usable}")


def _bundles_of(slot: SlotShape) -> int:
    return bundles_in(slot if isinstance(slot, Gang) else None)


def _wrong_gangs(stage: StageId, gang: Gang, nodes: Sequence[NodeName]) -> Iterator[str]:
    for first in range(0, len(nodes), gang.size):
        held = nodes[first : first + gang.size]
        distinct = {"STRICT_PACK": 1, "STRICT_SPREAD": gang.size}.get(gang.strategy, len(set(held)))
        if len(held) != gang.size or len(set(held)) != distinct:
            yield f"{stage} holds {', '.join(held)} for a gang of {gang.words()}"


def _request(pool: PoolName, slot: ResourceSet) -> TaskRequest:
    """Return the request that stands for all slots of this size in the pool."""
    return TaskRequest(task=TaskId(""), pool=pool, resources=slot, has_agent=False)
