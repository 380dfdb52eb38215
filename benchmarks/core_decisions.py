"""Speed of the scheduling core: no Ray, no disk, no network, only events in and decisions out.

Nodes have 16 CPUs, 2 GPUs and 64 GiB, and tasks have twenty shapes in a mixed order. Three phases are measured on the same
scheduler, in processor time, which equals wall time on an idle machine:

- with room: batches of submissions, as long as every task of a batch starts at once; in starts per second.
- queued: further submissions, until a hundred thousand wait; in time per submission.
- full: a task ends and frees its room, and the best waiting tasks that fit start. Each end is one call of `handle`, which is
  what a waiting user feels; its p95 is reported.

Growth is the time of a full call relative to that with the fewest nodes, divided by the ratio that n · log n allows: below 1 it
grows more slowly.
"""

from __future__ import annotations

import gc
import math
import random
import statistics
import time
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from mesh.core.ids import NodeName, PoolName, TaskId
from mesh.core.pools import PoolSpec
from mesh.core.resources import ResourceSet
from mesh.core.task_spec import TaskRequest
from mesh.tasks.decisions import Decision, StartTask
from mesh.tasks.events import NodeJoined, PoolConfigured, TaskEnded, TaskStarted, TaskSubmitted
from mesh.tasks.scheduler import MeshScheduler

