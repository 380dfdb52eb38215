"""Ledger of the placement groups of all pools: state, holder, matching and removal.

Three rules: a task does not get a group that is mostly wasted on it (best fit, not first fit); a lost reserved group is created again;
idle groups never keep a task waiting that could use their resources.

Pure: the caller creates and removes groups in Ray and reports the results here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from mesh.core.counting import counted
from mesh.core.ids import GroupId, NodeName, PoolName, TaskId
from mesh.core.pools import PoolSpec
from mesh.core.resources import ResourceSet
from mesh.core.shapes import GroupPoolSpec, GroupShape
from mesh.errors import IllegalTransition, LedgerError
from mesh.placement.groups import GroupRecord, GroupState, Layer, wasted_share
from mesh.placement.idle_index import IdleIndex


class GroupLedger:
    """Groups of all pools. Only the ledger writes `records`; a task has at most one group."""

    def __init__(self) -> None:
        self.records: dict[GroupId, GroupRecord] = {}
        self._of_pool: dict[PoolName, dict[GroupId, GroupRecord]] = {}
        self._dynamic: dict[PoolName, int] = {}  #: Number of groups in the dynamic layer; zeros are dropped.
        self._of_task: dict[TaskId, GroupId] = {}
        self._idle = IdleIndex()

    def record(self, group: GroupId) -> GroupRecord:
        """Return the record of the group.

        Raises:
            LedgerError: The group is unknown.
        """
        found = self.records.get(group)
        if found is None:
            raise LedgerError(f"there is no placement group {group}")
        return found

    def of_pool(self, pool: PoolName) -> tuple[GroupRecord, ...]:
        """Return the pool's groups in the order in which they were added."""
        return tuple(self._of_pool.get(pool, {}).values())

    def on_node(self, node: NodeName) -> tuple[GroupRecord, ...]:
        """Return the groups with a bundle on the node. Scans every group."""
        return tuple(record for record in self.records.values() if node in record.nodes)

    def held_by(self, task: TaskId) -> GroupRecord | None:
        """Return the group that the task has, that is being created for it, or that is HELD for it."""
        group = self._of_task.get(task)
        return None if group is None else self.records[group]

    def dynamic_count(self, pool: PoolName) -> int:
        """Return how many dynamic groups take capacity, including those being created or removed."""
        return self._dynamic.get(pool, 0)

    # -- transitions ---------------------------------------------------------------------------------------------------

    def add(
        self, group: GroupId, pool: PoolName, shape: GroupShape, layer: Layer, nodes: tuple[NodeName, ...], holder: TaskId | None = None
    ) -> GroupRecord:
        """Add an ordered group: CREATING.

        Args:
            nodes: One per bundle.

        Raises:
            LedgerError: The name is taken, the number of nodes and bundles differ, or the holder has a group already.
        """
        if group in self.records:
            raise LedgerError(f"placement group {group} already exists")
        if len(nodes) != len(shape.bundles):
            raise LedgerError(f"placement group {group} has {counted(len(shape.bundles), 'bundle')} on {counted(len(nodes), 'node')}")
        record = GroupRecord(group=group, pool=pool, shape=shape, layer=layer, nodes=nodes)
        if holder is not None:
            self._give(record, holder)
        self._enter(record)
        return record

    def ready(self, group: GroupId, now_ms: int, nodes: tuple[NodeName, ...] | None = None) -> GroupRecord:
        """Mark the group as created by Ray, on `nodes` if given: TAKEN by its holder, else IDLE.

        Raises:
            IllegalTransition: It was not being created.
            LedgerError: It is unknown, or the number of nodes and bundles differ.
        """
        record = self._expect(group, "is created", GroupState.CREATING)
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
        """Give the group to the task: TAKEN, or still CREATING for this task. Another group HELD for the task becomes idle.

        Raises:
            IllegalTransition: Another task has it, it is HELD for another task, or it is being removed.
            LedgerError: It is unknown, or the task has a group already.
        """
        record = self._expect(group, f"is given to {task}", GroupState.IDLE, GroupState.HELD, GroupState.CREATING)
        if record.holder not in (None, task):
            raise IllegalTransition(f"placement group {group} is {record.state.value} for {record.holder} and cannot be given to {task}")
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
        """Release the group from its holder: IDLE, or HELD for the task named. A CREATING group continues for nobody or for that task.

        Giving back a HELD group lifts the hold: the group becomes IDLE.

        Raises:
            IllegalTransition: It is idle already, or being removed.
            LedgerError: It is unknown, or the task has a group already.
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
        """Mark the group for removal, whoever has it: REMOVING. Return False when it is marked already.

        Raises:
            LedgerError: It is unknown.
        """
        record = self.record(group)
        if record.state is GroupState.REMOVING:
            return False
        self._let_go(record)
        record.state = GroupState.REMOVING
        return True

    def drop(self, group: GroupId) -> GroupRecord | None:
        """Delete a removed or lost group from the ledger, in any state. Return its last record, or None when it is unknown."""
        record = self.records.pop(group, None)
        if record is None:
            return None
        last = GroupRecord(**{name: getattr(record, name) for name in GroupRecord.__slots__})
        self._let_go(record)
        self._leave(record)
        return last

    def restore(self, record: GroupRecord) -> None:
        """Restore a group from a snapshot, in any state. Call in the order in which the groups were added.

        Raises:
            LedgerError: The name is taken, its holder has a group already, or the record is inconsistent.
        """
        wrong = next(record.contradictions(), None)
        if wrong is not None or record.group in self.records or record.holder in self._of_task:
            raise LedgerError(wrong or f"placement group {record.group} or its holder {record.holder} is in the ledger already")
        self._enter(record)
        if record.holder is not None:
            self._of_task[record.holder] = record.group
        if record.state is GroupState.IDLE:
            self._lay_by(record, record.since_ms)

    # -- selection -----------------------------------------------------------------------------------------------------

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
        """Return the idle group of this layer that fits best; the group HELD for the task comes first, if it fits.

        An exact shape comes before the least waste. Among equals the group that became idle last wins, since its processes are warmest. A
        group fits when it has as many bundles, each at least as large as the wanted one at its index, and its strategy is at least as
        strict.

        Args:
            waste_max: Largest share of any resource of the group that the task may leave unused, 0 to 1. None: 0 in the dynamic layer,
            where a group of the right size can be created; 1 in the reserved layer, where waiting is worse than waste.
            accepts: Whether the task may use this group; called best first. None: any group.
        """
        allowed = waste_max if waste_max is not None else (0.0 if layer is Layer.DYNAMIC else 1.0)
        fitting = self._fitting(pool, layer, shape, task, allowed)
        return next((record for record in fitting if accepts is None or accepts(record)), None)

    def idle(self, pool: PoolName | None = None, layer: Layer = Layer.DYNAMIC) -> tuple[GroupRecord, ...]:
        """Return the idle groups of one pool or of all, idle for longest first."""
        return tuple(self.records[group] for group in self._idle.oldest(pool, layer))

    def expired(self, now_ms: int, spec: PoolSpec) -> tuple[GroupRecord, ...]:
        """Return the pool's dynamic groups that were idle for too long, beyond the `min_idle` ones to retain; oldest first.

        Returns all idle ones if the pool does not reuse groups or no longer configures them.
        """
        idle = self.idle(spec.pool)
        if spec.groups is None or not spec.groups.reuse:
            return idle
        beyond = idle[: max(0, len(idle) - spec.groups.min_idle)]
        return tuple(record for record in beyond if now_ms - record.since_ms >= spec.groups.idle_ms)

    def missing_reserved(self, pool: PoolName, spec: GroupPoolSpec | None) -> tuple[GroupShape, ...]:
        """Return the shapes of the reserved layer without a group: to be created, initially and after each loss."""
        there = self._reserved_shapes(pool)
        missing = []
        for shape in spec.reserved if spec is not None else ():
            if there[shape]:
                there[shape] -= 1
            else:
                missing.append(shape)
        return tuple(missing)

    def surplus_reserved(self, pool: PoolName, spec: GroupPoolSpec | None) -> tuple[GroupRecord, ...]:
        """Return idle reserved groups beyond the number configured for their shape: to be removed, oldest first."""
        surplus = self._reserved_shapes(pool)
        surplus.subtract(spec.reserved if spec is not None else ())
        found = []
        for record in self.idle(pool, Layer.RESERVED):
            if surplus[record.shape] > 0:
                surplus[record.shape] -= 1
                found.append(record)
        return tuple(found)

    def in_the_way(self, pool: PoolName | None, needed: ResourceSet, node: NodeName) -> tuple[GroupRecord, ...]:
        """Return the idle dynamic groups (of one pool, or of all) to remove so that `needed` comes free on the node, oldest first.

        `min_idle` does not protect them: it limits removal by age only. The result is minimal, and empty when removing all of them would
        not suffice.

        Args:
            needed: Amounts wanted beyond what is free there.
        """
        left, chosen = dict(needed.items()), []
        for record in self.idle(pool):
            amounts = record.amounts_on(node)
            if any(amounts[name] and lack > 0 for name, lack in left.items()):
                chosen.append((record, amounts))
                left = {name: lack - amounts[name] for name, lack in left.items()}
        if any(lack > 0 for lack in left.values()):
            return ()
        for pair in reversed(chosen[:-1]):  # The last one was needed when all others had been chosen.
            without = {name: lack + pair[1][name] for name, lack in left.items()}
            if all(lack <= 0 for lack in without.values()):
                chosen.remove(pair)
                left = without
        return tuple(record for record, _ in chosen)

    # -- invariants ----------------------------------------------------------------------------------------------------

    def check(self) -> list[str]:
        """Return a message per broken invariant; empty when all hold. Cost is linear in the number of groups."""
        found = [words for record in self.records.values() for words in record.contradictions()]
        holders = {record.holder: record.group for record in self.records.values() if record.holder is not None}
        if holders != self._of_task or len(holders) != sum(record.holder is not None for record in self.records.values()):
            found.append("the holders of the groups differ from the index")
        idle = sorted(record.group for record in self.records.values() if record.state is GroupState.IDLE)
        found += self._idle.check()
        if self._idle.groups() != idle:
            found.append(f"groups {idle} are idle, the index has {self._idle.groups()}")
        if self._dynamic != Counter(record.pool for record in self.records.values() if record.layer is Layer.DYNAMIC):
            found.append(f"the pools count {self._dynamic} dynamic groups, which differs from the records")
        if {group for groups in self._of_pool.values() for group in groups} != self.records.keys():
            found.append("the pools' groups differ from the ledger's")
        return found

    # -- the indexes ---------------------------------------------------------------------------------------------------

    def _fitting(self, pool: PoolName, layer: Layer, shape: GroupShape, task: TaskId | None, waste_max: float) -> Iterator[GroupRecord]:
        """Yield the groups that may be used for this shape, best first."""
        own = None if task is None else self.held_by(task)
        is_kept_here = own is not None and own.state is GroupState.HELD and (own.pool, own.layer) == (pool, layer)
        if own is not None and is_kept_here and wasted_share(own.shape, shape, waste_max) is not None:
            yield own
        for group in self._idle.fitting(pool, layer, shape, waste_max):
            yield self.records[group]

    def _expect(self, group: GroupId, happens: str, *states: GroupState) -> GroupRecord:
        record = self.record(group)
        if record.state not in states:
            past = f"{record.layer.value} of pool {record.pool}, last with {record.last_holder}"
            raise IllegalTransition(f"placement group {group} ({past}) is {record.state.value} and {happens}")
        return record

    def _refuse_second(self, task: TaskId | None) -> None:
        """Refuse a second group for a task; a HELD one does not count, since the new group replaces it."""
        own = None if task is None else self.held_by(task)
        if own is not None and own.state is not GroupState.HELD:
            raise LedgerError(f"{task} already has placement group {own.group}")

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
