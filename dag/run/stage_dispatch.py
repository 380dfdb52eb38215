"""Chooses the planned stages to send now: those that can start, up to the limits of their tenant.

A stage is sent when its first node can start and every unfinished input from outside comes from a running stage. The second
condition keeps stages from holding slots while they wait for each other: a running stage waits only for running stages, and
these waits follow the graph, which has no circle.
"""

from __future__ import annotations

from typing import Any

from dag.run.deliveries import Deliveries
from dag.run.events import StartsAllowed
from dag.run.losses import Losses
from dag.run.run_status import SENT, RunStatus
from dag.run.runs import SendStage, StageRecord
from dag.run.sending import spec_of
from dag.run.state_writer import StateWriter
from dag.run.states import NODE_ENDS, NodeState, RunState, StageState
from mesh.core.reasons import Reason


class StageDispatch:
    """Sends stages to their meshes.

    Args:
        runtime_env: Ray's runtime environment of the whole run.
        deadline_ms: Time limit for a mesh to run a stage; None: no limit.
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
    ) -> None:
        self._run_status = run_status
        self._record = run_status.record
        self._writer = writer
        self._deliveries = deliveries
        self._losses = losses
        self._runtime_env = runtime_env
        self._deadline_ms = deadline_ms

    def send_what_can_start(self, allowed: StartsAllowed) -> None:
        """Send the stages that can start, up to the limits of the tenant."""
        if self._run_status.is_winding_down() or self._record.state is not RunState.RUNNING:
            return
        most, under_way = allowed.under_way_max, sum(stage.state in SENT for stage in self._record.stages.values())
        for stage in tuple(self._record.stages.values()):
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
        left = tuple(node for node in stage.nodes if self._record.nodes[node].state not in NODE_ENDS)
        if not left:
            self._writer.stage(stage, StageState.ENDED)
        elif len(left) < len(stage.nodes):
            stage.nodes = left
            self._writer.touch_stage(stage)

    def _may_go(self, stage: StageRecord) -> bool:
        inside = set(stage.nodes)
        some_node_can_start = False
        for node in stage.nodes:
            inputs = self._run_status.plans[node].task.inputs
            late = [need for need in self._run_status.edges.needs[node] if not self._run_status.has_succeeded(need)]
            some_node_can_start = some_node_can_start or not late
            for need in late:
                if need not in inside and not (need in inputs and self._run_status.will_come(need, stage.mesh)):
                    return False
        return some_node_can_start

    def _keep_back(self, stage: StageRecord, allowed: StartsAllowed) -> None:
        """Record why a stage that could start is not sent: its tenant or user is at a limit."""
        self._begin_to_wait(stage)
        explanation = allowed.reason, allowed.detail
        if (stage.reason, stage.detail) != explanation:
            stage.reason, stage.detail = explanation
            self._writer.note_stage(stage, stage.state, *explanation)

    def _send(self, stage: StageRecord, allowed: StartsAllowed) -> None:
        for node in stage.nodes:
            self._record.nodes[node].exported = self._run_status.leaves(node, stage.mesh)
        self._begin_to_wait(stage)
        spec = spec_of(self._record, stage, self._run_status.plans, self._runtime_env, self._deadline_ms, allowed.preemption)
        stage.sent_ms, stage.reason, stage.detail = self._writer.now_ms, Reason.WAITING_IN_QUEUE, ""
        self._writer.stage(stage, StageState.QUEUED)
        for node in stage.nodes:
            self._writer.node(self._record.nodes[node], NodeState.ASSIGNED)
        self._writer.decide(SendStage(mesh=stage.mesh, spec=spec))
        for need in self._run_status.external(stage):
            if self._run_status.has_succeeded(need) and self._record.nodes[need].mesh != stage.mesh:
                self._deliveries.deliver(stage, self._record.nodes[need])

    def _begin_to_wait(self, stage: StageRecord) -> None:
        for node in stage.nodes:
            kept = self._record.nodes[node]
            if not kept.waits_since_ms:
                kept.waits_since_ms = self._writer.now_ms
                self._writer.touch(kept)