NODES = (100, 1_000, 10_000)
POLICIES = ("weighted", "hybrid", "binpack")
QUEUED = 100_000
TURNS = 3
BATCH = 64
ENDS = 1_000
STARTS_PER_S_MIN = 20_000  #: At a thousand nodes.
P95_MS_MAX = 5.0  #: At ten thousand.
_NODE = ResourceSet.of({"cpu": 16, "gpu": 2, "memory": "64GiB"})
_ALL = ResourceSet.of({"cpu": 10**7, "gpu": 10**7, "memory": 2**52})
_POOL = PoolName("general")
_SHAPES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Result of one policy with one number of nodes; medians over the turns."""

    policy: str
    nodes: int
    queued: int
    starts_per_s: float
    queue_us: float  #: Per submission that waits.
    full_ms: float  #: Median time of a call while the mesh is full.
    full_p95_ms: float
    starts_a_call: float
    growth: float = 1.0  #: See the module's docstring.

    @property
    def is_within(self) -> bool:
        """Return whether the limits for this number of nodes hold."""
        fast = self.nodes != NODES[1] or self.starts_per_s >= STARTS_PER_S_MIN
        soon = self.nodes != NODES[2] or self.full_p95_ms <= P95_MS_MAX
        return fast and soon and self.growth <= 1.0


def measure(turns: int = TURNS, *, nodes: tuple[int, ...] = NODES, queued: int = QUEUED, ends: int = ENDS) -> list[Found]:
    """Measure all policies with all numbers of nodes; the policies take turns."""
    found: list[Found] = []
    for count in nodes:
        order = [policy for turn in range(turns) for policy in POLICIES[:: 1 if turn % 2 == 0 else -1]]
        samples = [_measure(policy, count, queued, ends) for policy in order]
        for policy in POLICIES:
            base = next((other for other in found if other.policy == policy), None)
            found.append(_median([sample for sample in samples if sample.policy == policy], base))
    return found


def table(found: list[Found]) -> Table:
    """Return a table with one row per policy and number of nodes."""
    title = f"decisions of the core; {found[0].queued:,} queued in {_SHAPES} shapes"
    shown = Table(title=title, title_justify="left", box=None, pad_edge=False)
    columns = ("policy", "nodes", "starts with room", "queued", "full: median", "p95", "starts per call", "growth / n log n", "within")
    for place, column in enumerate(columns):
        shown.add_column(column, justify="right" if place else "left", no_wrap=True)
    for side in found:
        cells = (f"{side.starts_per_s:,.0f} /s", f"{side.queue_us:,.1f} µs", f"{side.full_ms:,.3f} ms", f"{side.full_p95_ms:,.3f} ms")
        last = (f"{side.starts_a_call:.2f}", f"{side.growth:.3f}", "yes" if side.is_within else "NO")
        shown.add_row(side.policy, f"{side.nodes:,}", *cells, *last)
    return shown


def as_json(found: list[Found]) -> dict[str, Any]:
    """Return the results as JSON values."""
    names = (*Found.__slots__, "is_within")
    return {"name": "core_decisions", "sides": [{name: getattr(side, name) for name in names} for side in found]}


def _measure(policy: str, nodes: int, queued: int, ends: int) -> Found:
    gc.collect()
    core = _Core(policy, nodes)
    starts_per_s = core.fill()
    queue_us = core.queue(queued)
    times_ms, starts = core.end_one_by_one(ends)
    times_ms.sort()
    return Found(
        policy=policy,
        nodes=nodes,
        queued=queued,
        starts_per_s=starts_per_s,
        queue_us=queue_us,
        full_ms=statistics.median(times_ms),
        full_p95_ms=times_ms[-(-len(times_ms) * 95 // 100) - 1],
        starts_a_call=starts / len(times_ms),
    )


class _Core:
    """Scheduler with a simulated mesh around it."""

    def __init__(self, policy: str, nodes: int) -> None:
        self._random = random.Random(1)  # noqa: S311  a trace, no secret
        self._shapes = [_shape(self._random) for _ in range(_SHAPES)]
        self._scheduler = MeshScheduler()
        self._submitted = 0
        self._running: list[StartTask] = []
        joined = [NodeJoined(at_ms=0, node=NodeName(f"node-{number:05}"), total=_NODE, labels={}) for number in range(nodes)]
        self._scheduler.handle(*joined, PoolConfigured(at_ms=0, spec=PoolSpec(pool=_POOL, capacity=_ALL, policy=policy)))

    def fill(self) -> float:
        """Submit while there is room, at least for one batch; return starts per second."""
        started, spent_s = 0, 0.0
        while True:
            decisions, took_s = self._handle_timed(self._batch())
            starts = self._begin(decisions)
            if starts < BATCH:
                return started / spent_s
            started, spent_s = started + starts, spent_s + took_s

    def queue(self, queued: int) -> float:
        """Submit until so many tasks wait; return microseconds per submission, including those that still found a gap."""
        before, spent_s = self._submitted, 0.0
        while self._submitted - len(self._running) < queued:
            decisions, took_s = self._handle_timed(self._batch())
            self._begin(decisions)
            spent_s += took_s
        return spent_s / (self._submitted - before) * 1e6

    def end_one_by_one(self, ends: int) -> tuple[list[float], int]:
        """Return the milliseconds of each task end, and how many tasks these ends started."""
        times_ms: list[float] = []
        starts = 0
        for _ in range(ends):
            place = self._random.randrange(len(self._running))
            self._running[place], self._running[-1] = self._running[-1], self._running[place]
            over = self._running.pop()
            decisions, took_s = self._handle_timed([TaskEnded(at_ms=3, task=over.task, attempt=over.attempt)])
            times_ms.append(took_s * 1000)
            starts += self._begin(decisions)
        return times_ms, starts

    def _batch(self) -> list[TaskSubmitted]:
        numbers = range(self._submitted, self._submitted + BATCH)
        self._submitted += BATCH
        requests = (TaskRequest(task=TaskId(f"t{number}"), pool=_POOL, resources=self._random.choice(self._shapes)) for number in numbers)
        return [TaskSubmitted(at_ms=1, request=request) for request in requests]

    def _handle_timed(self, events: list[Any]) -> tuple[list[Decision], float]:
        begun = time.process_time()
        decisions = self._scheduler.handle(*events)
        return decisions, time.process_time() - begun

    def _begin(self, decisions: list[Decision]) -> int:
        """Report all ordered starts as done; not timed."""
        starts = [decision for decision in decisions if isinstance(decision, StartTask)]
        if starts:
            self._scheduler.handle(*[TaskStarted(at_ms=2, task=one.task, attempt=one.attempt, agent=one.agent) for one in starts])
        self._running += starts
        return len(starts)


def _shape(random_stream: random.Random) -> ResourceSet:
    cpu, gpu, gib = random_stream.choice((0.5, 1, 2, 3, 4, 6, 8)), random_stream.choice((0, 0, 0, 1, 2)), random_stream.choice((1, 2, 4, 8))
    return ResourceSet.of({"cpu": cpu, "gpu": gpu, "memory": f"{gib}GiB"})


def _median(samples: list[Found], base: Found | None) -> Found:
    names = ("starts_per_s", "queue_us", "full_ms", "full_p95_ms", "starts_a_call")
    middle = {name: statistics.median(getattr(sample, name) for sample in samples) for name in names}
    first = samples[0]
    growth = 1.0
    if base is not None:
        allowed = first.nodes * math.log(first.nodes) / (base.nodes * math.log(base.nodes))
        growth = middle["full_ms"] / base.full_ms / allowed
    return Found(policy=first.policy, nodes=first.nodes, queued=first.queued, growth=growth, **middle)
