"""Speed of stage admission: no Ray, no disk, no network, only events in and decisions out.

Nodes have 16 CPUs, 2 GPUs and 64 GiB. Two worlds are measured, both through `StageAdmission.handle`:

- A stage of a thousand slots of one CPU comes to an empty mesh: it is offered, its lease is granted, it ends. `admitted` is the time of
  the first two together, and `ended` that of the third. Below a thousand free slots, all that there are count.
- A hundred thousand stages are queued, of two thousand tenants and twenty slot sizes. The mesh is full. A stage ends, and its lease is
  free for its tenant. Stages that fit get their leases, and another stage is offered. One lease in ten is refused. Each event is one call
  of `handle`; the p95 of each kind of event is reported.

All times are processor time, so other programs on the machine matter less.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from benchmarks.measuring import Series
from mesh.core.ids import NodeName, PoolName, StageId, TenantPath
from mesh.core.pools import PoolSpec
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.seen_nodes import NodeSeen
from mesh.stages.admission import StageAdmission
from mesh.stages.admission_decisions import AcquireLease, AdmissionDecision
from mesh.stages.admission_events import (
    AdmissionEvent,
    LeaseCameFree,
    LeaseGranted,
    LeaseRefused,
    NodesSeen,
    WorkloadEnded,
    WorkloadOffered,
)

NODES = (100, 1_000)
POLICIES = ("weighted", "hybrid", "binpack", "spread")
SLOTS = 1_000
QUEUED, TENANTS, SHAPES = 100_000, 2_000, 20
TURNS = 5
ENDS = 500
REFUSED_SHARE = 0.1
ADMITTED_MS_MAX = 20.0
P95_MS_MAX = 5.0
_NODE = ResourceSet.of({"cpu": 16, "gpu": 2, "memory": "64GiB"})
_POOL = PoolName("general")
_ONE = ResourceSet.of({"cpu": 1, "memory": "1GiB"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Result of one world under one policy."""

    world: str  #: Work that came or waited.
    policy: str
    nodes: int
    times_ms: dict[str, float]  #: By event.
    limit_ms: float

    @property
    def is_within(self) -> bool:
        """Return whether every time is within the limit."""
        return max(self.times_ms.values()) <= self.limit_ms


def measure(
    turns: int = TURNS, *, nodes: tuple[int, ...] = NODES, slots: int = SLOTS, queued: int = QUEUED, ends: int = ENDS
) -> list[Found]:
    """Measure the large stage under all policies, in turns, and the long queue under the default policy."""
    found: list[Found] = []
    for count in nodes:
        order = [policy for turn in range(turns) for policy in POLICIES[:: 1 if turn % 2 == 0 else -1]]
        samples = [(policy, _large_stage(policy, count, slots)) for policy in order]
        for policy in POLICIES:
            least = {key: min(times[key] for other, times in samples if other == policy) for key in samples[0][1]}
            found.append(Found(world=f"a stage of {slots:,} slots", policy=policy, nodes=count, times_ms=least, limit_ms=ADMITTED_MS_MAX))
    for count in nodes:
        times = _long_queue(POLICIES[0], count, queued, ends)
        found.append(Found(world=f"{queued:,} stages queued", policy=POLICIES[0], nodes=count, times_ms=times, limit_ms=P95_MS_MAX))
    return found


def table(found: list[Found]) -> Table:
    """Return a table with one row per world, policy and number of nodes."""
    title = "admission and placement of stages, processor time; the large stage: minimum of the turns; the queue: p95 of an event"
    shown = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in ("world", "policy", "nodes", "times", "limit", "within"):
        shown.add_column(column, justify="right" if column in ("nodes", "limit") else "left")
    for side in found:
        times = ", ".join(f"{name} {ms:,.2f} ms" for name, ms in side.times_ms.items())
        shown.add_row(side.world, side.policy, f"{side.nodes:,}", times, f"{side.limit_ms:g} ms", "yes" if side.is_within else "NO")
    return shown


def as_json(found: list[Found]) -> dict[str, Any]:
    """Return the results as JSON values."""
    names = (*Found.__slots__, "is_within")
    return {"name": "stage_placement", "sides": [{name: getattr(side, name) for name in names} for side in found]}


def _mesh(policy: str, nodes: int) -> StageAdmission:
    admission = StageAdmission((PoolSpec(pool=_POOL, capacity=_NODE.times(nodes), policy=policy),))
    seen = (NodeSeen(node=NodeName(f"node-{number:05}"), total=_NODE, labels={}, available=_NODE) for number in range(nodes))
    admission.handle(NodesSeen(nodes=tuple(seen)))
    return admission


