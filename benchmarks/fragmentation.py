"""Free capacity that a node policy strands: one mixed trace, through the production scheduler in the simulator, per policy.

The cluster has nodes with GPUs, without GPUs, and with much memory. The trace (arrival, duration, CPUs, GPUs, memory) is drawn from a
seed: Poisson arrivals, log-normal durations, eleven shapes from half a GPU to a whole GPU node, at 65 % of the load that the scarcest
resource could carry. All sides get the same trace. A demand that does not fit at once waits, by shape, and is retried at every task end.

- fragmentation: mean over the arrivals of the index of `mesh.policies.fragmentation` for the trace's shapes.
- first try: number of demands that found a node at arrival.

The scheduler does not know the trace; for `weighted` it learns the shapes as they arrive (`mesh.policies.census`).
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table

from mesh.core.ids import NodeName, PoolName, TaskId
from mesh.core.pools import PoolSpec
from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.task_spec import TaskRequest
from mesh.policies.fragmentation import CommonShapes, fragmentation_for
from mesh.tasks.scheduler import MeshScheduler
from simulator.mesh_world import Arrival as SimulatedArrival
from simulator.mesh_world import MeshFaults, MeshWorld, SimulatedNode

BASE = "hybrid"
SIDES = (BASE, "spread", "binpack", "min_fragment", "weighted")
LOAD = 0.65
ARRIVALS = 6_000
WARM_UP = 600  #: Arrivals until the cluster has reached its final load; not counted.
POOL = PoolName("all")
_MINUTE_MS = 60_000

#: Number of nodes of each kind: CPUs, GPUs, GiB.
NODES = ((20, (64, 8, 256)), (16, (32, 0, 128)), (4, (16, 0, 256)))
#: CPUs, GPUs, GiB; frequency; mean duration in minutes.
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
    """Result of one replay."""

    side: str
    seed: int
    fragmentation: float
    first_try: float
    gpus_used: float


def measure(turns: int) -> list[Found]:
    """Replay the traces of seeds 1 to `turns` on each side."""
    return [replay(side, seed) for seed in range(1, turns + 1) for side in SIDES]


def table(found: list[Found]) -> Table:
    """Return a table of means over the seeds, relative to the base."""
    shown = Table(box=None, pad_edge=False, header_style="bold", title="fragmentation: free capacity that the trace's shapes cannot use")
    for place, column in enumerate(("policy", "fragmentation", f"against {BASE}", "first try", "GPUs in use")):
        shown.add_column(column, justify="right" if place else "left", no_wrap=True)
    base = _mean(found, BASE, "fragmentation")
    for side in SIDES:
        stranded = _mean(found, side, "fragmentation")
        against = "" if side == BASE else f"{stranded / base - 1:+.0%}"
        shares = (f"{_mean(found, side, 'first_try'):.2%}", f"{_mean(found, side, 'gpus_used'):.0%}")
        shown.add_row(side, f"{stranded:.4f}", against, *shares)
    return shown


def as_json(found: list[Found]) -> dict[str, Any]:
    """Return every replay as JSON values."""
    names = Found.__slots__
    return {"name": "fragmentation", "load": LOAD, "replays": [{name: getattr(one, name) for name in names} for one in found]}


def replay(side: str, seed: int, arrivals: int = ARRIVALS) -> Found:
    """Replay one trace under one policy."""
    nodes = [
        SimulatedNode(node=NodeName(f"{kind}.{number}"), total=_amounts(*node))
        for kind, (count, node) in enumerate(NODES)
        for number in range(count)
    ]
    whole = sum((node.total for node in nodes), start=NOTHING)
    scheduler = MeshScheduler(seed=seed)
    world = MeshWorld(
        scheduler, nodes, [PoolSpec(pool=POOL, capacity=whole, policy=side)], faults=MeshFaults(answer_ms_max=0), checked=False
    )
    demands = [_arrival(number, arrival) for number, arrival in enumerate(trace(seed, arrivals))]
    sampler = _Sampler(scheduler, whole)
    world.watch = sampler.look
    world.run(demands, until_ms=demands[-1].at_ms)
    counted = demands[WARM_UP:]
    return Found(
        side=side,
        seed=seed,
        fragmentation=statistics.mean(sampler.indices[WARM_UP:]),
        first_try=statistics.mean(world.first_bound_ms.get(demand.request.task) == demand.at_ms for demand in counted),
        gpus_used=statistics.mean(sampler.gpus_used[WARM_UP:]),
    )


@dataclass(slots=True)
class _Sampler:
    """Samples of the cluster after each arrival."""

    scheduler: MeshScheduler
    whole: ResourceSet
    indices: list[float] = field(default_factory=list)
    gpus_used: list[float] = field(default_factory=list)

    def look(self, world: MeshWorld) -> None:
        table = self.scheduler.state.table
        while len(self.indices) < len(world.done_ms):
            common = CommonShapes.of([table.vector(_amounts(*shape)) for shape, _, _ in SHAPES], [often for _, often, _ in SHAPES])
            free = table.free(slice(0, len(table.names)))
            self.indices.append(fragmentation_for(free, common))
            self.gpus_used.append(1.0 - table.amounts(free.sum(axis=0))["gpu"] / self.whole["gpu"])


def _arrival(number: int, arrival: Arrival) -> SimulatedArrival:
    request = TaskRequest(task=TaskId(f"t{number}"), pool=POOL, resources=_amounts(*SHAPES[arrival.shape][0]), preemptible=False)
    return SimulatedArrival(at_ms=int(arrival.at_min * _MINUTE_MS), work_ms=int(arrival.lasts_min * _MINUTE_MS), request=request)


def trace(seed: int, arrivals: int) -> Iterator[Arrival]:
    """Yield demands in order of arrival."""
    random_stream = random.Random(seed)  # noqa: S311  the same
    weights = [often for _, often, _ in SHAPES]
    carried = [sum(count * node[place] for count, node in NODES) for place in range(3)]
    wanted = [sum(often * shape[place] * lasts for shape, often, lasts in SHAPES) for place in range(3)]
    per_min = LOAD / max(want / carry for want, carry in zip(wanted, carried, strict=True))
    at_min = 0.0
    for _ in range(arrivals):
        at_min += random_stream.expovariate(per_min)
        shape = random_stream.choices(range(len(SHAPES)), weights)[0]
        yield Arrival(at_min, shape, SHAPES[shape][2] * random_stream.lognormvariate(-0.5, 1.0))  # The factor has mean 1.


def _amounts(cpu: float, gpu: float, gib: float) -> ResourceSet:
    return ResourceSet.of({"cpu": cpu, "gpu": gpu, "memory": f"{gib}GiB"})


def _mean(found: list[Found], side: str, name: str) -> float:
    return statistics.mean(getattr(one, name) for one in found if one.side == side)
