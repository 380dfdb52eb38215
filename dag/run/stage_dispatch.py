"""Chooses the planned stages to send now: those that can start, up to the limits of their tenant.

A stage is sent when its first node can start and every unfinished input from outside comes from a running stage. The second
condition keeps stages from holding slots while they wait for each other: a running stage waits only for running stages, and
these waits follow the graph, which has no circle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from dag.run.events import StartsAllowed
from dag.run.losses import Losses
from dag.run.node_table import NodeRecord
from dag.run.run_status import SENT, RunStatus
from dag.run.runs import RunRecord, SendStage, StageRecord
from dag.run.state_writer import Deliveries, StateWriter
from dag.run.states import NODE_ENDS, NodeState, RunState, StageState
from dag.spec.plans import NodePlan, Plans
from mesh.core.ids import NodeId
from mesh.core.reasons import Reason
from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.values import StoredValue
from mesh.preemption.stage_preemption import NEVER_PREEMPTS, PreemptionPolicy
from mesh.stages.spec import StageSpec, StageTasks, TaskSpec


class StageDispatch:
    """Sends stages to their meshes.

    Args:
        runtime_env: Ray's runtime environment of the whole run.
        deadline_ms: Time limit for a mesh to run a stage; None: no limit.
        is_traced: Whether tasks get a trace context though the client sent none.
    """

    def __init__(
        self,
        run_status: RunStatus,
        writer: StateWriter,
        deliveries: Deliveries,
        losses: Losses,
        *,
        runtime_env: dict[str, Any],
        deadline_ms: int | None,
        is_traced: bool = False,
    ) -> None:
        self._run_status = run_status
        self._record = run_status.record
        self._writer = writer
        self._deliveries = deliveries
        self._losses = losses
        self._runtime_env = runtime_env
        self._deadline_ms = deadline_ms
        self._is_traced = is_traced

    def send_what_can_start(self, allowed: StartsAllowed) -> None:
        """Send the stages that can start, up to the limits of the tenant."""
        if self._record.state not in (RunState.RUNNING, RunState.CANCELLING):
            return
        most, under_way = allowed.under_way_max, sum(stage.state in SENT for stage in self._record.stages.values())
        for stage in tuple(self._record.stages.values()):
            if not self._run_status.may_be_sent(stage):
                continue
            if stage.state is StageState.PLANNED:
                self._drop_what_has_ended(stage)
            if stage.state is StageState.PLANNED:
                out_of_reach = (need for need in self._run_status.external(stage) if self._run_status.is_out_of_reach(need, stage.mesh))
                self._losses.lose_values(out_of_reach)
                if not self._may_go(stage):
                    continue
                if most is not None and under_way >= most:
                    self._keep_back(stage, allowed)
                    continue
                under_way += 1
                self._send(stage, allowed)

    def _drop_what_has_ended(self, stage: StageRecord) -> None:
        """Remove nodes that ended while the stage waited; end a stage that has no other nodes."""
        nodes, rows = self._record.nodes, self._run_status.rows(stage)
        has_ended = nodes.are(nodes.columns.state[rows], NODE_ENDS)
        if has_ended.all():
            self._writer.stage(stage, StageState.ENDED)
        elif has_ended.any():
            stage.nodes = tuple(nodes.names[row] for row in rows[~has_ended].tolist())
            self._writer.touch_stage(stage)

    def _may_go(self, stage: StageRecord) -> bool:
        nodes, rows = self._record.nodes, self._run_status.rows(stage)
        edges = self._run_status.edges.to(rows)
        is_late = ~nodes.are(nodes.columns.state[edges.rows], (NodeState.SUCCEEDED,))
        if self._run_status.control.whens:  # Their order was kept before they were placed, however these nodes ended.
            is_late &= edges.is_read | ~self._run_status.control.is_tolerant(rows[edges.places], nodes.names)
        is_outside = is_late & ~np.isin(edges.rows, rows) if len(rows) < len(nodes) else np.zeros(len(is_late), dtype=np.bool_)
        if (is_outside & ~edges.is_read).any():
            return False
        if not all(self._run_status.will_come(nodes.names[need], stage.mesh) for need in set(edges.rows[is_outside].tolist())):
            return False
        return len(set(edges.places[is_late].tolist())) < len(rows)

    def _keep_back(self, stage: StageRecord, allowed: StartsAllowed) -> None:
        """Record why a stage that could start is not sent: its tenant or user is at a limit."""
        self._begin_to_wait(stage)
        explanation = allowed.reason, allowed.detail
        if (stage.reason, stage.detail) != explanation:
            stage.reason, stage.detail = explanation
            self._writer.note_stage(stage, stage.state, *explanation)

    def _send(self, stage: StageRecord, allowed: StartsAllowed) -> None:
        rows = self._run_status.rows(stage)
        self._record.nodes.columns.exported[rows] = self._run_status.leaving(stage)
        self._begin_to_wait(stage)
        decision = self.decision(stage, allowed.preemption)
        stage.sent_ms, stage.reason, stage.detail = self._writer.now_ms, Reason.WAITING_IN_QUEUE, ""
        self._writer.stage(stage, StageState.QUEUED)
        self._writer.assign(rows, stage)
        self._writer.decide(decision)
        for need in self._run_status.external(stage):
            if self._run_status.has_succeeded(need) and self._record.nodes[need].mesh != stage.mesh:
                self._deliveries.deliver(stage, self._record.nodes[need])

    def decision(self, stage: StageRecord, preemption: PreemptionPolicy) -> SendStage:
        """Return the decision to send the stage."""
        spec = spec_of(self._record, stage, self._run_status.plans, self._runtime_env, self._deadline_ms, preemption)
        if self._is_traced or self._record.traceparent:
            spec = replace(spec, traceparent=self._record.trace.header)
        return SendStage(mesh=stage.mesh, spec=spec)

    def _begin_to_wait(self, stage: StageRecord) -> None:
        nodes, rows = self._record.nodes, self._run_status.rows(stage)
        rows = rows[nodes.columns.waits_since_ms[rows] == 0]
        nodes.columns.waits_since_ms[rows] = self._writer.now_ms
        nodes.touch(rows)


def spec_of(
    record: RunRecord,
    stage: StageRecord,
    plans: Mapping[NodeId, NodePlan],
    runtime_env: dict[str, Any],
    deadline_ms: int | None = None,
    preemption: PreemptionPolicy = NEVER_PREEMPTS,
) -> StageSpec:
    """Return the stage as its mesh gets it. Its slot covers each single task; its priority is the highest of its tasks."""
    slot, priority, tasks = _columns_of(record, stage, plans) if isinstance(plans, Plans) else _rows_of(record, stage, plans)
    return StageSpec(
        stage=stage.stage,
        run=record.run,
        tenant=record.tenant,
        tasks=tasks,
        slot=slot,
        width=stage.width,
        priority=priority,
        created_ms=record.created_ms,
        runtime_env=runtime_env,
        preemption=preemption,
        deadline_ms=deadline_ms,
    )


def _columns_of(record: RunRecord, stage: StageRecord, plans: Plans) -> tuple[ResourceSet, int, StageTasks]:
    nodes = record.nodes
    rows = nodes.rows(stage.nodes)
    attempt = nodes.columns.attempt[rows]
    attempts = {place: attempt.item(place) for place in np.flatnonzero(attempt != 1).tolist()}
    exported = np.flatnonzero(nodes.columns.exported[rows]).tolist()
    checkpoints: dict[int, StoredValue] = {}
    for place, row in enumerate(rows.tolist()) if nodes.rare else ():
        rare = nodes.rare.get(row)
        if rare is not None and rare.checkpoint is not None:
            checkpoints[place] = rare.checkpoint.stored
    tasks = plans.tasks_of(stage.nodes, attempts=attempts, exported=exported, checkpoints=checkpoints)
    return plans.slot_of(stage.nodes), plans.priority_of(stage.nodes), tasks


def _rows_of(record: RunRecord, stage: StageRecord, plans: Mapping[NodeId, NodePlan]) -> tuple[ResourceSet, int, tuple[TaskSpec, ...]]:
    slot = reduce(ResourceSet.join, {plans[node].task.resources for node in stage.nodes}, NOTHING)
    inside = frozenset(stage.nodes)
    tasks = tuple(_task_of(plans[node], record.nodes[node], inside) for node in stage.nodes)
    return slot, max(plans[node].priority for node in stage.nodes), tasks


def _task_of(plan: NodePlan, kept: NodeRecord, inside: frozenset[NodeId]) -> TaskSpec:
    after = tuple(need for need in plan.task.after if need in inside)  # Nodes outside have succeeded when a stage is sent.
    checkpoint = kept.checkpoint.stored if kept.checkpoint is not None else None
    attempt, export = kept.attempt, kept.exported
    if (attempt, export, checkpoint, len(after)) == (1, False, None, len(plan.task.after)):
        return plan.task
    return replace(plan.task, attempt=attempt, after=after, export=export, checkpoint=checkpoint)
