"""Queue order of jobs: by priority, or by dominant resource fairness (DRF).

DRF prefers the job with the smallest *dominant share*: the largest of its shares of CPU, memory, GPU, …. With ⟨9 CPU, 18 GB⟩, a job with
⟨1 CPU, 4 GB⟩ members gets three and one with ⟨3 CPU, 1 GB⟩ members gets two: two thirds of the memory and two thirds of the CPUs. Shares
are exact fractions, so equal shares compare as equal.

Source:
    Ghodsi et al., Dominant Resource Fairness: Fair Allocation of Multiple Resource Types, NSDI 2011, Algorithm 1. There, filling ends
    with the first job whose next member does not fit; here the others continue without it.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from mesh.core.ids import JobId
from mesh.core.resources import NOTHING, ResourceSet
from mesh.jobs.spec import JobQueuePolicy


def dominant_share(held: ResourceSet, capacity: ResourceSet) -> Fraction:
    """Return the largest share of any resource; 1 if the capacity lacks the resource."""
    return max((Fraction(amount, capacity[name]) if capacity[name] else Fraction(1) for name, amount in held.items()), default=Fraction(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Entry of a job in the queue."""

    job: JobId
    policy: JobQueuePolicy
    priority: int
    arrival: int


class TurnQueue:
    """Jobs in queue order.

    Jobs ordered by priority and jobs ordered by DRF can wait together. Each kind has its own order. Between the two heads, the
    higher priority goes first, then the earlier arrival. The choice of an order therefore gives no lasting advantage.
    """

    def __init__(self, capacity: ResourceSet, policy: JobQueuePolicy | None = None) -> None:
        self._capacity = capacity
        self._policy = policy  #: For all jobs; None: each job's own policy.
        self._by_priority: list[tuple[int, int, Turn]] = []
        self._by_share: list[tuple[Fraction, int, int, Turn]] = []

    def push(self, turn: Turn, held: ResourceSet) -> None:
        """Queue a job.

        Args:
            held: Amounts that the job holds now. Among equal shares the higher priority goes first, then the earlier arrival.
        """
        if (self._policy or turn.policy) is JobQueuePolicy.DRF:
            share = dominant_share(held, self._capacity)
            heapq.heappush(self._by_share, (share, -turn.priority, turn.arrival, turn))
        else:
            heapq.heappush(self._by_priority, (-turn.priority, turn.arrival, turn))

    def pop(self) -> JobId | None:
        """Return the next job and remove it; None when the queue is empty."""
        if not self._by_share:
            return heapq.heappop(self._by_priority)[-1].job if self._by_priority else None
        if self._by_priority and self._by_priority[0][:2] < self._by_share[0][1:3]:
            return heapq.heappop(self._by_priority)[-1].job
        return heapq.heappop(self._by_share)[-1].job


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """Result of filling a capacity."""

    turns: tuple[JobId, ...]  #: Job of each member, in order.
    counts: Mapping[JobId, int]
    shares: Mapping[JobId, Fraction]


def fill_by_shares(capacity: ResourceSet, wanted: Mapping[JobId, ResourceSet], counts_max: Mapping[JobId, int] | None = None) -> Filling:
    """Fill the capacity progressively with members of `wanted[job]` each, smallest dominant share first.

    Args:
        capacity: One total, not split into nodes.
        wanted: Demand of a member, by job; among equal shares the first named goes first. Jobs without demand get no member.
        counts_max: Number of members by job; jobs without an entry are unlimited.
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
