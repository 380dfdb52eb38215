"""Queued tasks ordered by `workload_priority = P_label + P_base + aging_per_s * wait_s`.

Within one label the aging factor is the same, so the order of two tasks never changes: it is the order of `P_base - aging_per_s *
submitted_s`. Tasks are therefore sorted once on arrival, per bucket (tasks alike for the scheduler: label, shape, pool, policy). Only the
heads of the buckets are compared later. Rejected: recomputing all priorities per choice, which costs 35 ms at 10,000 queued tasks; and
one heap for all tasks, in which a shape that does not fit comes up once per task.

Priorities are counted in integer billionths of a point. With floats, the sums of the same two tasks could round to different orders at
two moments; with integers the order is stable.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count

from sortedcontainers import SortedList  # type: ignore[import-untyped]  # it carries no types

from mesh.core.counting import counted
from mesh.core.ids import LabelName, TaskId
from mesh.errors import AmountError, LedgerError

#: A task's sort key within its label: billionths of a point (lower is sooner), arrival, and the id, which breaks ties only if the
#: caller used one arrival twice.
_Key = tuple[int, int, TaskId]

_PER_POINT = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSettings:
    """Order of one label's tasks among all."""

    priority: float = 0.0  #: P_label in points: the service level of a tenant, or the value of a kind of node.
    #: Points per second of waiting; less than a millionth counts as zero. By default one point of priority equals 100 s of waiting.
    #: The lowest task (1) overtakes new ones of the highest (10) after 15 minutes. Priorities then still matter, and nothing waits for
    #: ever.
    aging_per_s: float = 0.01


class _Label:
    """Label that is configured or has queued tasks."""

    __slots__ = ("ageing", "buckets", "is_own", "points", "settings")

    def __init__(self, settings: LabelSettings) -> None:
        self.is_own = False  #: Configured by name; otherwise it uses the common settings.
        self.buckets: dict[Hashable, _Bucket] = {}
        self.follow(settings)

    def follow(self, settings: LabelSettings) -> None:
        """Use these settings; the caller sorts again."""
        self.settings = settings
        self.points = _billionths(settings.priority)
        self.ageing = _billionths(settings.aging_per_s) // 1000  #: Billionths per millisecond.

    def bonus(self, now_ms: int) -> int:
        """Return what is added to the keys of all its tasks now."""
        return self.points + self.ageing * now_ms


class _Bucket:
    """Tasks of one bucket, next one first."""

    __slots__ = ("label", "name", "order")

    def __init__(self, name: Hashable, label: LabelName) -> None:
        self.name = name
        self.label = label
        self.order: SortedList[_Key] = SortedList()


#: Queued task: key, bucket, P_base in billionths, start of its wait (ms).
_Entry = tuple[_Key, _Bucket, int, int]


