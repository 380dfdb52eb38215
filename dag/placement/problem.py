"""A planning problem and its answer: nodes with run times and needs, pools of slots, and who runs where and when.

Nodes are numbers from 0 in any order; the problem keeps one topological order. All times are in one unit, which the caller chooses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from mesh.core.counting import counted


class Need(NamedTuple):
    """Value that a node reads."""

    source: int  #: Node that makes the value.
    transfer: float  #: Time from one pool to another; within a pool a value needs no time.


class Interval(NamedTuple):
    """Time in which a slot is used."""

    start: float
    end: float


class Run(NamedTuple):
    """Place and time of one node."""

    pool: int
    start: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Slots that are alike, such as the room of a tenant on a mesh."""

    slots: int
    busy: tuple[tuple[Interval, ...], ...] = ()  #: Used times of the first slots, each in order; further slots are free.


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Nodes to place on pools.

    Raises:
        ValueError: The needs form a circle, or no pool may run a node.
    """

    pools: tuple[Pool, ...]
    run_times: Sequence[Sequence[float]]  #: By node, then by pool; infinite: the pool may not run the node.
    needs: Sequence[Sequence[Need]]  #: By node.
    ready_at: Sequence[Sequence[float]] = ()  #: By node, then by pool: when inputs from outside are there; empty: at once.
    #: Share of a transfer that ranks count. The mean over all pairs of slots is `crossing_share`; the papers count all of it.
    rank_share: float = 1.0
    order: tuple[int, ...] = field(init=False, default=())  #: A topological order.
    consumers: tuple[tuple[Need, ...], ...] = field(init=False, default=())  #: By node: its readers, with the transfer to each.

    def __post_init__(self) -> None:
        blocked = next((node for node, times in enumerate(self.run_times) if all(time == inf for time in times)), None)
        if blocked is not None:
            raise ValueError(f"no pool may run node {blocked}; give it a finite run time on one")
        readers: list[list[Need]] = [[] for _ in self.needs]
        missing = [len(needs) for needs in self.needs]
        for node, needs in enumerate(self.needs):
            for need in needs:
                readers[need.source].append(Need(node, need.transfer))
        order = [node for node, count in enumerate(missing) if not count]
        for node in order:  # Grows while it is read.
            for reader in readers[node]:
                missing[reader.source] -= 1
                if not missing[reader.source]:
                    order.append(reader.source)
        if len(order) < len(missing):
            raise ValueError(f"{counted(len(missing) - len(order), 'node')} wait for each other in a circle; remove one of their needs")
        object.__setattr__(self, "order", tuple(order))
        object.__setattr__(self, "consumers", tuple(map(tuple, readers)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Place and time of every node."""

    runs: tuple[Run, ...]  #: By node.

    @property
    def makespan(self) -> float:
        """When the last node ends; 0 without nodes."""
        return max((run.end for run in self.runs), default=0)

    @property
    def pools(self) -> tuple[int, ...]:
        """The pool of each node."""
        return tuple(run.pool for run in self.runs)


def crossing_share(slots: Iterable[int]) -> float:
    """Return how often two slots, drawn at random with repetition, are of different pools."""
    counts = list(slots)
    total = sum(counts)
    return 1 - sum(count * count for count in counts) / (total * total) if total else 0.0


def violations(problem: Problem, schedule: Schedule) -> tuple[str, ...]:
    """Return what a schedule does wrong: a start before an input has arrived, a wrong length, or more nodes at once than slots."""
    found: list[str] = []
    for node, run in enumerate(schedule.runs):
        length = problem.run_times[node][run.pool]
        if abs(run.end - run.start - length) > _slack(run.end):
            found.append(f"node {node} takes {run.end - run.start}, and its run time there is {length}")
        for need in problem.needs[node]:
            source = schedule.runs[need.source]
            arrives = source.end + (need.transfer if source.pool != run.pool else 0)
            if run.start < arrives - _slack(arrives):
                found.append(f"node {node} starts at {run.start}, before its input {need.source} arrives at {arrives}")
    for number, pool in enumerate(problem.pools):
        of_pool = [(run.start, run.end) for run in schedule.runs if run.pool == number and run.end > run.start]
        taken = [*of_pool, *(used for slot in pool.busy for used in slot)]
        changes = sorted([(end - _slack(end), -1) for _, end in taken] + [(start, 1) for start, _ in taken])
        at_once = 0
        for time, change in changes:
            at_once += change
            if at_once > pool.slots:
                found.append(f"pool {number} runs {counted(at_once, 'node')} at {time}, with {counted(pool.slots, 'slot')}")
                break
    return tuple(found)


def _slack(time: float) -> float:
    return 1e-9 * (1 + abs(time))
