"""How much free capacity a node policy strands: one mixed trace, replayed in virtual time under several policies.

The cluster has nodes with GPUs, without, and with much memory. The trace (arrival, duration, CPUs, GPUs, memory) is drawn from a seed:
Poisson arrivals, log-normal durations, eleven shapes from half a GPU to a whole GPU node, at 65 % of what the scarcest resource could
carry. All sides get the same trace. What does not fit at once waits, by shape, and is tried again whenever something ends.

- fragmentation: mean over the arrivals of the index of `mesh.policies.fragmentation` for the trace's shapes.
- first try: how many demands found a node the moment they came.

`weighted` knows nothing of the trace; `weighted, census` learns the shapes as they come (`mesh.policies.census`).
"""

from __future__ import annotations

import heapq
import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from rich.table import Table

from mesh.policies.catalogue import policy
from mesh.policies.census import Census
from mesh.policies.fragmentation import CommonShapes, fragmentation_for
from mesh.policies.policy import Demand, FloatArray, IntArray, NodeView, Policy
from mesh.resources import ResourceSet

RESOURCES = ("cpu", "gpu", "memory")
BASE = "hybrid"
SIDES = (BASE, "spread", "binpack", "min_fragment", "weighted", "weighted, census")
LOAD = 0.65
ARRIVALS = 6_000
WARM_UP = 600  #: Arrivals until the cluster is as full as it gets; not counted.
_CENSUS_EVERY = 100

#: How many of each: CPUs, GPUs, GiB.
NODES = ((20, (64, 8, 256)), (16, (32, 0, 128)), (4, (16, 0, 256)))
#: CPUs, GPUs, GiB; how often; how long on average, in minutes.
SHAPES = (
    ((2, 0.5, 8), 0.08, 30),
    ((4, 1, 16), 0.28, 60),
    ((8, 2, 32), 0.10, 60),
    ((16, 4, 64), 0.06, 90),
    ((48, 8, 192), 0.03, 120),
    ((1, 0, 2), 0.15, 20),
    ((2, 0, 8), 0.12, 20),
    ((4, 0, 16), 0.08, 30),
    ((8, 0, 16), 0.05, 40),
    ((16, 0, 64), 0.03, 60),
    ((2, 0, 32), 0.02, 40),
)