class LabelQueues:
    """Queues of all labels. `add` and `remove` cost O(log n), the best task O(buckets)."""

    def __init__(self, others: LabelSettings | None = None) -> None:
        self._others = others or LabelSettings()
        _check(self._others)
        self._labels: dict[LabelName, _Label] = {}
        self._buckets: dict[Hashable, _Bucket] = {}  #: Non-empty buckets.
        self._entries: dict[TaskId, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, task: object) -> bool:
        return task in self._entries

    def configure(self, label: LabelName | None, settings: LabelSettings) -> None:
        """Set the settings of this label; None: of every label not configured by name.

        If the aging of a label changes, its n tasks are sorted again in O(n log n).

        Raises:
            AmountError: A setting is not finite, or the aging is negative; nothing has changed.
        """
        _check(settings)
        if label is None:
            self._others = settings
            changed = [kept for kept in self._labels.values() if not kept.is_own]
        else:
            changed = [self._label(label)]
            changed[0].is_own = True
        for kept in changed:
            ageing = kept.ageing
            kept.follow(settings)
            if kept.ageing != ageing:
                self._sort(kept)

    def settings(self, label: LabelName) -> LabelSettings:
        """Return the label's settings."""
        kept = self._labels.get(label)
        return self._others if kept is None else kept.settings

    def add(self, task: TaskId, *, bucket: Hashable, label: LabelName, priority: float, since_ms: int, arrival: int) -> None:
        """Queue a task.

        Args:
            priority: P_base, in points.
            since_ms: Start of its wait. A task that is queued again passes its original value and arrival to keep its position.
            arrival: Increasing number; breaks ties.

        Raises:
            AmountError: The priority is not finite.
            LedgerError: The task is queued already, or the bucket belongs to another label.
        """
        if task in self._entries:
            raise LedgerError(f"{task} is already queued")
        points = _billionths(priority)
        kept = self._buckets.get(bucket)
        if kept is None:
            kept = _Bucket(bucket, label)
        elif kept.label != label:
            raise LedgerError(f"{task} of label {label!r} cannot be queued in bucket {bucket!r} of label {kept.label!r}")
        owner = self._label(label)
        key = (owner.ageing * since_ms - points, arrival, task)
        self._buckets[bucket] = owner.buckets[bucket] = kept
        kept.order.add(key)
        self._entries[task] = (key, kept, points, since_ms)

    def remove(self, task: TaskId) -> bool:
        """Remove a task; return False when it is not queued."""
        entry = self._entries.pop(task, None)
        if entry is None:
            return False
        key, bucket, _, _ = entry
        bucket.order.remove(key)
        if not bucket.order:
            self._drop(bucket)
        return True

    def buckets(self) -> tuple[Hashable, ...]:
        """Return the non-empty buckets."""
        return tuple(self._buckets)

    def tasks(self, bucket: Hashable, most: int | None = None) -> tuple[TaskId, ...]:
        """Return the tasks of a bucket, next one first; empty for an unknown bucket.

        Args:
            most: Limit; None: all.
        """
        kept = self._buckets.get(bucket)
        return () if kept is None else tuple(task for _, _, task in kept.order[:most])

    def count(self, bucket: Hashable) -> int:
        """Return the number of tasks in a bucket."""
        kept = self._buckets.get(bucket)
        return 0 if kept is None else len(kept.order)

    def walk(self, now_ms: int) -> Iterator[TaskId]:
        """Yield all tasks, next one first, at O(log buckets) each. Nothing may be added or removed meanwhile."""
        lines = [(self._labels[kept.label].bonus(now_ms), iter(kept.order)) for kept in self._buckets.values()]
        heads = [(rank - bonus, arrival, task, bonus, rest) for bonus, rest in lines for rank, arrival, task in (next(rest),)]
        heapify(heads)
        while heads:
            _, _, task, bonus, rest = heads[0]
            yield task
            following = next(rest, None)
            if following is None:
                heappop(heads)
            else:
                heapreplace(heads, (following[0] - bonus, following[1], following[2], bonus, rest))

    def workload_priority(self, task: TaskId, now_ms: int) -> float:
        """Return the task's current workload priority, in points.

        Raises:
            LedgerError: The task is not queued.
        """
        key, bucket, _, _ = self._entry(task)
        return (self._labels[bucket.label].bonus(now_ms) - key[0]) / _PER_POINT

    def position(self, task: TaskId, now_ms: int) -> int:
        """Return the task's position among all queued tasks, from 1, in O(buckets * log n).

        Raises:
            LedgerError: The task is not queued.
        """
        (rank, arrival, _), own, _, _ = self._entry(task)
        ahead = rank - self._labels[own.label].bonus(now_ms)
        bonuses = {name: label.bonus(now_ms) for name, label in self._labels.items() if label.buckets}
        sooner = sum(kept.order.bisect_left((ahead + bonuses[kept.label], arrival, task)) for kept in self._buckets.values())
        return int(sooner) + 1

    def round(self, now_ms: int, buckets: Iterable[Hashable] | None = None) -> QueuePass:
        """Return one pass over the heads of these buckets (None: of all), best first."""
        return QueuePass(self, now_ms, self._buckets if buckets is None else buckets)

    def check(self) -> list[str]:
        """Return a message per broken invariant; empty when all hold. Cost is linear in the number of queued tasks."""
        found = [f"bucket {name!r} is empty but listed" for name, kept in self._buckets.items() if not kept.order]
        listed = {task: key for kept in self._buckets.values() for key in kept.order for task in key[2:]}
        if listed != {task: entry[0] for task, entry in self._entries.items()}:
            found.append(f"buckets hold {counted(len(listed), 'task')}, {len(self._entries)} are known, or their keys differ")
        of_labels = {name: kept for label in self._labels.values() for name, kept in label.buckets.items()}
        if of_labels != self._buckets:
            found.append("the labels' buckets differ from the queues'")
        return found

    def _entry(self, task: TaskId) -> _Entry:
        entry = self._entries.get(task)
        if entry is None:
            raise LedgerError(f"{task} is not queued")
        return entry

    def _label(self, label: LabelName) -> _Label:
        found = self._labels.get(label)
        if found is None:
            found = self._labels[label] = _Label(self._others)
        return found

    def _drop(self, bucket: _Bucket) -> None:
        """Drop an empty bucket. Names of buckets and labels come from users, so empty ones would accumulate."""
        del self._buckets[bucket.name]
        label = self._labels[bucket.label]
        del label.buckets[bucket.name]
        if not label.is_own and not label.buckets:
            del self._labels[bucket.label]

    def _sort(self, label: _Label) -> None:
        ageing = label.ageing
        for bucket in label.buckets.values():
            keys: list[_Key] = []
            for _, arrival, task in bucket.order:
                _, _, points, since_ms = self._entries[task]
                key = (ageing * since_ms - points, arrival, task)
                self._entries[task] = (key, bucket, points, since_ms)
                keys.append(key)
            bucket.order = SortedList(keys)


