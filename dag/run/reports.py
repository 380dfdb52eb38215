"""Handles the messages of meshes about their stages.

A message names its stage and attempt. A message about an earlier stage or attempt is dropped, so each attempt has at most one
result.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dag.run.attempts import Attempts
from dag.run.completion import Completion
from dag.run.events import NodeGrown
from dag.run.losses import Losses
from dag.run.node_facts import KeptCheckpoint, Rows
from dag.run.node_table import NodeRecord, NodeTable
from dag.run.recalls import Recalls
from dag.run.run_status import SENT, RunStatus
from dag.run.runs import DropValue, StageRecord
from dag.run.state_writer import Deliveries, StateWriter
from dag.run.states import NODE_ENDS, STAGE_ENDS, NodeState, StageState
from mesh.core.counting import counted
from mesh.core.ids import NodeId
from mesh.core.reasons import Reason
from mesh.stages.arrays import array_of
from mesh.stages.messages import (
    PROGRESS_WHOLE,
    CheckpointRefused,
    InputLost,
    NodeCheckpoint,
    NodeFailed,
    NodeGrew,
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

    def take(self, message: StageMessage | NodeGrown) -> None:
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
        """Handle each entry as a start and an end of its own, all of them at once where none concerns another.

        A success may restart its node, if another stage waits for its value and cannot get it. This may recall nodes of later entries.
        So the entries up to that one are handled, then what the success leads to, then the others.
        """
        nodes, of_stage = self._record.nodes, self._run_status.rows(stage)
        tasks = np.array(message.tasks, dtype=np.intp)
        entries = np.flatnonzero(tasks < len(of_stage))
        rows = of_stage[tasks[entries]]
        attempts = np.array(message.attempts, dtype=np.int64)[entries] if message.attempts else np.ones(len(rows), dtype=np.int64)
        while True:
            columns = nodes.columns
            is_current = (
                (columns.attempt[rows] == attempts) & ~nodes.are(columns.state[rows], NODE_ENDS) & nodes.in_stage(rows, stage.stage)
            )
            is_current &= _is_first(rows)
            entries, rows, attempts = entries[is_current], rows[is_current], attempts[is_current]
            if not len(rows) or stage.state in STAGE_ENDS:
                return
            concerned, upto = self._with_readers_elsewhere(stage, message, entries, rows)
            self._note_placed(stage)
            self._succeed_many(stage, message, entries[:upto], rows[:upto])
            for place in concerned:
                self._pass_on(nodes.at(rows[place].item()), stage)
            entries, rows, attempts = entries[upto:], rows[upto:], attempts[upto:]

    def _with_readers_elsewhere(self, stage: StageRecord, message: NodesSucceeded, entries: Rows, rows: Rows) -> tuple[list[int], int]:
        """Return the places of entries whose value a stage elsewhere waits for, and the number of entries to handle at once."""
        nodes, edges = self._record.nodes, self._run_status.edges.of(rows)
        is_open = edges.is_read & ~nodes.are(nodes.columns.state[edges.rows], NODE_ENDS) & ~nodes.in_stage(edges.rows, stage.stage)
        if not is_open.any():
            return [], len(rows)
        concerned: dict[int, None] = {}
        for place, reader in zip(edges.places[is_open].tolist(), edges.rows[is_open].tolist(), strict=True):
            name = nodes.at(reader).stage
            if name is None or not _waits_elsewhere(self._record.stages[name], stage):
                continue
            concerned[place] = None
            if message.stored.get(entries[place].item()) is None or nodes.names[rows[place]] in self._record.stages[name].delivered:
                return list(concerned), place + 1
        return list(concerned), len(rows)

    def _succeed_many(self, stage: StageRecord, message: NodesSucceeded, entries: Rows, rows: Rows) -> None:
        nodes = self._record.nodes
        self._restart_waits(self._run_status.edges.of(rows).rows)
        self._writer.succeed(stage, message, entries, rows)
        if message.stored or nodes.stored:
            for entry, row in zip(entries.tolist(), rows.tolist(), strict=True):
                nodes.store(row, message.stored.get(entry))
        for row in nodes.rare.keys() & set(rows.tolist()) if nodes.rare else ():
            self._writer.drop_checkpoint(nodes.at(row))
        if message.elements:
            for entry, row in zip(entries.tolist(), rows.tolist(), strict=True):
                self._note_elements(nodes.names[row], message.elements.get(entry))

    def _note_elements(self, part: NodeId, elements: int | None) -> None:
        """Record the number of elements of an array."""
        array = NodeId(array_of(part))
        if elements is not None and array in self._record.nodes:
            self._record.nodes[array].elements = elements

    def _take_node(self, node: NodeRecord, message: NodeStarted | NodeSucceeded | NodeFailed | NodeGrew | NodeGrown | TaskNote) -> None:
        if isinstance(message, NodeCheckpoint):
            self._keep_checkpoint(node, message)
            return
        if isinstance(message, NodeProgress):
            node.progress = message.progress / PROGRESS_WHOLE
            return
        if isinstance(message, CheckpointRefused):
            same = node.state.value
            self._writer.note("node", node=node, before=same, after=same, reason=message.reason, detail=message.detail)
            return
        self._note_placed(self._run_status.stage_of(node))
        node.started_ms = message.started_ms
        if isinstance(message, NodeStarted):
            if node.state is NodeState.ASSIGNED:
                self._writer.node(node, NodeState.RUNNING)
        elif isinstance(message, NodeSucceeded):
            self._succeed(node, message)
        else:
            node.finished_ms = message.finished_ms
            self._end_without_value(node, message)

    def _end_without_value(self, node: NodeRecord, message: NodeFailed | NodeGrew | NodeGrown) -> None:
        if isinstance(message, NodeGrown):
            self._attempts.grow(node, message)
        elif isinstance(message, NodeFailed):
            self._attempts.fail(node, message.failure)
        else:
            self._attempts.lose(node, Reason.VALUE_LOST, "nobody has read the nodes that it returned")

    def _note_placed(self, stage: StageRecord) -> None:
        """Record that a stage that waited for room in Ray has it: a task of it runs."""
        if stage.state is StageState.RUNNING and stage.reason is not None:
            stage.reason, stage.detail = None, ""
            self._writer.note_stage(stage, stage.state, None, "")

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
        self._note_elements(node.node, message.elements)
        self._writer.node(node, NodeState.SUCCEEDED, detail=message.worker)
        self._restart_waits(self._run_status.edges.of(np.array([node.row])).rows)
        self._pass_on(node, stage)

    def _restart_waits(self, followers: Rows) -> None:
        """Count the wait for quota of nodes from now on: they could not start before."""
        columns = self._record.nodes.columns
        followers = followers[(columns.waits_since_ms[followers] != 0) & NodeTable.are(columns.state[followers], _NOT_STARTED)]
        columns.waits_since_ms[followers] = self._writer.now_ms
        self._record.nodes.touch(followers)

    def _pass_on(self, node: NodeRecord, stage: StageRecord) -> None:
        """Give the node's value to the stages elsewhere that wait for it, or compute it again for them."""
        for reader_stage in self._run_status.waiting_stages(node.node):
            if _waits_elsewhere(reader_stage, stage):
                self._losses.lose_input(reader_stage, node.node)

    def _end_stage(self, stage: StageRecord) -> None:
        stage.ended_ms = self._writer.now_ms
        self._writer.stage(stage, StageState.ENDED)
        left = self._run_status.left(stage)
        if not self._completion.drop_if_stopping(left):
            for node in left:  # The mesh dropped these nodes, so they are placed again.
                self._recalls.recall(node)


def _waits_elsewhere(reader: StageRecord, stage: StageRecord) -> bool:
    """Return whether a sent stage that reads a value of `stage` cannot have it in the memory of its runner."""
    if reader.state not in SENT or reader.stage == stage.stage or (reader.mesh, reader.incarnation) == (stage.mesh, stage.incarnation):
        return False
    # A queued stage of the same mesh may get the same runner; `_start_stage` checks.
    return not (reader.state is StageState.QUEUED and reader.mesh == stage.mesh)


def _is_first(rows: Rows) -> NDArray[np.bool_]:
    """Return which rows have not come before."""
    found = np.zeros(len(rows), dtype=np.bool_)
    found[np.unique(rows, return_index=True)[1]] = True
    return found
