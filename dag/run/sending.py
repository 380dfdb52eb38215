"""Message to a mesh about a stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from typing import Any

from dag.run.node_table import NodeRecord
from dag.run.runs import RunRecord, StageRecord
from dag.spec.plans import NodePlan
from mesh.core.ids import NodeId
from mesh.core.resources import NOTHING, ResourceSet
from mesh.preemption.stage_preemption import NEVER_PREEMPTS, PreemptionPolicy
from mesh.stages.spec import StageSpec, TaskSpec


def spec_of(
    record: RunRecord,
    stage: StageRecord,
    plans: Mapping[NodeId, NodePlan],
    runtime_env: dict[str, Any],
    deadline_ms: int | None = None,
    preemption: PreemptionPolicy = NEVER_PREEMPTS,
) -> StageSpec:
    """Return the stage as its mesh gets it. Its slot covers each single task; its priority is the highest of its tasks."""
    slot = reduce(ResourceSet.join, {plans[node].task.resources for node in stage.nodes}, NOTHING)
    inside = frozenset(stage.nodes)
    return StageSpec(
        stage=stage.stage,
        run=record.run,
        tenant=record.tenant,
        tasks=tuple(_task_of(plans[node], record.nodes[node], inside) for node in stage.nodes),
        slot=slot,
        width=stage.width,
        priority=max(plans[node].priority for node in stage.nodes),
        created_ms=record.created_ms,
        runtime_env=runtime_env,
        preemption=preemption,
        deadline_ms=deadline_ms,
    )


def _task_of(plan: NodePlan, kept: NodeRecord, inside: frozenset[NodeId]) -> TaskSpec:
    after = tuple(need for need in plan.task.after if need in inside)  # Nodes outside have succeeded when a stage is sent.
    checkpoint = kept.checkpoint.stored if kept.checkpoint is not None else None
    attempt, export = kept.attempt, kept.exported
    if (attempt, export, checkpoint, len(after)) == (1, False, None, len(plan.task.after)):
        return plan.task
    return replace(plan.task, attempt=attempt, after=after, export=export, checkpoint=checkpoint)