#: A bucket's best task by its order among buckets (lower is sooner). The number breaks ties, since buckets have no order.
_Head = tuple[int, int, TaskId, int, Hashable]


class QueuePass:
    """One pass over the heads of buckets. A bucket whose head was taken and that is not put back is skipped until the next round."""

    __slots__ = ("_heads", "_in_play", "_now_ms", "_numbers", "_queues")

    def __init__(self, queues: LabelQueues, now_ms: int, buckets: Iterable[Hashable]) -> None:
        self._queues = queues
        self._now_ms = now_ms
        self._numbers = count()
        self._in_play = dict.fromkeys(buckets)  # Fixed order without duplicates.
        waiting = [kept for bucket in self._in_play if (kept := queues._buckets.get(bucket)) is not None]  # noqa: SLF001  as below
        self._heads = [self._head(kept) for kept in waiting]
        heapify(self._heads)

    def next(self) -> tuple[Hashable, TaskId] | None:
        """Return the best head and take its bucket out of the round; None at the end of the round."""
        while self._heads:
            _, _, task, _, bucket = heappop(self._heads)
            kept = self._queues._buckets.get(bucket)  # noqa: SLF001  a round is a part of the queues
            if kept is None:
                del self._in_play[bucket]
            elif kept.order[0][2] == task:
                del self._in_play[bucket]
                return bucket, task
            else:  # The task was removed meanwhile, or a better one was added before it.
                heappush(self._heads, self._head(kept))
        return None

    def again(self, bucket: Hashable) -> None:
        """Put the bucket's next head into the round, once the last one was removed from the queues."""
        kept = self._queues._buckets.get(bucket)  # noqa: SLF001  as above
        if kept is not None and bucket not in self._in_play:
            self._in_play[bucket] = None
            heappush(self._heads, self._head(kept))

    def _head(self, kept: _Bucket) -> _Head:
        rank, arrival, task = kept.order[0]
        label = self._queues._labels[kept.label]  # noqa: SLF001  as above
        return (rank - label.bonus(self._now_ms), arrival, task, next(self._numbers), kept.name)


def _billionths(points: float) -> int:
    try:
        return round(points * _PER_POINT)
    except (OverflowError, ValueError):
        raise AmountError(f"priority must be finite, got {points}") from None


def _check(settings: LabelSettings) -> None:
    _billionths(settings.priority)
    if _billionths(settings.aging_per_s) < 0:
        raise AmountError(
            f"aging_per_s must be at least 0, got {settings.aging_per_s}; a negative value would lower a task's priority by waiting"
        )
