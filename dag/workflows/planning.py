"""A workflow as a planning problem: its tasks on meshes of slots, its files as values between them. Times are seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from dag.placement.bounds import lower_bound
from dag.placement.heuristics import heft
from dag.placement.planner import plan
from dag.placement.problem import Need, Pool, Problem, crossing_share
from dag.placement.shape import border_levels, cut_edges, distinct_transfers, shape_of
from dag.workflows.meshes import MeshSet, PlannedMesh
from dag.workflows.wfformat import Workflow, WorkflowTask
from mesh.core.labels import mismatch

#: Digits after the point of a time in seconds.
DIGITS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowMetrics:
    """Metrics of a workflow on meshes. The words of cut, transfer, hop and stage are those of ADR 0007."""

    tasks: int
    edges: int
    components: int
    levels: int
    width: int
    linear_edges: int
    tasks_after_linear_fusion: int
    cut_edges: int
    transfers_distinct: int
    transfer_bytes_distinct: int
    hops: int
    stages_mesh_level: int
    lower_bound_s: float
    heft_s: float
    makespan_s: float


def problem_of(workflow: Workflow, meshes: MeshSet) -> Problem:
    """Return the planning problem of a workflow.

    Raises:
        ValueError: No mesh has the labels of a task.
    """
    size_of: dict[tuple[int, int], int] = {}
    for file, writer, reader in workflow.values():
        size_of[writer, reader] = size_of.get((writer, reader), 0) + workflow.sizes[file]
    needs = [
        tuple(Need(source, meshes.transfer_s(size_of.get((source, number), 0))) for source in task.needs)
        for number, task in enumerate(workflow.tasks)
    ]
    has_labels = any(mesh.labels for mesh in meshes.meshes)
    run_times = [
        tuple(inf if has_labels and not _fits(task, mesh) else task.run_s / mesh.speed for mesh in meshes.meshes) for task in workflow.tasks
    ]
    pools = tuple(Pool(slots=mesh.slots) for mesh in meshes.meshes)
    return Problem(pools=pools, run_times=run_times, needs=needs, rank_share=crossing_share(pool.slots for pool in pools))


def metrics_of(workflow: Workflow, meshes: MeshSet, mesh_of: Sequence[str]) -> WorkflowMetrics:
    """Return the metrics of a workflow: its shape, the cuts of an assignment, and how long HEFT's plan and ours take.

    Raises:
        ValueError: No mesh has the labels of a task.
    """
    needs = [task.needs for task in workflow.tasks]
    shape = shape_of(workflow.order, needs)
    levels = border_levels(workflow.order, dict(enumerate(needs)), dict(enumerate(mesh_of)))
    transfers = distinct_transfers(workflow.values(), workflow.sizes, mesh_of)
    problem = problem_of(workflow, meshes)
    return WorkflowMetrics(
        tasks=shape.tasks,
        edges=shape.edges,
        components=shape.components,
        levels=shape.levels,
        width=shape.width,
        linear_edges=shape.linear_edges,
        tasks_after_linear_fusion=shape.tasks - shape.linear_edges,
        cut_edges=cut_edges(needs, mesh_of),
        transfers_distinct=transfers.objects,
        transfer_bytes_distinct=transfers.size_bytes,
        hops=max(levels.values(), default=0),
        stages_mesh_level=len({(mesh_of[node], level) for node, level in levels.items()}),
        lower_bound_s=round(lower_bound(problem), DIGITS),
        heft_s=round(heft(problem).makespan, DIGITS),
        makespan_s=round(plan(problem).makespan, DIGITS),
    )


def _fits(task: WorkflowTask, mesh: PlannedMesh) -> bool:
    return mismatch(task.labels, mesh.labels) is None