@dataclass(frozen=True, slots=True)
class Arrival:
    """One demand of the trace."""

    at_min: float
    shape: int
    lasts_min: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one replay showed."""

    side: str
    seed: int
    fragmentation: float
    first_try: float
    gpus_used: float
    decision_us: float  #: Scoring all nodes and picking one.


def measure(turns: int) -> list[Found]:
    """Each side on the traces of seeds 1 to `turns`."""
    return [replay(side, seed) for seed in range(1, turns + 1) for side in SIDES]


def table(found: list[Found]) -> Table:
    """Means over the seeds, against the base."""
    shown = Table(box=None, pad_edge=False, header_style="bold", title="fragmentation: free capacity that the trace's shapes cannot use")
    for place, column in enumerate(("policy", "fragmentation", f"against {BASE}", "first try", "GPUs in use", "decision")):
        shown.add_column(column, justify="right" if place else "left", no_wrap=True)
    base = _mean(found, BASE, "fragmentation")
    for side in SIDES:
        stranded = _mean(found, side, "fragmentation")
        against = "" if side == BASE else f"{stranded / base - 1:+.0%}"
        shares = (f"{_mean(found, side, 'first_try'):.2%}", f"{_mean(found, side, 'gpus_used'):.0%}")
        shown.add_row(side, f"{stranded:.4f}", against, *shares, f"{_mean(found, side, 'decision_us'):.0f} µs")
    return shown


def as_json(found: list[Found]) -> dict[str, Any]:
    """Every replay."""
    names = Found.__slots__
    return {"name": "fragmentation", "load": LOAD, "replays": [{name: getattr(one, name) for name in names} for one in found]}


def replay(side: str, seed: int, arrivals: int = ARRIVALS) -> Found:
    """One trace under one policy."""
    cluster = _Cluster(policy(side.partition(",")[0]), random.Random(seed), learns="census" in side)  # noqa: S311  a trace, no secret
    fresh, first, indices, used = 0, 0, [], []
    for number, arrival in enumerate(trace(seed, arrivals)):
        cluster.run_until(arrival.at_min)
        placed = cluster.arrive(arrival)
        if number >= WARM_UP:
            fresh, first = fresh + 1, first + placed
            indices.append(cluster.index())
            used.append(cluster.share_used("gpu"))
    return Found(
        side=side,
        seed=seed,
        fragmentation=statistics.mean(indices),
        first_try=first / fresh,
        gpus_used=statistics.mean(used),
        decision_us=1e6 * cluster.deciding_s / cluster.decisions,
    )


def trace(seed: int, arrivals: int) -> Iterator[Arrival]:
    """Demands in the order of their times."""
    chance = random.Random(seed)  # noqa: S311  the same
    weights = [often for _, often, _ in SHAPES]
    carried = [sum(count * node[place] for count, node in NODES) for place in range(len(RESOURCES))]
    wanted = [sum(often * shape[place] * lasts for shape, often, lasts in SHAPES) for place in range(len(RESOURCES))]
    per_min = LOAD / max(want / carry for want, carry in zip(wanted, carried, strict=True))
    at_min = 0.0
    for _ in range(arrivals):
        at_min += chance.expovariate(per_min)
        shape = chance.choices(range(len(SHAPES)), weights)[0]
        yield Arrival(at_min, shape, SHAPES[shape][2] * chance.lognormvariate(-0.5, 1.0))  # The mean of that factor is 1.


def _vector(amounts: ResourceSet) -> IntArray:
    return np.array([amounts[name] for name in RESOURCES], dtype=np.int64)


def _amounts(cpu: float, gpu: float, gib: float) -> ResourceSet:
    return ResourceSet.of({"cpu": cpu, "gpu": gpu, "memory": f"{gib}GiB"})


@dataclass(slots=True)
class _Cluster:
    policy: Policy
    chance: random.Random
    learns: bool
    census: Census = field(default_factory=Census)
    deciding_s: float = 0.0
    decisions: int = 0
    arrived: int = 0
    ends: list[tuple[float, int, int]] = field(default_factory=list)  #: When, row, shape.
    waiting: list[Arrival] = field(default_factory=list)
    shapes: list[ResourceSet] = field(default_factory=lambda: [_amounts(*shape) for shape, _, _ in SHAPES])
    demands: list[Demand] = field(init=False)
    total: IntArray = field(init=False)
    free: IntArray = field(init=False)
    busy: IntArray = field(init=False)
    common: CommonShapes = field(init=False)

    def __post_init__(self) -> None:
        self.total = np.array([_vector(_amounts(*node)) for count, node in NODES for _ in range(count)])
        self.free, self.busy = self.total.copy(), np.zeros(len(self.total), dtype=np.int64)
        self.demands = [Demand(wanted=_vector(shape)) for shape in self.shapes]
        self.common = CommonShapes.of([demand.wanted for demand in self.demands], [often for _, often, _ in SHAPES])

    def run_until(self, at_min: float) -> None:
        while self.ends and self.ends[0][0] <= at_min:
            now_min, row, shape = heapq.heappop(self.ends)
            self.free[row] += self.demands[shape].wanted
            self.busy[row] -= 1
            self.waiting = [one for one in self.waiting if not self.place(one, now_min)]

    def arrive(self, arrival: Arrival) -> bool:
        self.arrived += 1
        if self.learns:
            self.census.count(self.shapes[arrival.shape])
            if self.arrived % _CENSUS_EVERY == 0:
                known = self.census.common(_vector)
                self.demands = [replace(demand, common=known) for demand in self.demands]
        if self.place(arrival, arrival.at_min):
            return True
        self.waiting.append(arrival)
        return False

    def place(self, arrival: Arrival, now_min: float) -> bool:
        demand = self.demands[arrival.shape]
        fits = (self.free >= demand.wanted).all(axis=1)
        if not fits.any():
            return False
        began_s = time.perf_counter()
        scores: FloatArray = np.where(fits, self.policy.score(demand, self._view()), -np.inf)
        row = self.policy.pick(scores, demand, self.chance.randrange)
        self.deciding_s += time.perf_counter() - began_s
        self.decisions += 1
        assert row is not None
        self.free[row] -= demand.wanted
        self.busy[row] += 1
        heapq.heappush(self.ends, (now_min + arrival.lasts_min, row, arrival.shape))
        return True

    def index(self) -> float:
        return fragmentation_for(self.free, self.common)

    def share_used(self, name: str) -> float:
        place = RESOURCES.index(name)
        return 1.0 - float(self.free[:, place].sum() / self.total[:, place].sum())

    def _view(self) -> NodeView:
        nothing = np.zeros_like(self.busy)
        return NodeView(
            resources=RESOURCES,
            total=self.total,
            free=self.free,
            busy=self.busy,
            load=np.zeros_like(self.total),
            local_bytes=nothing,
            of_job=nothing,
            is_named=np.zeros(len(self.busy), dtype=bool),
        )


def _mean(found: list[Found], side: str, name: str) -> float:
    return statistics.mean(getattr(one, name) for one in found if one.side == side)
