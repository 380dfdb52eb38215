"""Slots of a running stage as its runner feeds them: which group gets the next task, and which groups retire. Pure.

A group of slots takes tasks worth `WINDOW` times its slots. One part runs, the rest waits in Ray behind it, so that a slot is not
idle while the runner learns of an end and submits the next task. Of tasks that take a millisecond, more must wait for that: so many
that they take `BACKLOG_MS`. A retired group gets no new task, and is free once its last task is over.

A chunk of tasks for a worker of the group takes one place, by its number. Nothing waits behind it: the worker holds nothing in Ray.
"""

from collections.abc import Collection, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from mesh.core.ids import NodeId
from mesh.core.resources import ResourceSet

#: Work that a slot holds, in slots: one runs, the rest waits behind it.
WINDOW = 2
#: Shares of one slot; a multiple of many small numbers, so that thirds and quarters of a slot add up.
SHARES = 9_600
#: Expected time of the tasks of a slot up to which more than `WINDOW` of them are submitted; milliseconds.
BACKLOG_MS = 50
#: Time that a task takes at least, with Ray's part; milliseconds.
TASK_MS_MIN = 1.0
#: Weight of the newest run time in the expected one.
_NEWEST = 0.2
#: Functions whose run times are kept.
FUNCTIONS_MAX = 1_024
#: Share of a task that requests next to nothing: a slot holds at most 64 of them.
LEAST_SHARE = SHARES * WINDOW // 64

Group = TypeVar("Group", bound=Hashable)
#: A submitted task, or the number of a chunk.
Work = NodeId | int