def _timed(call: Callable[[], list[AdmissionDecision]]) -> tuple[list[AdmissionDecision], float]:
    """Return the decisions and the milliseconds of processor time."""
    begun = time.process_time()
    decisions = call()
    return decisions, (time.process_time() - begun) * 1000


def _large_stage(policy: str, nodes: int, slots: int) -> dict[str, float]:
    admission = _mesh(policy, nodes)
    stage = StageId("large")
    gc.collect()
    offered = WorkloadOffered(workload=stage, tenant=TenantPath("acme/research"), slot=_ONE, width=slots, priority=0)
    decisions, offer_ms = _timed(lambda: admission.handle(offered))
    asked = [decision for decision in decisions if isinstance(decision, AcquireLease)]
    if [decision.demand for decision in asked] != [min(slots, nodes * 16)]:
        raise AssertionError(f"the mesh asks for {[decision.demand for decision in asked]} slots, expected {slots}")
    _, grant_ms = _timed(lambda: admission.handle(LeaseGranted(workload=stage, slots=asked[0].demand, token=1)))
    _, end_ms = _timed(lambda: admission.handle(WorkloadEnded(workload=stage)))
    return {"admitted": offer_ms + grant_ms, "ended": end_ms}


def _long_queue(policy: str, nodes: int, queued: int, ends: int) -> dict[str, float]:
    """Return the p95 of each kind of event."""
    queue = _Queue(_mesh(policy, nodes))
    while len(queue.admission.workloads) - len(queue.running) < queued:
        queue.offer()
    queue.forget_times()
    gc.collect()
    for _ in range(ends):
        queue.end_one()
        queue.offer()
    return {name: Series(name=name, samples_ms=tuple(times)).p95_ms for name, times in sorted(queue.times_ms.items())}


class _Queue:
    """Admission with the federation and the runs around it."""

    def __init__(self, admission: StageAdmission) -> None:
        self.admission = admission
        self.running: list[StageId] = []
        self.times_ms: dict[str, list[float]] = {}
        self._random = random.Random(1)  # noqa: S311  a trace, no secret
        self._shapes = [_shape(self._random) for _ in range(SHAPES)]
        self._count = 0

    def forget_times(self) -> None:
        """Leave out what was measured so far."""
        self.times_ms.clear()

    def offer(self) -> None:
        """Offer one more stage."""
        self._count += 1
        choice = self._random
        tenant = TenantPath(f"company/{choice.randrange(TENANTS)}")
        width, priority = choice.choice((1, 1, 2, 4, 16)), choice.randrange(4)
        stage = StageId(f"s{self._count}")
        self._handle(WorkloadOffered(workload=stage, tenant=tenant, slot=choice.choice(self._shapes), width=width, priority=priority))

    def end_one(self) -> None:
        """End a running stage."""
        place = self._random.randrange(len(self.running))
        self.running[place], self.running[-1] = self.running[-1], self.running[place]
        stage = self.running.pop()
        tenant = self.admission.workloads[stage].offer.tenant
        self._handle(WorkloadEnded(workload=stage))
        self._handle(LeaseCameFree(tenant=tenant))

    def _handle(self, event: AdmissionEvent) -> None:
        """Handle the event, and answer each lease request that follows from it."""
        waiting: list[AdmissionEvent] = [event]
        while waiting:
            one = waiting.pop(0)
            decisions, took_ms = _timed(lambda one=one: self.admission.handle(one))  # type: ignore[misc]
            self.times_ms.setdefault(type(one).__name__, []).append(took_ms)
            waiting += [self._answer(decision) for decision in decisions if isinstance(decision, AcquireLease)]

    def _answer(self, asked: AcquireLease) -> AdmissionEvent:
        if self._random.random() < REFUSED_SHARE:
            detail = f"tenant {asked.tenant} has no quota left in flavor {asked.flavor}"
            return LeaseRefused(workload=asked.workload, reason=Reason.QUOTA_EXHAUSTED, detail=detail)
        if not asked.is_growth:
            self.running.append(asked.workload)
        return LeaseGranted(workload=asked.workload, slots=asked.demand, token=self._count)


def _shape(random_stream: random.Random) -> ResourceSet:
    cpu, gpu, gib = random_stream.choice((0.5, 1, 2, 3, 4, 6, 8)), random_stream.choice((0, 0, 0, 1, 2)), random_stream.choice((1, 2, 4, 8))
    return ResourceSet.of({"cpu": cpu, "gpu": gpu, "memory": f"{gib}GiB"})
