"""Losses with a runner: its stage, and finished values that were not stored. Needed values are computed again."""

from __future__ import annotations

from collections.abc import Iterable

from dag.run.attempts import Attempts
from dag.run.completion import Completion
from dag.run.node_table import NodeRecord
from dag.run.run_status import RunStatus
from dag.run.runs import StageRecord
from dag.run.state_writer import PREEMPTED_COUNT, Deliveries, StateWriter
from dag.run.states import NodeState
from dag.spec.control import Cond, Grown
from mesh.core.ids import NodeId
from mesh.core.reasons import Reason
from mesh.core.values import StoredValue
from mesh.stages.messages import Failure


class Losses:
    def __init__(
        self, run_status: RunStatus, writer: StateWriter, deliveries: Deliveries, completion: Completion, attempts: Attempts
    ) -> None:
        self._run_status = run_status
        self._record = run_status.record
        self._writer = writer
        self._deliveries = deliveries
        self._completion = completion
        self._attempts = attempts

    def lose_stage(self, stage: StageRecord, reason: Reason, *, keeps_values: bool = False) -> None:
        """Handle a lost runner: end the stage, retry its nodes, and recompute the values that the runner held.

        Args:
            keeps_values: The next runner has the values; it reports `InputLost` about those that were too large to keep.
        """
        self._writer.cut_stage(stage, reason)
        left = self._run_status.left(stage)
        if left and self._completion.drop_if_stopping(left):
            return
        nodes = self._record.nodes
        held = (
            [nodes.names[row] for row in nodes.held_by(stage.mesh, stage.incarnation).tolist()]
            if stage.incarnation and not keeps_values
            else []
        )
        for node in left:
            if self._run_status.is_left(stage, node.node):  # A recall of an earlier node may have taken it out of the stage.
                self._lose_with_stage(node, stage, reason)
            others = [other for other in left if self._run_status.is_left(stage, other.node)]
            if others and self._completion.drop_if_stopping(others):
                return  # The node reached its limit of losses, and the run stops.
        self.lose_values(held, reason if reason in PREEMPTED_COUNT else Reason.VALUE_LOST, with_inputs=True)

    def _lose_with_stage(self, node: NodeRecord, stage: StageRecord, reason: Reason) -> None:
        """Count a dead worker against a node that was running; a node that waited cannot have killed the worker."""
        if reason is Reason.WORKER_LOST and node.state is NodeState.RUNNING:
            words = f"a runner of mesh {stage.mesh} died while it ran the node"
            self._attempts.lose_worker(node, Failure(reason=reason, type_name="schedulemesh.WorkLost", message=words))
        elif reason is Reason.DEADLINE_EXCEEDED:
            self._attempts.lose(node, reason, f"mesh {stage.mesh} did not finish the stage before its deadline", waits=True)
        else:
            self._attempts.lose(node, reason, f"mesh {stage.mesh} {'stopped' if reason in PREEMPTED_COUNT else 'lost'} the stage")

    def lose_input(self, stage: StageRecord, node: NodeId) -> None:
        """Handle an input that the stage's runner does not have: deliver the stored value, or recompute the value.

        A stored value that was already delivered is recomputed too: its file is gone or damaged. The runner may still have the inputs
        of the value; it reports those that it lacks.
        """
        kept = self._record.nodes.get(node)
        if kept is None:
            return
        if kept.stored is not None and node not in stage.delivered:
            self._deliveries.deliver(stage, kept)
            return
        lost = kept.stored
        if lost is not None:
            if not any(self._run_status.is_left(stage, reader) for reader in self._run_status.edges.readers[node]):
                return  # The readers were recalled, so the message is about an earlier attempt.
            kept.stored = None
        self.lose_values(self._sources_of(node, lost))

    def _sources_of(self, node: NodeId, lost: StoredValue | None) -> list[NodeId]:
        """Return the nodes whose stored value is also that of this one, the first of them first, and this one; none of them has it now.

        Args:
            lost: The stored value that is lost; it shows which branch a cond has taken.
        """
        sources = [node]
        while (source := self._source_of(sources[0], lost)) is not None:
            sources.insert(0, source)
            self._record.nodes[source].stored = None
        return sources

    def _source_of(self, node: NodeId, lost: StoredValue | None) -> NodeId | None:
        control = self._run_status.control.controls.get(node)
        if isinstance(control, Grown):
            return control.value_of
        branches = control.branches if isinstance(control, Cond) and lost is not None else ()
        return next((branch for branch in branches if self._record.nodes[branch].stored == lost), None)

    def lose_values(self, nodes: Iterable[NodeId], reason: Reason = Reason.VALUE_LOST, *, with_inputs: bool = False) -> None:
        """Recompute lost values that a reader still needs.

        Args:
            reason: Why they are lost; a preemption does not count as a loss of their nodes.
            with_inputs: The holder is gone, so the inputs that it held are lost too.
        """
        pending = list(nodes)
        if self._run_status.is_winding_down():
            self._give_up(pending)
        while pending and not self._run_status.is_winding_down():
            kept = self._record.nodes[pending.pop()]
            if not self._run_status.has_succeeded(kept.node) or kept.stored is not None or not self._run_status.is_needed(kept.node):
                continue
            holder = (kept.mesh, kept.incarnation)
            self._attempts.lose(kept, reason, f"the value was lost with a runner of mesh {kept.mesh}")
            if with_inputs:
                needed = (self._record.nodes[need] for need in self._run_status.plans[kept.node].task.inputs)
                pending.extend(need.node for need in needed if need.stored is None and (need.mesh, need.incarnation) == holder)

    def _give_up(self, nodes: Iterable[NodeId]) -> None:
        """Skip the cleanup that reads lost values: while the run stops, nothing is computed again."""
        for node in nodes if self._run_status.control.cleanup else ():
            kept = self._record.nodes[node]
            if not self._run_status.has_succeeded(node) or kept.stored is not None:
                continue
            for reader in map(self._record.nodes.__getitem__, self._run_status.edges.readers[node]):
                if reader.state in (NodeState.WAITING, NodeState.BLOCKED, NodeState.ASSIGNED):
                    if reader.stage is not None and reader.state is NodeState.ASSIGNED:
                        self._deliveries.withhold(self._record.stages[reader.stage], node)
                    self._completion.skip(reader, Reason.VALUE_LOST, ())
