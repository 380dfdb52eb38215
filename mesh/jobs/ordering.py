"""Whose turn it is: by priority, or by dominant resource fairness.

DRF gives the next turn to whom holds the smallest *dominant share*: the largest of its shares of CPU, memory, GPU, ….
With ⟨9 CPU, 18 GB⟩, a job of ⟨1 CPU, 4 GB⟩ members and one of ⟨3 CPU, 1 GB⟩ members get three and two of them: two
thirds of the memory for the one, two thirds of the CPUs for the other. Shares are exact fractions: equal is equal.

Source:
    Ghodsi et al., Dominant Resource Fairness: Fair Allocation of Multiple Resource Types, NSDI 2011, Algorithm 1. There,
    filling ends with the first job whose next member does not fit; here the others go on without it.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from mesh.ids import JobId
from mesh.jobs.spec import JobQueuePolicy
from mesh.resources import NOTHING, ResourceSet


def dominant_share(held: ResourceSet, capacity: ResourceSet) -> Fraction:
    """The largest share of any resource; of one that the capacity lacks, all of it."""
    return max((Fraction(amount, capacity[name]) if capacity[name] else Fraction(1) for name, amount in held.items()), default=Fraction(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A job that wants a turn."""

    job: JobId
    policy: JobQueuePolicy
    priority: int
    arrival: int


class TurnQueue:
    """Jobs in the order of their turns.

    Jobs ordered by priority and jobs ordered by DRF can wait side by side: each kind has its own order, and of the two
    that are first in theirs the one of the higher priority goes, then the one that came first. So nobody gets ahead, or
    falls behind for good, by the choice of an order.
    """

    def __init__(self, capacity: ResourceSet, policy: JobQueuePolicy | None = None) -> None:
        self._capacity = capacity
        self._policy = policy  #: For all jobs; None: each as it says itself.
        self._by_priority: list[tuple[int, int, Turn]] = []
        self._by_share: list[tuple[Fraction, int, int, Turn]] = []

    def push(self, turn: Turn, held: ResourceSet) -> None:
        """Queue up; `held` is what the job has by now. Of equal shares the higher priority goes first, then the earlier arrival."""
        if (self._policy or turn.policy) is JobQueuePolicy.DRF:
            share = dominant_share(held, self._capacity)
            heapq.heappush(self._by_share, (share, -turn.priority, turn.arrival, turn))
        else:
            heapq.heappush(self._by_priority, (-turn.priority, turn.arrival, turn))

    def pop(self) -> JobId | None:
        """Whose turn it is; None when nobody waits."""
        if not self._by_share:
            return heapq.heappop(self._by_priority)[-1].job if self._by_priority else None
        if self._by_priority and self._by_priority[0][:2] < self._by_share[0][1:3]:
            return heapq.heappop(self._by_priority)[-1].job
        return heapq.heappop(self._by_share)[-1].job


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """How a capacity was filled."""

    turns: tuple[JobId, ...]  #: Who got a member, in order.
    counts: Mapping[JobId, int]
    shares: Mapping[JobId, Fraction]


def fill_by_shares(capacity: ResourceSet, wanted: Mapping[JobId, ResourceSet], counts_max: Mapping[JobId, int] | None = None) -> Filling:
    """Progressive filling: members of `wanted[job]` each, as many as fit, the smallest dominant share first.

    Args:
        capacity: One pot, not split into nodes.
        wanted: What a member takes, by job; of equal shares the first named goes first. A job whose members take nothing gets none.
        counts_max: Members that a job has, where it has not endlessly many.
    """
    queue, free = TurnQueue(capacity, JobQueuePolicy.DRF), capacity
    turns: list[JobId] = []
    held = dict.fromkeys(wanted, NOTHING)
    counts = dict.fromkeys(wanted, 0)
    turn_of = {job: Turn(job=job, policy=JobQueuePolicy.DRF, priority=0, arrival=arrival) for arrival, job in enumerate(wanted)}
    for turn in turn_of.values():
        queue.push(turn, NOTHING)
    while (job := queue.pop()) is not None:
        is_done = counts_max is not None and job in counts_max and counts[job] >= counts_max[job]
        if is_done or not wanted[job] or not wanted[job] <= free:
            continue
        free, held[job] = free - wanted[job], held[job] + wanted[job]
        counts[job] += 1
        turns.append(job)
        queue.push(turn_of[job], held[job])
    return Filling(turns=tuple(turns), counts=counts, shares={job: dominant_share(held[job], capacity) for job in wanted})
