"""Graphs of tasks that do nothing, from the start of a stage at a tenant's runner to its last report: no root, no queue, no mesh.

The sides are a runner with its workers in placement groups, and plain Ray with references, on equal nodes of one cluster.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

import ray
from ray.util.placement_group import placement_group, remove_placement_group

from benchmarks.graphs import GRAPHS, PLAIN, Step, bound, ends_of, on_plain_ray
from benchmarks.measuring import WALL, Result, Sample, in_turns, result_of
from benchmarks.mesh_bed import CPUS, MeshBed
from benchmarks.work import layered, nothing, one, total
from dag.client.compiling import compile_columns
from dag.spec.plans import plans_of
from dag.spec.spec import parse_columns
from mesh.core.ids import MeshId, RunId, StageId, TenantPath
from mesh.core.resources import ResourceSet
from mesh.core.wire import decode, encode
from mesh.ray.placement import SlotGroup
from mesh.ray.stage_runner.runner import StageRunner
from mesh.stages.messages import STAGE_MESSAGE, NodesSucceeded, NodeSucceeded, StageEnded
from mesh.stages.spec import StageSpec, StageTasks

RUNNER = "runner"
TENANT = TenantPath("lab/graphs")
ONE_CPU = ResourceSet.of({"cpu": 1})


def tasks_of(steps: list[Step]) -> tuple[StageTasks, dict[str, bytes]]:
    """Return the graph as a stage's tasks, as the root sends them, and the pickled functions."""
    nodes = bound(steps)
    columns = compile_columns([nodes[at] for at in ends_of(steps)], id="r", tenant=TENANT)
    plans = plans_of(parse_columns(columns.packed()))
    return plans.tasks_of(tuple(plans), attempts={}, exported=(), checkpoints={}), dict(columns.blobs)


@dataclass
class RunnerSide:
    """A runner and the groups of its slots."""

    actor: Any
    groups: tuple[SlotGroup, ...]
    numbers: Iterator[int] = field(default_factory=count)

    def run(self, graph: StageTasks, blobs: dict[str, bytes]) -> Sample:
        """Run the graph in a stage; return when its last report is here."""
        number = next(self.numbers)
        run, stage = RunId(f"r{number}"), StageId(f"r{number}.1")
        spec = StageSpec(stage=stage, run=run, tenant=TENANT, tasks=graph, slot=ONE_CPU, width=CPUS)
        encoded = encode(spec)
        begun = time.perf_counter()
        self.actor.start.remote(encoded, blobs, {}, self.groups, ())
        done, is_over = 0, False
        while not is_over:
            for _, _, messages, _, _ in ray.get(self.actor.next_batch.remote(10.0)):
                for message in messages:
                    report = decode(STAGE_MESSAGE, message)
                    done += len(report.tasks) if isinstance(report, NodesSucceeded) else isinstance(report, NodeSucceeded)
                    is_over |= isinstance(report, StageEnded)
        wall_ms = (time.perf_counter() - begun) * 1000
        ray.get(self.actor.forget.remote(run))
        if done != len(graph):
            raise AssertionError(f"{done} of {len(graph)} tasks succeeded")
        return {WALL: wall_ms}


def measure(graph: str, bed: MeshBed, turns: int) -> Result:
    """Measure both sides of one graph in turns."""
    steps = GRAPHS[graph]()
    remote = {
        function: ray.remote(num_cpus=1)(function).options(label_selector={"side": "plain"}) for function in (nothing, one, total, layered)
    }
    groups = [placement_group([{"CPU": 1}], bundle_label_selector=[{"side": "mesh"}]) for _ in range(bed.cpus)]
    actor = StageRunner.options(label_selector={"side": "mesh"}).remote()
    try:
        ray.get([group.ready() for group in groups])
        ray.get(actor.bind.remote(TENANT, "file:///nowhere", 64 * 1024, MeshId("graphs")))
        side = RunnerSide(actor, tuple(SlotGroup(group, slots=1, is_placed=True) for group in groups))
        sides = {RUNNER: partial(side.run, *tasks_of(steps)), PLAIN: partial(on_plain_ray, remote, steps)}
        found = in_turns(sides, warm_ups=3, turns=turns)
    finally:
        ray.kill(actor)
        for group in groups:
            remove_placement_group(group)
    about = f"{graph}, {len(steps):,} tasks that do nothing, from the start of the stage to its last report; {bed.cpus} slots"
    return result_of(f"stage_{graph}", about, found, base=PLAIN)