def share_of(wanted: ResourceSet, slot: ResourceSet) -> int:
    """Return the part of a slot that a task takes, in shares: its part of the resource of which it takes most."""
    parts = (-(-SHARES * amount // slot[name]) for name, amount in wanted.items() if slot[name])
    return min(SHARES, max(LEAST_SHARE, *parts, LEAST_SHARE))


class RunTimes:
    """Expected run times of functions: moving averages, so that after one long run a function counts as long for a while.

    Args:
        newest: Weight of the newest run.
        least_ms: Expected for shorter functions; milliseconds.
    """

    def __init__(self, newest: float = _NEWEST, least_ms: float = TASK_MS_MIN) -> None:
        self._newest, self._least_ms = newest, least_ms
        self._expected_ms: dict[str, float] = {}

    def note(self, function: str, took_ms: float) -> None:
        """Record a run of the function."""
        if len(self._expected_ms) >= FUNCTIONS_MAX and function not in self._expected_ms:
            self._expected_ms.clear()
        before = self._expected_ms.get(function, took_ms)
        self._expected_ms[function] = before + self._newest * (took_ms - before)

    def of(self, function: str) -> float | None:
        """Return the expected run time in milliseconds; None: the function has not run."""
        expected_ms = self._expected_ms.get(function)
        return None if expected_ms is None else max(self._least_ms, expected_ms)


@dataclass(slots=True)
class _Task:
    share: int
    expected_ms: float


@dataclass(slots=True)
class _Fed:
    slots: int
    is_open: bool
    is_retired: bool = False
    tasks: dict[Work, _Task] = field(default_factory=dict)  #: Submitted tasks and chunks, in the order of their submission.
    chunks: int = 0  #: Number of chunks among them.
    load: int = 0  #: Sum of their shares.
    expected_ms: float = 0.0  #: Sum of their expected times.
    last_start: int = 0  #: When its last task may have begun, on a counter of the window.

    def has_place(self, task: _Task, *, may_wait: bool) -> bool:
        """Return whether the task may be submitted to this group now. `may_wait`: also behind others."""
        load, room = self.load + task.share, self.slots * SHARES
        if not self.is_open or self.is_retired:
            return False
        if load <= room:
            return True
        return may_wait and not self.chunks and (load <= WINDOW * room or self.expected_ms + task.expected_ms <= self.slots * BACKLOG_MS)


class SlotWindow(Generic[Group]):
    """Groups of slots of one stage, and the tasks that were submitted to each.

    Invariants: a retired group gets no task; at least one group is not retired.
    """

    def __init__(self) -> None:
        self._groups: dict[Group, _Fed] = {}
        self._group_of: dict[Work, Group] = {}
        self._count = 0

    @property
    def slots(self) -> int:
        """Number of slots, retired ones until they are free."""
        return sum(fed.slots for fed in self._groups.values())

    @property
    def open_slots(self) -> int:
        """Number of slots that are not retired."""
        return sum(fed.slots for fed in self._groups.values() if not fed.is_retired)

    @property
    def open_groups(self) -> list[Group]:
        """Groups that get tasks: they are placed and not retired."""
        return [group for group, fed in self._groups.items() if fed.is_open and not fed.is_retired]

    def in_retired(self) -> list[Work]:
        """Return the submitted tasks and chunks of retired groups."""
        return [work for fed in self._groups.values() if fed.is_retired for work in fed.tasks]

    def group_of(self, work: Work) -> Group:
        """Return the group of a submitted task or chunk."""
        return self._group_of[work]

    def add(self, group: Group, slots: int, *, is_open: bool) -> None:
        """Add a group of slots. It gets tasks once it is open: Ray has placed it."""
        self._groups[group] = _Fed(slots=slots, is_open=is_open)

    def open(self, group: Group) -> bool:
        """Let the group get tasks; return whether that is new."""
        fed = self._groups.get(group)
        if fed is None or fed.is_open:
            return False
        fed.is_open = True
        return True

    @property
    def idle(self) -> int:
        """Number of slots that could run a task at once."""
        return sum(max(0, fed.slots - -(-fed.load // SHARES)) for fed in self._groups.values() if fed.is_open and not fed.is_retired)

    def place(self, node: NodeId, share: int, expected_ms: float | None = None, *, may_wait: bool = True) -> Group | None:
        """Give the task a place in the group that has most of its slots free, and return the group; None: there is none.

        Args:
            share: See `share_of`.
            expected_ms: See `RunTimes`.
            may_wait: False: the task must not wait behind another, which may take long, while the next slot becomes free.
        """
        task = _Task(share, BACKLOG_MS if expected_ms is None else min(expected_ms, BACKLOG_MS))
        best, least = None, 0
        for group, fed in self._groups.items():
            if fed.has_place(task, may_wait=may_wait) and (best is None or fed.load // fed.slots < least):
                best, least = group, fed.load // fed.slots
        if best is not None:
            self._put(best, node, task)
        return best

    def roomy(self, share: int) -> list[tuple[Group, int]]:
        """Return the groups with a place for a chunk of this share, those with most of their slots free first, and how many places."""
        places = (
            (fed.load // fed.slots, group, (fed.slots * SHARES - fed.load) // share)
            for group, fed in self._groups.items()
            if fed.is_open and not fed.is_retired
        )
        return [(group, count) for _, group, count in sorted(places, key=lambda place: place[0]) if count > 0]

    def place_chunk(self, number: int, group: Group, share: int) -> None:
        """Give the chunk a place in the group, which must have one: see `roomy`."""
        self._put(group, number, _Task(share, BACKLOG_MS))
        self._groups[group].chunks += 1

    def _put(self, group: Group, work: Work, task: _Task) -> None:
        fed = self._groups[group]
        if fed.load < fed.slots * SHARES:
            self._begin(fed)
        fed.tasks[work] = task
        fed.load += task.share
        fed.expected_ms += task.expected_ms
        self._group_of[work] = group

    def remove(self, work: Work) -> None:
        """Note that a submitted task or chunk has come back."""
        fed = self._groups[self._group_of.pop(work)]
        task = fed.tasks.pop(work)
        fed.chunks -= isinstance(work, int)
        fed.load -= task.share
        fed.expected_ms = fed.expected_ms - task.expected_ms if fed.tasks else 0.0
        if fed.load >= fed.slots * SHARES:
            self._begin(fed)

    def retire(self, slots: int, *, at_least: bool = False) -> int:
        """Retire up to this many slots, whole groups only, and never the last; return how many.

        Idle groups go first, and of these the ones that are not open, then those whose task began last.

        Args:
            at_least: Retire more rather than fewer where groups are larger than what is left to retire.
        """
        working = [fed for fed in self._groups.values() if not fed.is_retired]
        left, retired = len(working), 0
        for fed in sorted(working, key=lambda each: (bool(each.tasks), each.is_open, -each.last_start)):
            if left > 1 and fed.slots <= slots - retired:
                fed.is_retired = True
                left, retired = left - 1, retired + fed.slots
        if at_least and retired < slots and left > 1:
            smallest = min(
                (fed for fed in working if not fed.is_retired), key=lambda each: (each.slots, bool(each.tasks), -each.last_start)
            )
            smallest.is_retired = True
            retired += smallest.slots
        return retired

    def waiting(self, begun: Collection[NodeId], *, retired: bool) -> Iterator[NodeId]:
        """Yield the tasks that surely wait behind others.

        Args:
            begun: Tasks that are known to run; others may run as well.
            retired: In retired groups; else in the others.
        """
        for fed in self._groups.values():
            if fed.is_retired is retired:
                rest = [work for work in fed.tasks if not isinstance(work, int) and work not in begun]
                shares = [fed.tasks[node].share for node in rest]
                if rest and fed.load - sum(shares) + min(shares) > fed.slots * SHARES:
                    yield from rest

    def take_free(self) -> tuple[Group, ...]:
        """Remove and return the retired groups that have no task."""
        free = tuple(group for group, fed in self._groups.items() if fed.is_retired and not fed.tasks)
        for group in free:
            del self._groups[group]
        return free

    def _begin(self, fed: _Fed) -> None:
        self._count += 1
        fed.last_start = self._count
