"""Takes nodes out of their stages: restarted nodes, and the nodes in all stages that wait for them."""

from __future__ import annotations

from dag.run.node_facts import PAST_MAX, PastAttempt, TimerKind
from dag.run.node_table import NodeRecord
from dag.run.run_status import RunStatus
from dag.run.runs import StageRecord
from dag.run.state_writer import Deliveries, StateWriter
from dag.run.states import NODE_ENDS, NodeState, RunState, StageState
from dag.run.timers import Timers
from dag.spec.control import Sleep, WaitSignal
from mesh.core.ids import NodeId, StageId
from mesh.core.reasons import Reason

#: Characters of the words about a past attempt; the run's events have all of them.
DETAIL_CHARS_MAX = 300


class Recalls:
    def __init__(self, run_status: RunStatus, writer: StateWriter, deliveries: Deliveries, timers: Timers) -> None:
        self._run_status = run_status
        self._record = run_status.record
        self._writer = writer
        self._deliveries = deliveries
        self._timers = timers
        self._has_gaps = False

    def restart(self, node: NodeRecord, reason: Reason, detail: str) -> None:
        """Begin a new attempt of the node, and recall all nodes that were sent to wait for it."""
        before = node.state
        old_stage = node.stage
        self._take_back_readers(node.node, old_stage)
        self._remember(node, reason, detail)
        self._timers.drop(node, TimerKind.RETRY, TimerKind.WAKE, *([TimerKind.CLOSE] if before in NODE_ENDS else []))
        node.attempt += 1
        if before is NodeState.SUCCEEDED:  # Else what is stored is a signal, which came before the node could take it.
            node.stored = None
        node.state, node.stage, node.mesh, node.incarnation = NodeState.WAITING, None, None, 0
        node.waits_since_ms = 0
        node.exported = False
        node.progress = node.progress if node.checkpoint is not None else None
        self._has_gaps = True
        node.reason, node.detail, node.started_ms, node.finished_ms = reason, detail, 0, 0
        self._writer.note(
            "node", node=node, before=before.value, after=NodeState.WAITING.value, reason=reason, detail=detail, stage=old_stage
        )

    def _remember(self, node: NodeRecord, reason: Reason, detail: str) -> None:
        """Keep what became of the attempt that ends."""
        failed = node.failure is not None and node.failure.reason is reason
        past = PastAttempt(
            attempt=node.attempt,
            mesh=node.mesh,
            started_ms=node.started_ms,
            ended_ms=self._writer.now_ms,
            reason=reason,
            type_name=node.failure.type_name if failed and node.failure is not None else "",
            detail=detail[:DETAIL_CHARS_MAX],
            stage=node.stage,
        )
        node.past = (*node.past, past)[-PAST_MAX:]

    def _take_back_readers(self, node: NodeId, stage: StageId | None) -> None:
        """Recall, transitively, the nodes that were sent to wait for `node`, and withhold its value from their stages."""
        pending = [(node, stage)]
        while pending:
            source, source_stage = pending.pop()
            for follower in self._run_status.edges.followers[source]:
                kept = self._record.nodes[follower]
                if kept.state is not NodeState.ASSIGNED or kept.stage is None:
                    continue  # A node that was not sent waits for the new attempt. A node that runs or ended has its inputs.
                if kept.stage != source_stage:
                    if source not in self._run_status.plans[follower].task.inputs:
                        continue  # The node needs only the order, which was kept.
                    self._deliveries.withhold(self._record.stages[kept.stage], source)
                pending.append((follower, kept.stage))
                self.recall(kept)

    def recall(self, node: NodeRecord) -> None:
        """Take the node out of its stage, to be placed again, without spending a retry or a loss.

        The attempt number grows if the mesh may have begun to run the node.
        """
        if self._may_have_begun(node):
            node.attempt += 1
        if node.state is NodeState.RUNNING:
            node.state = NodeState.ASSIGNED
        if node.state is NodeState.ASSIGNED:
            self._writer.node(node, NodeState.WAITING, Reason.WAITING_FOR_INPUTS)
        if node.stage is not None and self._record.stages[node.stage].started_ms:
            node.waits_since_ms = 0  # The wait ended when the mesh began the stage.
        node.stage, node.mesh = None, None
        self._has_gaps = True

    def resume(self, detail: str) -> None:
        """Begin the run again: what has succeeded stays, everything else gets fresh attempts.

        Values that were deleted after the end are computed again, as far as something needs them.
        """
        record = self._record
        before, record.state = record.state, RunState.RUNNING
        record.resumed_ms, record.ended_ms, record.forget_ms = self._writer.now_ms, 0, 0
        record.reason, record.detail = None, ""
        self._writer.note("run", before=before.value, after=RunState.RUNNING.value, reason=Reason.RESUMED, detail=detail)
        for node in record.nodes.among(*(NODE_ENDS - {NodeState.SUCCEEDED})):
            self._begin_again(node, Reason.RESUMED, detail)
        if record.forgotten:
            self._recompute_forgotten()
        record.forgotten = False

    def _begin_again(self, node: NodeRecord, reason: Reason, detail: str) -> None:
        """Begin a fresh attempt of a node that has ended, with all its retries."""
        before, was_sent = node.state, node.stage is not None
        if was_sent:
            self._remember(node, node.failure.reason if node.failure is not None else reason, node.detail)
        node.attempt += was_sent
        self._timers.drop(node, *TimerKind)
        node.state, node.stage, node.mesh, node.incarnation = NodeState.WAITING, None, None, 0
        if not isinstance(self._run_status.control.controls.get(node.node), WaitSignal):
            node.stored = None  # Else what is stored is a signal, which nobody will send again.
        node.retries_used = node.losses = node.kills = 0
        node.failure, node.roots, node.exported, node.cache = None, (), False, None
        node.waits_since_ms = node.started_ms = node.finished_ms = 0
        node.reason, node.detail = reason, detail
        self._writer.note("node", node=node, before=before.value, after=NodeState.WAITING.value, reason=reason, detail=detail)

    def _recompute_forgotten(self) -> None:
        nodes, controls = self._record.nodes, self._run_status.control.controls
        for row in tuple(nodes.stored):
            if nodes.names[row] not in self._run_status.outputs and not isinstance(controls.get(nodes.names[row]), (Sleep, WaitSignal)):
                nodes.store(row, None)
        for row in tuple(row for row, rare in nodes.rare.items() if rare.checkpoint is not None):
            nodes.at(row).checkpoint = nodes.at(row).progress = None
        for node in map(nodes.at, self._run_status.edges.order[::-1].tolist()):  # Readers first: a value is needed by what begins again.
            if node.state is NodeState.SUCCEEDED and node.stored is None and self._run_status.is_needed(node.node):
                self._begin_again(node, Reason.VALUE_LOST, "its value was deleted after the end of the run")

    def _may_have_begun(self, node: NodeRecord) -> bool:
        """Return whether the mesh may run the node without having reported that yet. An attempt number must name one execution.

        A stage in state ENDED has reported every node that it began.
        """
        if node.state is NodeState.ASSIGNED and node.stage is not None:
            return self._record.stages[node.stage].state is not StageState.ENDED
        return node.state is NodeState.RUNNING

    def dissolve(self, stage: StageRecord) -> None:
        """End a stage that was never sent, and recall its nodes."""
        nodes, stage.nodes = stage.nodes, ()
        self._writer.stage(stage, StageState.ENDED)
        for node in nodes:
            if self._record.nodes[node].state not in NODE_ENDS:
                self.recall(self._record.nodes[node])

    def close_gaps(self) -> None:
        """After a recall, dissolve all planned stages, so that their nodes and the recalled ones are split together.

        One split never produces stages that wait for each other in a circle. Stages of two different splits might.
        """
        if not self._has_gaps:
            return
        for stage in tuple(self._record.stages.values()):
            if stage.state is StageState.PLANNED:
                self.dissolve(stage)
        self._has_gaps = False
