"""What goes with a runner: the stage that it ran, and finished values that nobody had stored. What is still needed is computed again."""

from __future__ import annotations

from collections.abc import Iterable

from dag.runs import NodeRecord, StageRecord
from dag.states import NodeState
from dag.steps.attempts import Attempts
from dag.steps.completion import Completion
from dag.steps.deliveries import Deliveries
from dag.steps.run_status import RunStatus
from dag.steps.state_writer import PREEMPTED_COUNT, StateWriter
from mesh.ids import NodeId
from mesh.reasons import Reason


class Losses:
    """Lost stages, lost inputs, lost values."""

    def __init__(
        self, run_status: RunStatus, writer: StateWriter, deliveries: Deliveries, completion: Completion, attempts: Attempts
    ) -> None:
        self._run_status = run_status
        self._record = run_status.record
        self._writer = writer
        self._deliveries = deliveries
        self._completion = completion
        self._attempts = attempts

    def lose_stage(self, stage: StageRecord, reason: Reason) -> None:
        """The stage's runner is gone, with what it ran and with the values that it held."""
        self._writer.cut_stage(stage, reason)
        left = self._run_status.left(stage)
        if self._completion.drop_if_stopping(left):
            return
        held = [kept.node for kept in self._record.nodes.values() if _is_held_by(kept, stage)]
        for node in left:
            if self._run_status.is_left(stage, node.node):  # A recall above it may have dealt with it.
                self._lose_with_stage(node, stage, reason)
            if self._completion.drop_if_stopping([other for other in left if self._run_status.is_left(stage, other.node)]):
                return  # This one was lost too often, and the run stops at it.
        self.lose_values(held)

    def _lose_with_stage(self, node: NodeRecord, stage: StageRecord, reason: Reason) -> None:
        """A node that was running when the runner died may have killed it; one that waited has not."""
        if reason is Reason.WORKER_LOST and node.state is NodeState.RUNNING:
            self._attempts.lose_worker(node, f"a runner of mesh {stage.mesh} died under it")
        elif reason is Reason.DEADLINE_EXCEEDED:
            self._attempts.lose(node, reason, f"mesh {stage.mesh} did not end the stage in time", waits=True)
        else:
            self._attempts.lose(node, reason, f"mesh {stage.mesh} {'stopped' if reason in PREEMPTED_COUNT else 'lost'} the stage")

    def lose_input(self, stage: StageRecord, node: NodeId) -> None:
        """The stage's runner does not have the finished value: what was stored is handed over, the rest is computed again.

        So is what was handed over already: its file is gone or damaged.
        """
        kept = self._record.nodes.get(node)
        if kept is None:
            return
        if kept.stored is not None and node not in stage.delivered:
            self._deliveries.deliver(stage, kept)
            return
        if kept.stored is not None:
            if not any(self._run_status.is_left(stage, reader) for reader in self._run_status.edges.readers[node]):
                return  # Whoever read it there was taken back: this is about an earlier attempt's value.
            kept.stored = None
            self._writer.touch(kept)
        self.lose_values([node])

    def lose_values(self, nodes: Iterable[NodeId]) -> None:
        """These finished values are gone; compute again those that somebody still has to read, and what that takes."""
        pending = list(nodes)
        while pending and not self._run_status.is_winding_down():
            kept = self._record.nodes[pending.pop()]
            if not self._run_status.has_succeeded(kept.node) or kept.stored is not None or not self._run_status.is_needed(kept.node):
                continue
            holder = (kept.mesh, kept.incarnation)
            self._attempts.lose(kept, Reason.VALUE_LOST, f"the value went with a runner of mesh {kept.mesh}")
            needed = (self._record.nodes[need] for need in self._run_status.plans[kept.node].inputs)
            pending.extend(need.node for need in needed if need.stored is None and (need.mesh, need.incarnation) == holder)


def _is_held_by(kept: NodeRecord, stage: StageRecord) -> bool:
    held = kept.state is NodeState.SUCCEEDED and kept.stored is None
    return held and stage.incarnation > 0 and (kept.mesh, kept.incarnation) == (stage.mesh, stage.incarnation)
