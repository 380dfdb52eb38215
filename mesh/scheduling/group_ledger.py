"""The ledger of the placement groups of all pools: which there are, who has which, which can be taken again, which must go.

Three rules come from what went wrong elsewhere: a task does not get a group that is mostly wasted on it (best fit, not first
fit); a reserved group that is lost is made again; idle groups never keep a task waiting that could run in their room.

Pure: making and removing groups is the caller's, who tells here what came of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from mesh.counting import counted
from mesh.errors import IllegalTransition, LedgerError
from mesh.ids import GroupId, NodeName, PoolName, TaskId
from mesh.pools import PoolSpec
from mesh.resources import ResourceSet
from mesh.scheduling.groups import GroupRecord, GroupState, Layer, wasted_share
from mesh.scheduling.idle_index import IdleIndex
from mesh.scheduling.shapes import GroupPoolSpec, GroupShape


class GroupLedger:
    """The groups of all pools. `records` is read by anyone and written here only; a task has one group at most."""

    def __init__(self) -> None:
        self.records: dict[GroupId, GroupRecord] = {}
        self._of_pool: dict[PoolName, dict[GroupId, GroupRecord]] = {}
        self._dynamic: dict[PoolName, int] = {}  #: How many of the dynamic layer; zeros are dropped.
        self._of_task: dict[TaskId, GroupId] = {}
        self._idle = IdleIndex()

    def record(self, group: GroupId) -> GroupRecord:
        """Raises `LedgerError` when the group is unknown."""
        found = self.records.get(group)
        if found is None:
            raise LedgerError(f"there is no placement group {group}")
        return found

    def of_pool(self, pool: PoolName) -> tuple[GroupRecord, ...]:
        """All of the pool's, in the order in which they were added."""
        return tuple(self._of_pool.get(pool, {}).values())

    def on_node(self, node: NodeName) -> tuple[GroupRecord, ...]:
        """All that have a bundle there. Looks at every group."""
        return tuple(record for record in self.records.values() if node in record.nodes)

    def held_by(self, task: TaskId) -> GroupRecord | None:
        """The group that the task has, that is made for it, or that is kept for it."""
        group = self._of_task.get(task)
        return None if group is None else self.records[group]

    def dynamic_count(self, pool: PoolName) -> int:
        """How many groups of the dynamic layer take room, those being made and removed too."""
        return self._dynamic.get(pool, 0)

    # -- from one state to the next ------------------------------------------------------------------------------------

    def add(
        self, group: GroupId, pool: PoolName, shape: GroupShape, layer: Layer, nodes: tuple[NodeName, ...], holder: TaskId | None = None
    ) -> GroupRecord:
        """A group was ordered: CREATING.

        Args:
            nodes: One per bundle.
        Raises:
            LedgerError: Its name is taken, the nodes are not as many as the bundles, or the holder has a group already.
        """
        if group in self.records:
            raise LedgerError(f"there is a placement group {group} already")
        if len(nodes) != len(shape.bundles):
            raise LedgerError(f"placement group {group} has {counted(len(shape.bundles), 'bundle')} on {counted(len(nodes), 'node')}")
        record = GroupRecord(group=group, pool=pool, shape=shape, layer=layer, nodes=nodes)
        if holder is not None:
            self._give(record, holder)
        self._enter(record)
        return record

    def ready(self, group: GroupId, now_ms: int, nodes: tuple[NodeName, ...] | None = None) -> GroupRecord:
        """Ray has made it (there, if `nodes` are given): TAKEN by whom it was made for, else IDLE.

        Raises:
            IllegalTransition: It was not being made.
            LedgerError: Unknown, or the nodes are not as many as the bundles.
        """
        record = self._expect(group, "is made", GroupState.CREATING)
        if nodes is not None:
            if len(nodes) != len(record.nodes):
                raise LedgerError(f"placement group {group} has {counted(len(record.nodes), 'bundle')} on {counted(len(nodes), 'node')}")
            record.nodes = nodes
        if record.holder is None:
            self._lay_by(record, now_ms)
        else:
            record.state, record.last_holder = GroupState.TAKEN, record.holder
        return record

    def take(self, group: GroupId, task: TaskId) -> GroupRecord:
        """The task gets it: TAKEN, or still CREATING and then for this task. A group that was kept for the task elsewhere is idle again.

        Raises:
            IllegalTransition: It is another task's, kept for another one, or being removed.
            LedgerError: Unknown, or the task has a group already.
        """
        record = self._expect(group, f"is given to {task}", GroupState.IDLE, GroupState.HELD, GroupState.CREATING)
        if record.holder not in (None, task):
            raise IllegalTransition(f"placement group {group} is {record.state.value} for {record.holder} and is given to {task}")
        if record.holder is None:
            self._give(record, task)
        if record.state is GroupState.CREATING:
            return record
        if record.state is GroupState.IDLE:
            self._idle.take_out(record)
        record.reuse_count += record.last_holder not in (None, task)
        record.state, record.idle_since_ms, record.last_holder = GroupState.TAKEN, None, task
        return record

    def give_back(self, group: GroupId, now_ms: int, hold_for: TaskId | None = None) -> GroupRecord:
        """Its holder is done with it: IDLE, or HELD for the task named. One that is being made goes on, for nobody or for that task.

        A group that is HELD, given back, is IDLE from now on: so a hold is lifted.

        Raises:
            IllegalTransition: It is idle already, or being removed.
            LedgerError: Unknown, or the task has a group already.
        """
        record = self._expect(group, "is given back", GroupState.TAKEN, GroupState.HELD, GroupState.CREATING)
        if hold_for != record.holder or hold_for is None:
            self._refuse_second(hold_for)
            self._forget_holder(record)
            if hold_for is not None:
                self._give(record, hold_for)
        if record.state is GroupState.CREATING:
            return record
        if record.holder is None:
            self._lay_by(record, now_ms)
        else:
            record.state, record.idle_since_ms = GroupState.HELD, now_ms
        return record

    def remove(self, group: GroupId) -> bool:
        """It is to go, whoever has it: REMOVING. False when it is so already. Raises `LedgerError` when it is unknown."""
        record = self.record(group)
        if record.state is GroupState.REMOVING:
            return False
        self._let_go(record)
        record.state = GroupState.REMOVING
        return True

    def drop(self, group: GroupId) -> GroupRecord | None:
        """It is gone, as ordered or lost: forgotten, whatever its state. The record as it last was; None when it is unknown."""
        record = self.records.pop(group, None)
        if record is None:
            return None
        last = GroupRecord(**{name: getattr(record, name) for name in GroupRecord.__slots__})
        self._let_go(record)
        self._leave(record)
        return last

    def restore(self, record: GroupRecord) -> None:
        """A group as it was written down, in whatever state, after those that were added before it.

        Raises:
            LedgerError: Its name is taken, its holder has a group already, or the record cannot be.
        """
        wrong = next(record.contradictions(), None)
        if wrong is not None or record.group in self.records or record.holder in self._of_task:
            raise LedgerError(wrong or f"placement group {record.group} or its holder {record.holder} is in the ledger already")
        self._enter(record)
        if record.holder is not None:
            self._of_task[record.holder] = record.group
        if record.state is GroupState.IDLE:
            self._lay_by(record, record.since_ms)

    # -- which one -----------------------------------------------------------------------------------------------------

    def match(
        self,
        pool: PoolName,
        shape: GroupShape,
        *,
        layer: Layer,
        task: TaskId | None = None,
        waste_max: float | None = None,
        accepts: Callable[[GroupRecord], bool] | None = None,
    ) -> GroupRecord | None:
        """The idle group of this layer that fits best; the one that is kept for the task, if it fits, before all others.

        Exactly this shape first, then the least waste; of equals the one that became idle last, whose processes are warmest.
        A group fits when it has as many bundles, each at least as large as the wanted one in its place, under a strategy that
        keeps the promise of the wanted one.

        Args:
            waste_max: The largest share of any resource of the group that may lie idle under the task, 0 to 1. None: nothing in
                the dynamic layer, as a group of the right size can be made there; anything in the reserved one, where waiting
                is what is to be avoided.
            accepts: Whether the task may go where the group is; asked best first. None: it may go anywhere.
        """
        allowed = waste_max if waste_max is not None else (0.0 if layer is Layer.DYNAMIC else 1.0)
        fitting = self._fitting(pool, layer, shape, task, allowed)
        return next((record for record in fitting if accepts is None or accepts(record)), None)

    def idle(self, pool: PoolName | None = None, layer: Layer = Layer.DYNAMIC) -> tuple[GroupRecord, ...]:
        """What nobody has and nothing is kept for, of one pool or of all, idle for longest first."""
        return tuple(self.records[group] for group in self._idle.oldest(pool, layer))

    def expired(self, now_ms: int, spec: PoolSpec) -> tuple[GroupRecord, ...]:
        """The pool's dynamic groups that were idle for too long, beyond the `min_idle` that are kept; oldest first.

        All idle ones where groups are not used again, or no longer wanted at all.
        """
        idle = self.idle(spec.pool)
        if spec.groups is None or not spec.groups.reuse:
            return idle
        beyond = idle[: max(0, len(idle) - spec.groups.min_idle)]
        return tuple(record for record in beyond if now_ms - record.since_ms >= spec.groups.idle_ms)

    def missing_reserved(self, pool: PoolName, spec: GroupPoolSpec | None) -> tuple[GroupShape, ...]:
        """The shapes of the reserved layer that no group stands for: to be made, at first and after each loss."""
        there = self._reserved_shapes(pool)
        missing = []
        for shape in spec.reserved if spec is not None else ():
            if there[shape]:
                there[shape] -= 1
            else:
                missing.append(shape)
        return tuple(missing)

    def surplus_reserved(self, pool: PoolName, spec: GroupPoolSpec | None) -> tuple[GroupRecord, ...]:
        """Idle reserved groups of shapes that the pool no longer wants so many of: to be removed, oldest first."""
        surplus = self._reserved_shapes(pool)
        surplus.subtract(spec.reserved if spec is not None else ())
        found = []
        for record in self.idle(pool, Layer.RESERVED):
            if surplus[record.shape] > 0:
                surplus[record.shape] -= 1
                found.append(record)
        return tuple(found)

    def in_the_way(self, pool: PoolName | None, needed: ResourceSet, node: NodeName) -> tuple[GroupRecord, ...]:
        """Idle dynamic groups (of one pool, or of all) that have to go so that `needed` comes free on the node, oldest first.

        `min_idle` does not save them: it speaks of age. None of them is there for nothing; and where all of them would not make
        the room, none is named.

        Args:
            needed: What is wanted beyond what is free there.
        """
        left, chosen = dict(needed.items()), []
        for record in self.idle(pool):
            amounts = record.amounts_on(node)
            if any(amounts[name] and lack > 0 for name, lack in left.items()):
                chosen.append((record, amounts))
                left = {name: lack - amounts[name] for name, lack in left.items()}
        if any(lack > 0 for lack in left.values()):
            return ()
        for pair in reversed(chosen[:-1]):  # The last was needed when it was chosen, after all others.
            without = {name: lack + pair[1][name] for name, lack in left.items()}
            if all(lack <= 0 for lack in without.values()):
                chosen.remove(pair)
                left = without
        return tuple(record for record, _ in chosen)

    # -- invariants ----------------------------------------------------------------------------------------------------

    def check(self) -> list[str]:
        """Every broken invariant, in words; empty when all hold. Costs as much as there are groups."""
        found = [words for record in self.records.values() for words in record.contradictions()]
        holders = {record.holder: record.group for record in self.records.values() if record.holder is not None}
        if holders != self._of_task or len(holders) != sum(record.holder is not None for record in self.records.values()):
            found.append("the holders of the groups are not those of the index")
        idle = sorted(record.group for record in self.records.values() if record.state is GroupState.IDLE)
        found += self._idle.check()
        if self._idle.groups() != idle:
            found.append(f"idle are {idle}, the index has {self._idle.groups()}")
        if self._dynamic != Counter(record.pool for record in self.records.values() if record.layer is Layer.DYNAMIC):
            found.append(f"the pools count {self._dynamic} dynamic groups, which is not what there is")
        if {group for groups in self._of_pool.values() for group in groups} != self.records.keys():
            found.append("the pools have other groups than the ledger")
        return found

    # -- the indexes ---------------------------------------------------------------------------------------------------

    def _fitting(self, pool: PoolName, layer: Layer, shape: GroupShape, task: TaskId | None, waste_max: float) -> Iterator[GroupRecord]:
        """What may be taken for this shape, best first."""
        own = None if task is None else self.held_by(task)
        is_kept_here = own is not None and own.state is GroupState.HELD and (own.pool, own.layer) == (pool, layer)
        if own is not None and is_kept_here and wasted_share(own.shape, shape, waste_max) is not None:
            yield own
        for group in self._idle.fitting(pool, layer, shape, waste_max):
            yield self.records[group]

    def _expect(self, group: GroupId, happens: str, *states: GroupState) -> GroupRecord:
        record = self.record(group)
        if record.state not in states:
            story = f"{record.layer.value} of pool {record.pool}, last with {record.last_holder}"
            raise IllegalTransition(f"placement group {group} ({story}) is {record.state.value} and {happens}")
        return record

    def _refuse_second(self, task: TaskId | None) -> None:
        """A task has one group; one that is only kept for it does not count, and makes room for the new one."""
        own = None if task is None else self.held_by(task)
        if own is not None and own.state is not GroupState.HELD:
            raise LedgerError(f"{task} has placement group {own.group} already")

    def _give(self, record: GroupRecord, task: TaskId) -> None:
        self._refuse_second(task)
        own = self.held_by(task)
        if own is not None:
            self._forget_holder(own)
            self._lay_by(own, own.since_ms)
        record.holder = task
        self._of_task[task] = record.group

    def _enter(self, record: GroupRecord) -> None:
        self.records[record.group] = self._of_pool.setdefault(record.pool, {})[record.group] = record
        if record.layer is Layer.DYNAMIC:
            self._dynamic[record.pool] = self._dynamic.get(record.pool, 0) + 1

    def _leave(self, record: GroupRecord) -> None:
        del self._of_pool[record.pool][record.group]
        if not self._of_pool[record.pool]:
            del self._of_pool[record.pool]
        if record.layer is Layer.DYNAMIC:
            self._dynamic[record.pool] -= 1
            if not self._dynamic[record.pool]:
                del self._dynamic[record.pool]

    def _forget_holder(self, record: GroupRecord) -> None:
        if record.holder is not None:
            del self._of_task[record.holder]
            record.holder = None

    def _lay_by(self, record: GroupRecord, since_ms: int) -> None:
        record.state, record.idle_since_ms = GroupState.IDLE, since_ms
        self._idle.put(record)

    def _let_go(self, record: GroupRecord) -> None:
        if record.state is GroupState.IDLE:
            self._idle.take_out(record)
        self._forget_holder(record)
        record.idle_since_ms = None

    def _reserved_shapes(self, pool: PoolName) -> Counter[GroupShape]:
        return Counter(
            record.shape
            for record in self._of_pool.get(pool, {}).values()
            if record.layer is Layer.RESERVED and record.state is not GroupState.REMOVING
        )
