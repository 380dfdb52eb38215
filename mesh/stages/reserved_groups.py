"""Reserved groups of the pools: room that the mesh holds for stages of `reserved_priority` and more. Pure.

Each reserved group is one slot-sized placement group, which the host makes when the mesh starts. While no stage has it, the group is a
holder in its pool and on its node, so that no other work gets its room. A stage that takes it is charged for its slots instead; what the
stage's slot leaves of the group stays held. Layers, matching and reuse are those of the local mesh (`mesh.placement.group_ledger`).

A group whose room others have, after a change of the configuration or a lost node, gets room as it comes free, before all work.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from mesh.core.ids import GroupId, NodeName, PoolName, StageId, TaskId
from mesh.core.pools import PoolLedger
from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.shapes import GroupShape
from mesh.placement.group_ledger import GroupLedger
from mesh.placement.groups import GroupRecord, GroupState, Layer
from mesh.stages.hosting import GroupLayers, ReservedGroup
from mesh.stages.slot_placement import SlotPlacement

#: The node of a group that Ray places, or that has no room yet.
_NO_NODE = NodeName("")
NO_POOLS: frozenset[PoolName] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCounts:
    """Reserved groups of a pool."""

    reserved: int = 0  #: Configured.
    in_use: int = 0  #: A stage has them.
    idle: int = 0  #: Held for urgent stages. The rest waits for room.
    reuse_count: int = 0  #: How often one passed from one stage to another.


#: Counts of a pool without reserved groups.
NO_GROUPS = GroupCounts()


class ReservedGroups:
    """Reserved groups of all pools of a mesh.

    Args:
        pools: Holds the room of idle groups under `holder_of`.
        placement: Holds their nodes under the same names.
    """

    def __init__(self, pools: PoolLedger, placement: SlotPlacement) -> None:
        self._pools, self._placement = pools, placement
        self._groups = GroupLedger()
        self._of_stage: dict[StageId, list[GroupId]] = {}  #: In the order of the stage's slots.
        self._unheld: dict[GroupId, None] = {}  #: Groups without a stage whose room is not held, or only a part of it.
        self._thresholds: dict[PoolName, float] = {}
        for name, pool in pools.pools.items():
            spec = pool.spec.groups
            for number, shape in enumerate(spec.reserved if spec is not None else ()):
                group = GroupId(f"{name}/{number}")
                self._groups.add(group, name, shape, Layer.RESERVED, (_NO_NODE,))
                self._groups.ready(group, 0)
                self._unheld[group] = None
            if spec is not None and spec.reserved:
                self._thresholds[name] = spec.reserved_priority
        self.fill()

    # -- questions -----------------------------------------------------------------------------------------------------

    def pools_for(self, priority: int) -> frozenset[PoolName]:
        """Return the pools whose reserved groups work of this priority may take."""
        if not self._thresholds:
            return NO_POOLS
        return frozenset(pool for pool, threshold in self._thresholds.items() if priority >= threshold)

    def threshold(self, pool: PoolName) -> float:
        """Return the least priority of work that may take a reserved group of the pool, which has some."""
        return self._thresholds[pool]

    def has(self, pool: PoolName, slot: ResourceSet) -> bool:
        """Return whether an idle group of the pool holds a slot."""
        return pool in self._thresholds and self._match(pool, slot) is not None

    def idle_amounts(self, pool: PoolName) -> ResourceSet:
        """Return the room that the pool's groups hold while no stage has it."""
        if pool not in self._thresholds:
            return NOTHING
        held = self._pools.pools[pool].reservations
        return sum((held.get(holder_of(record.group), NOTHING) for record in self._groups.of_pool(pool)), start=NOTHING)

    def groups_of(self, stage: StageId) -> tuple[GroupId, ...]:
        """Return the groups that the stage has."""
        return tuple(self._of_stage.get(stage, ()))

    def places_of(self, stage: StageId) -> dict[GroupId, NodeName]:
        """Return the stage's groups with their nodes; an empty name: unknown."""
        return {group: self._groups.record(group).nodes[0] for group in self.groups_of(stage)}

    def nodes_beside(self, stage: StageId) -> tuple[NodeName, ...]:
        """Return the nodes of the slots that a stage that has not started has beside its groups."""
        return self._placement.nodes_of(stage)[sum(node != _NO_NODE for node in self.places_of(stage).values()) :]

    def groups(self, pool: PoolName) -> tuple[GroupRecord, ...]:
        """Return the records of the pool's groups."""
        return self._groups.of_pool(pool)

    def layers(self) -> GroupLayers:
        """Return the groups that the host should keep: reserved ones with room, and those of stages."""
        reserved = (
            ReservedGroup(
                group=record.group,
                pool=record.pool,
                slot=record.shape.amounts,
                node=record.nodes[0],
                labels=self._pools.pool(record.pool).spec.selector,
            )
            for record in self._groups.records.values()
            if record.group not in self._unheld
        )
        specs = {name: pool.spec.groups for name, pool in self._pools.pools.items() if pool.spec.groups is not None}
        return GroupLayers(reserved=tuple(reserved), pools=specs)

    def counts(self, pool: PoolName) -> GroupCounts:
        """Return the counts of the pool's groups."""
        records = self._groups.of_pool(pool)
        return GroupCounts(
            reserved=len(records),
            in_use=sum(record.state is GroupState.TAKEN for record in records),
            idle=sum(record.state is GroupState.IDLE and record.group not in self._unheld for record in records),
            reuse_count=sum(record.reuse_count for record in records),
        )

    # -- changes -------------------------------------------------------------------------------------------------------

    def take(self, stage: StageId, pool: PoolName, slot: ResourceSet, most: int) -> int:
        """Give the stage up to `most` idle groups, best fit first; return how many. The caller charges the pool for its slots at once."""
        taken = 0
        while taken < most and pool in self._thresholds and (record := self._match(pool, slot)) is not None:
            self._give(record, stage, slot)
            taken += 1
        return taken

    def find(self, stage: StageId, pool: PoolName, slot: ResourceSet, groups: Mapping[GroupId, NodeName]) -> None:
        """Record the groups of a stage that an earlier process has started. The caller then charges pool and nodes for its slots.

        Args:
            groups: With their nodes. Those that are not configured any more are ignored.
        """
        for group, node in groups.items():
            record = self._groups.records.get(group)
            if record is not None and (record.pool, record.state) == (pool, GroupState.IDLE) and slot <= record.shape.amounts:
                self._placement.release(holder_of(group))
                record.nodes = (node,)
                self._give(record, stage, slot)
                rest = record.shape.amounts - slot
                self._placement.find(holder_of(group), rest, (node,) if rest and node else ())

    def make_room(self, pool: PoolName, amounts: ResourceSet) -> None:
        """Give up idle groups of the pool, the last first, until `amounts` fit: found work runs already. They get room as it comes free."""
        for record in reversed(self._groups.of_pool(pool) if pool in self._thresholds else ()):
            if self._pools.pools[pool].fits(amounts):
                return
            if record.state is GroupState.IDLE:
                self._forget_room(record)

    def join(self, stage: StageId, other: StageId) -> None:
        """Give the stage the groups that are recorded under another name."""
        groups = self._of_stage.pop(other, [])
        for group in groups:
            self._groups.give_back(group, 0)
            self._groups.take(group, _task(stage, group))
        if groups:
            self._of_stage.setdefault(stage, []).extend(groups)

    def keep(self, stage: StageId, slots: int) -> None:
        """Take the stage's groups beyond the first `slots` back."""
        self.give_back(stage, self.groups_of(stage)[slots:])

    def give_back(self, stage: StageId, groups: Collection[GroupId] | None = None) -> None:
        """Take these groups back from the stage, or all of them; nodes first, so call it before the stage's own are released.

        Their room is held again at the next `fill`, before other work can get it.
        """
        mine = self._of_stage.get(stage, [])
        for group in [group for group in mine if groups is None or group in groups]:
            record = self._groups.give_back(group, 0)
            if not self._placement.take_back(holder_of(group), stage, record.shape.amounts, record.nodes[0]):
                record.nodes = (_NO_NODE,)
            mine.remove(group)
            self._unheld[group] = None
        if not mine:
            self._of_stage.pop(stage, None)

    def note_nodes(self) -> None:
        """Place idle groups again whose node is gone, or that had none while the nodes were unknown."""
        for record in self._groups.idle(layer=Layer.RESERVED):
            if record.group not in self._unheld and not self._placement.is_known(record.nodes[0]):
                self._placement.release(holder_of(record.group))
                record.nodes = (_NO_NODE,)
                self._unheld[record.group] = None

    def fill(self) -> None:
        """Hold the room of idle groups, as far as there is any."""
        for group in tuple(self._unheld):
            record, holder = self._groups.record(group), holder_of(group)
            pool, wanted = self._pools.pool(record.pool), record.shape.amounts
            room = pool.free + pool.reservations.get(holder, NOTHING)
            self._pools.release(holder)
            self._pools.reserve(record.pool, holder, ResourceSet({name: min(units, room[name]) for name, units in wanted.items()}))
            is_placed = bool(self._placement.nodes_of(holder))
            if wanted <= room and (is_placed or self._placement.place(holder, record.pool, wanted, 1)):
                record.nodes = self._placement.nodes_of(holder) or (_NO_NODE,)
                del self._unheld[group]

    # -- invariants ----------------------------------------------------------------------------------------------------

    def check(self) -> Iterator[str]:
        """Yield a message per broken invariant: the room of each group is held, by the group or by its stage."""
        yield from self._groups.check()
        for record in self._groups.records.values():
            held = self._pools.held_by(holder_of(record.group))
            if record.state is GroupState.IDLE and record.group not in self._unheld and held != record.shape.amounts:
                yield f"reserved group {record.group} is idle and holds {held} of {record.shape.amounts}"
            if record.state is GroupState.TAKEN and record.holder not in {
                _task(stage, record.group) for stage, groups in self._of_stage.items() if record.group in groups
            }:
                yield f"reserved group {record.group} is taken by {record.holder}, which does not have it"

    def _match(self, pool: PoolName, slot: ResourceSet) -> GroupRecord | None:
        if not slot:
            return None
        return self._groups.match(pool, GroupShape((slot,)), layer=Layer.RESERVED, accepts=lambda record: record.group not in self._unheld)

    def _give(self, record: GroupRecord, stage: StageId, slot: ResourceSet) -> None:
        holder, rest = holder_of(record.group), record.shape.amounts - slot
        self._groups.take(record.group, _task(stage, record.group))
        self._of_stage.setdefault(stage, []).append(record.group)
        self._unheld.pop(record.group, None)
        self._pools.release(holder)
        if rest and self._pools.pool(record.pool).fits(rest):
            self._pools.reserve(record.pool, holder, rest)
        self._placement.lend(holder, stage, slot)

    def _forget_room(self, record: GroupRecord) -> None:
        self._pools.release(holder_of(record.group))
        self._placement.release(holder_of(record.group))
        record.nodes = (_NO_NODE,)
        self._unheld[record.group] = None


def holder_of(group: GroupId) -> StageId:
    """Return the name under which pool and node hold the room of a reserved group."""
    return StageId(f"reserved {group}")


def _task(stage: StageId, group: GroupId) -> TaskId:
    """Return the stage's name as a holder of this group: in the ledger a holder has one group."""
    return TaskId(f"{stage} {group}")
