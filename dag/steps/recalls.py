"""Nodes are taken back out of their stages: those that begin anew, and over the border of every stage those that wait for them."""

from __future__ import annotations

from dag.runs import NodeRecord, StageRecord
from dag.states import NODE_ENDS, NodeState, StageState
from dag.steps.deliveries import Deliveries
from dag.steps.run_status import RunStatus
from dag.steps.state_writer import StateWriter
from mesh.ids import NodeId, StageId
from mesh.reasons import Reason


class Recalls:
    """What was placed, and has to be placed again."""

    def __init__(self, run_status: RunStatus, writer: StateWriter, deliveries: Deliveries) -> None:
        self._run_status = run_status
        self._record = run_status.record
        self._writer = writer
        self._deliveries = deliveries
        self._has_gaps = False

    def restart(self, node: NodeRecord, reason: Reason, detail: str) -> None:
        """A new attempt, and back with everything that was sent to wait for this one."""
        before = node.state
        if before in NODE_ENDS:
            self._writer.open += 1
        old_stage = node.stage
        self._take_back_readers(node.node, old_stage)
        node.attempt += 1
        node.state, node.stage, node.mesh, node.incarnation, node.stored = NodeState.WAITING, None, None, 0, None
        node.not_before_ms = node.waits_since_ms = 0
        node.exported = False
        self._has_gaps = True
        node.reason, node.detail, node.started_ms, node.finished_ms = reason, detail, 0, 0
        self._writer.touch(node)
        self._writer.note(
            "node", node=node, before=before.value, after=NodeState.WAITING.value, reason=reason, detail=detail, stage=old_stage
        )

    def _take_back_readers(self, node: NodeId, stage: StageId | None) -> None:
        """Recall, transitively, the nodes that were sent to wait for `node`; other stages are told that it will not come."""
        pending = [(node, stage)]
        while pending:
            source, source_stage = pending.pop()
            for follower in self._run_status.edges.followers[source]:
                kept = self._record.nodes[follower]
                if kept.state is not NodeState.ASSIGNED or kept.stage is None:
                    continue  # Not sent: it simply waits for the new attempt. Running or over: it has what it needs.
                if kept.stage != source_stage:
                    if source not in self._run_status.plans[follower].inputs:
                        continue  # It waited for the order only, and the order was kept.
                    self._deliveries.withhold(self._record.stages[kept.stage], source)
                pending.append((follower, kept.stage))
                self.recall(kept)

    def recall(self, node: NodeRecord) -> None:
        """Take the node out of its stage, so that it is placed again. It spends no retry and no loss.

        Its attempt number grows where its mesh may have begun to run it.
        """
        if self._may_have_begun(node):
            node.attempt += 1
        if node.state is NodeState.RUNNING:
            node.state = NodeState.ASSIGNED
        if node.state is NodeState.ASSIGNED:
            self._writer.node(node, NodeState.WAITING, Reason.WAITING_FOR_INPUTS)
        if node.stage is not None and self._record.stages[node.stage].started_ms:
            node.waits_since_ms = 0  # Its wait was over when its mesh began with it.
        node.stage, node.mesh = None, None
        self._has_gaps = True
        self._writer.touch(node)

    def _may_have_begun(self, node: NodeRecord) -> bool:
        """Whether its mesh may run it, though it has not reported so: an attempt number names one execution.

        Of a stage that has ended in good order, the mesh has reported all that it began.
        """
        if node.state is NodeState.ASSIGNED and node.stage is not None:
            return self._record.stages[node.stage].state is not StageState.ENDED
        return node.state is NodeState.RUNNING

    def dissolve(self, stage: StageRecord) -> None:
        """End a stage that nobody has heard of."""
        nodes, stage.nodes = stage.nodes, ()
        self._writer.stage(stage, StageState.ENDED)
        for node in nodes:
            if self._record.nodes[node].state not in NODE_ENDS:
                self.recall(self._record.nodes[node])

    def close_gaps(self) -> None:
        """Where nodes were taken out of stages, all that was not sent is placed anew, together with them.

        Stages that are split in one go form no circle; the rest of an old split and a new one might: a node of the first waits
        for one of the second, and another the other way round.
        """
        if not self._has_gaps:
            return
        for stage in tuple(self._record.stages.values()):
            if stage.state is StageState.PLANNED:
                self.dissolve(stage)
        self._has_gaps = False
