"""Read-only questions about a run's record and graph, shared by all steps."""

from __future__ import annotations

from collections.abc import Mapping

from dag.run.runs import NodeRecord, RunRecord, StageRecord
from dag.run.state_writer import StateWriter
from dag.run.states import NODE_ENDS, NodeState, RunState, StageState
from dag.spec.plans import NodePlan
from mesh.core.ids import MeshId, NodeId, StageId
from mesh.core.reasons import PASSING, Reason
from mesh.errors import IllegalTransition

#: States of a stage that its mesh has not begun.
NOT_BEGUN = (StageState.PLANNED, StageState.QUEUED)
#: States of a stage that was sent and has not ended.
SENT = (StageState.QUEUED, StageState.RUNNING)


def shown_state(record: RunRecord) -> RunState:
    """Return the state of the run as users see it: a planned run runs, waits, or is blocked."""
    if record.state is not RunState.RUNNING or any(stage.state is StageState.RUNNING for stage in record.stages.values()):
        return record.state
    return waiting_state(record.reason)


def waiting_state(reason: Reason | None) -> RunState:
    """Return the state to show for a planned run without a started stage.

    Args:
        reason: The run's reason. One that does not pass is recorded only if no part of the run waits for anything else.
    """
    return RunState.BLOCKED if reason is not None and reason not in PASSING else RunState.WAITING


class Edges:
    """The edges of a graph, which never change.

    Attributes:
        needs: Each node to the nodes that it waits for, for their values or for the order only.
        followers: Each node to the nodes that wait for it.
        readers: Each node to the followers that read its value.
    """

    def __init__(self, plans: Mapping[NodeId, NodePlan]) -> None:
        self.needs = {node: tuple(dict.fromkeys((*plan.task.inputs, *plan.task.after))) for node, plan in plans.items()}
        self.followers: dict[NodeId, list[NodeId]] = {node: [] for node in plans}
        self.readers: dict[NodeId, list[NodeId]] = {node: [] for node in plans}
        for node, needs in self.needs.items():
            for need in needs:
                self.followers[need].append(node)
                if need in plans[node].task.inputs:
                    self.readers[need].append(node)


class RunStatus:
    """Read-only view of a run.

    Args:
        record: The state, which `writer` changes.
        plans: Every node of the graph, in topological order.
        writer: Writer of the same record; counts failed nodes.
        on_error: `fail_fast` or `continue`, as for `dag.run.machine.RunMachine`.
    """

    def __init__(self, record: RunRecord, plans: Mapping[NodeId, NodePlan], writer: StateWriter, on_error: str) -> None:
        self.record = record
        self.plans = plans
        self.edges = Edges(plans)
        self._writer = writer
        self.fails_fast = on_error == "fail_fast"

    # -- of the run ----------------------------------------------------------------------------------------------------

    def is_winding_down(self) -> bool:
        """Return whether no new work may begin: the run is being cancelled, or stops at a failure."""
        return self.record.state is RunState.CANCELLING or self.is_stopping()

    def is_stopping(self) -> bool:
        """Return whether the run stops at a failure."""
        return self.fails_fast and bool(self._writer.failures)

    def failed(self) -> tuple[NodeId, ...]:
        """Return the nodes that failed for good."""
        return tuple(node for node, kept in self.record.nodes.items() if kept.state is NodeState.FAILED)

    # -- of a node -----------------------------------------------------------------------------------------------------

    def has_succeeded(self, node: NodeId) -> bool:
        return self.record.nodes[node].state is NodeState.SUCCEEDED

    def is_ready(self, node: NodeId) -> bool:
        """Return whether all needs of the node have succeeded. Needs in the node's own stage count too."""
        return all(self.has_succeeded(need) for need in self.edges.needs[node])

    def is_needed(self, node: NodeId) -> bool:
        """Return whether the user, or a node that has not ended, still has to read the value."""
        readers = self.edges.readers[node]
        return self.plans[node].is_output or any(self.record.nodes[reader].state not in NODE_ENDS for reader in readers)

    def leaves(self, node: NodeId, mesh: MeshId) -> bool:
        """Return whether the value has a reader outside the mesh: the user, or a node that is or may be placed elsewhere."""
        readers = (self.record.nodes[reader] for reader in self.edges.readers[node])
        return self.plans[node].is_output or any(kept.mesh != mesh and kept.state not in NODE_ENDS for kept in readers)

    def value_at(self, node: NodeId) -> MeshId | None:
        """Return the only mesh that has the node's value, because the value is not stored; None if any mesh can get it."""
        kept = self.record.nodes[node]
        sent = kept.state in (NodeState.ASSIGNED, NodeState.RUNNING, NodeState.SUCCEEDED)
        return kept.mesh if sent and not kept.exported else None

    def is_out_of_reach(self, need: NodeId, mesh: MeshId) -> bool:
        """Return whether the value was computed and is not available on `mesh`."""
        return self.has_succeeded(need) and self.value_at(need) not in (None, mesh)

    def will_come(self, need: NodeId, mesh: MeshId) -> bool:
        """Return whether the value is being computed and will be available on `mesh`."""
        kept = self.record.nodes[need]
        running = kept.stage is not None and self.record.stages[kept.stage].state is StageState.RUNNING
        return running and kept.state not in NODE_ENDS and self.value_at(need) in (None, mesh)

    def stage_of(self, node: NodeRecord) -> StageRecord:
        """Return the stage of the node. Raises IllegalTransition if the node has none."""
        if node.stage is None:
            raise IllegalTransition(f"run {self.record.run}: node {node.node} is {node.state.value} without a stage")
        return self.record.stages[node.stage]

    # -- of a stage ----------------------------------------------------------------------------------------------------

    def is_left(self, stage: StageRecord, node: NodeId) -> bool:
        """Return whether the node is in the stage and has not ended."""
        kept = self.record.nodes[node]
        return kept.stage == stage.stage and kept.state not in NODE_ENDS

    def left(self, stage: StageRecord) -> list[NodeRecord]:
        """Return the stage's nodes that have not ended."""
        return [self.record.nodes[node] for node in stage.nodes if self.is_left(stage, node)]

    def external(self, stage: StageRecord) -> tuple[NodeId, ...]:
        """Return the nodes outside the stage whose values the stage reads."""
        inside = set(stage.nodes)
        return tuple(dict.fromkeys(need for node in stage.nodes for need in self.plans[node].task.inputs if need not in inside))

    def waiting_stages(self, node: NodeId) -> tuple[StageRecord, ...]:
        """Return the sent stages that contain a reader of `node`."""
        found: dict[StageId, StageRecord] = {}
        for reader in self.edges.readers[node]:
            kept = self.record.nodes[reader]
            if kept.stage is not None and kept.state not in NODE_ENDS:
                stage = self.record.stages[kept.stage]
                if stage.state in SENT:
                    found[stage.stage] = stage
        return tuple(found.values())
