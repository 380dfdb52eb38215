"""Handles the messages of meshes about their stages.

A message names its stage and attempt. A message about an earlier stage or attempt is dropped, so each attempt has at most one
result.
"""

from __future__ import annotations

from dag.run.attempts import Attempts
from dag.run.completion import Completion
from dag.run.deliveries import Deliveries
from dag.run.losses import Losses
from dag.run.recalls import Recalls
from dag.run.run_status import RunStatus
from dag.run.runs import DropValue, KeptCheckpoint, NodeRecord, StageRecord
from dag.run.state_writer import StateWriter
from dag.run.states import NODE_ENDS, STAGE_ENDS, NodeState, StageState
from mesh.core.counting import counted
from mesh.stages.messages import (
    PROGRESS_WHOLE,
    CheckpointRefused,
    InputLost,
    NodeCheckpoint,
    NodeFailed,
    NodeProgress,
    NodesSucceeded,
    NodeStarted,
    NodeSucceeded,
    StageEnded,
    StageLost,
    StageMessage,
    StageResized,
    StageStarted,
    StageWaiting,
    TaskNote,
)

_NOT_STARTED = frozenset({NodeState.WAITING, NodeState.BLOCKED, NodeState.ASSIGNED})


class Reports:
    def __init__(
        self,
        run_status: RunStatus,
        writer: StateWriter,
        deliveries: Deliveries,
        recalls: Recalls,
        completion: Completion,
        attempts: Attempts,
        losses: Losses,
    ) -> None:
        self._run_status = run_status
        self._record = run_status.record
        self._writer = writer
        self._deliveries = deliveries
        self._recalls = recalls
        self._completion = completion
        self._attempts = attempts
        self._losses = losses

    def take(self, message: StageMessage) -> None:
        """Handle a message, unless its stage has ended."""
        stage = self._record.stages.get(message.stage)
        if stage is None or stage.state in STAGE_ENDS:
            if isinstance(message, NodeCheckpoint):
                self._refuse_checkpoint(message)
            return
        if isinstance(message, StageWaiting):
            stage.reason, stage.detail = message.reason, message.detail
            self._writer.note_stage(stage, stage.state, message.reason, message.detail)
        elif isinstance(message, StageStarted):
            self._start_stage(stage, message)
        elif isinstance(message, (StageResized, StageEnded, StageLost)):
            self._take_change(stage, message)
        elif isinstance(message, InputLost):
            self._losses.lose_input(stage, message.node)
        elif isinstance(message, NodesSucceeded):
            self._take_ends(stage, message)
        else:
            node = self._record.nodes.get(message.node)
            if node is not None and node.stage == stage.stage and node.attempt == message.attempt and node.state not in NODE_ENDS:
                self._take_node(node, message)
            elif isinstance(message, NodeCheckpoint):
                self._refuse_checkpoint(message)

    def _take_change(self, stage: StageRecord, message: StageResized | StageEnded | StageLost) -> None:
        if isinstance(message, StageEnded):
            self._end_stage(stage)
        elif isinstance(message, StageLost):
            self._losses.lose_stage(stage, message.reason, keeps_values=message.keeps_values)
        elif stage.state is StageState.RUNNING and stage.slots != message.slots:
            before, stage.slots = stage.slots, message.slots
            self._writer.note_stage(stage, stage.state, stage.reason, f"{counted(message.slots, 'slot')} instead of {before}")

    def _take_ends(self, stage: StageRecord, message: NodesSucceeded) -> None:
        """Handle each end as a start and an end of its own, so that users see both."""
        for one in message.single(stage.nodes):
            self.take(NodeStarted(stage=one.stage, node=one.node, attempt=one.attempt, started_ms=one.started_ms))
            self.take(one)

    def _take_node(self, node: NodeRecord, message: NodeStarted | NodeSucceeded | NodeFailed | TaskNote) -> None:
        if isinstance(message, NodeCheckpoint):
            self._keep_checkpoint(node, message)
            return
        if isinstance(message, NodeProgress):
            node.progress = message.progress / PROGRESS_WHOLE
            self._writer.touch(node)
            return
        if isinstance(message, CheckpointRefused):
            same = node.state.value
            self._writer.note("node", node=node, before=same, after=same, reason=message.reason, detail=message.detail)
            return
        stage = self._run_status.stage_of(node)
        if stage.state is StageState.RUNNING and stage.reason is not None:  # The stage waited for room in Ray, and now has it.
            stage.reason, stage.detail = None, ""
            self._writer.note_stage(stage, stage.state, None, "")
        node.started_ms = message.started_ms
        if isinstance(message, NodeStarted):
            if node.state is NodeState.ASSIGNED:
                self._writer.node(node, NodeState.RUNNING)
        elif isinstance(message, NodeSucceeded):
            self._succeed(node, message)
        else:
            node.finished_ms = message.finished_ms
            self._attempts.fail(node, message.failure)

    def _keep_checkpoint(self, node: NodeRecord, message: NodeCheckpoint) -> None:
        """Keep the checkpoint in place of the one before, unless a report that was sent again is older."""
        before = node.checkpoint
        if before is not None and (before.attempt, before.number) >= (message.attempt, message.number):
            self._refuse_checkpoint(message)
            return
        self._writer.drop_checkpoint(node)
        node.checkpoint = KeptCheckpoint(
            attempt=message.attempt, number=message.number, saved_ms=self._writer.now_ms, stored=message.stored
        )
        self._writer.touch(node)

    def _refuse_checkpoint(self, message: NodeCheckpoint) -> None:
        """Delete a checkpoint that came too late, unless it is the kept one, reported again."""
        node = self._record.nodes.get(message.node)
        if node is None or node.checkpoint is None or node.checkpoint.stored != message.stored:
            self._writer.decide(DropValue(value=message.stored))

    def _start_stage(self, stage: StageRecord, message: StageStarted) -> None:
        if stage.state is not StageState.QUEUED:
            return
        stage.incarnation, stage.cluster, stage.slots = message.incarnation, message.cluster, message.slots
        stage.started_ms, stage.reason, stage.detail = self._writer.now_ms, None, ""
        self._writer.stage(stage, StageState.RUNNING, None, f"{counted(message.slots, 'slot')} under lease token {message.token}")
        gone = []
        for need in self._run_status.external(stage):
            kept = self._record.nodes[need]
            if kept.state is NodeState.SUCCEEDED and (kept.mesh, kept.incarnation) != (stage.mesh, stage.incarnation):
                if kept.stored is not None:
                    self._deliveries.deliver(stage, kept)
                else:
                    gone.append(need)
        self._losses.lose_values(gone, with_inputs=True)

    def _succeed(self, node: NodeRecord, message: NodeSucceeded) -> None:
        stage = self._run_status.stage_of(node)
        node.finished_ms, node.stored, node.incarnation = message.finished_ms, message.stored, stage.incarnation
        self._writer.drop_checkpoint(node)
        self._writer.node(node, NodeState.SUCCEEDED, detail=message.worker)
        for follower in self._run_status.edges.followers[node.node]:  # The wait for quota begins now: the followers could not start before.
            kept = self._record.nodes[follower]
            if kept.waits_since_ms and kept.state in _NOT_STARTED:
                kept.waits_since_ms = self._writer.now_ms
                self._writer.touch(kept)
        for reader_stage in self._run_status.waiting_stages(node.node):
            if reader_stage.stage == stage.stage or (reader_stage.mesh, reader_stage.incarnation) == (stage.mesh, stage.incarnation):
                continue
            if reader_stage.state is StageState.QUEUED and reader_stage.mesh == stage.mesh:
                continue  # The stage may get the same runner; `_start_stage` checks.
            self._losses.lose_input(reader_stage, node.node)

    def _end_stage(self, stage: StageRecord) -> None:
        stage.ended_ms = self._writer.now_ms
        self._writer.stage(stage, StageState.ENDED)
        left = self._run_status.left(stage)
        if not self._completion.drop_if_stopping(left):
            for node in left:  # The mesh dropped these nodes, so they are placed again.
                self._recalls.recall(node)
