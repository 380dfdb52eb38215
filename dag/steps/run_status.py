"""How a run stands: questions about its record and its graph, asked by everything that moves it. Nothing here changes anything."""

from __future__ import annotations

from collections.abc import Mapping

from dag.compiling import NodePlan
from dag.runs import NodeRecord, RunRecord, StageRecord
from dag.states import NODE_ENDS, NodeState, RunState, StageState
from dag.steps.edges import Edges
from dag.steps.state_writer import StateWriter
from mesh.errors import IllegalTransition
from mesh.ids import MeshId, NodeId, StageId

#: The mesh has not begun with the stage.
NOT_BEGUN = (StageState.PLANNED, StageState.QUEUED)
#: The mesh has the stage.
SENT = (StageState.QUEUED, StageState.RUNNING)


class RunStatus:
    """A run to be looked at.

    Args:
        record: The state; others write it.
        plans: Every node of the graph, in topological order.
        moves: Of the same record; counts what has failed.
        on_error: See `dag.machine.RunMachine`.
    """

    def __init__(self, record: RunRecord, plans: Mapping[NodeId, NodePlan], writer: StateWriter, on_error: str) -> None:
        self.record = record
        self.plans = plans
        self.edges = Edges(plans)
        self._writer = writer
        self.fails_fast = on_error == "fail_fast"

    # -- of the run ----------------------------------------------------------------------------------------------------

    def is_winding_down(self) -> bool:
        """Nothing new is begun: the run is being cancelled, or stops at a failure."""
        return self.record.state is RunState.CANCELLING or self.is_stopping()

    def is_stopping(self) -> bool:
        """It stops at a failure."""
        return self.fails_fast and bool(self._writer.failures)

    def failed(self) -> tuple[NodeId, ...]:
        """Nodes that failed for good."""
        return tuple(node for node, kept in self.record.nodes.items() if kept.state is NodeState.FAILED)

    # -- of a node -----------------------------------------------------------------------------------------------------

    def has_succeeded(self, node: NodeId) -> bool:
        """Its value was computed."""
        return self.record.nodes[node].state is NodeState.SUCCEEDED

    def is_ready(self, node: NodeId) -> bool:
        """All that it needs is there; a node that waits for others of its own stage is refused with them."""
        return all(self.has_succeeded(need) for need in self.edges.needs[node])

    def is_needed(self, node: NodeId) -> bool:
        """Somebody has to read its value yet: the user, or a node that has not ended."""
        readers = self.edges.readers[node]
        return self.plans[node].is_output or any(self.record.nodes[reader].state not in NODE_ENDS for reader in readers)

    def leaves(self, node: NodeId, mesh: MeshId) -> bool:
        """Somebody outside the mesh reads the value: the user, or a node that is (or may yet be) placed elsewhere."""
        readers = (self.record.nodes[reader] for reader in self.edges.readers[node])
        return self.plans[node].is_output or any(kept.mesh != mesh and kept.state not in NODE_ENDS for kept in readers)

    def value_at(self, node: NodeId) -> MeshId | None:
        """The mesh that a node's value cannot leave, because it was sent there without being stored; None: it is free."""
        kept = self.record.nodes[node]
        sent = kept.state in (NodeState.ASSIGNED, NodeState.RUNNING, NodeState.SUCCEEDED)
        return kept.mesh if sent and not kept.exported else None

    def is_out_of_reach(self, need: NodeId, mesh: MeshId) -> bool:
        """The value was computed, and cannot be had on `mesh`."""
        return self.has_succeeded(need) and self.value_at(need) not in (None, mesh)

    def will_come(self, need: NodeId, mesh: MeshId) -> bool:
        """The value is being computed, and can be had on `mesh` when it is there."""
        kept = self.record.nodes[need]
        running = kept.stage is not None and self.record.stages[kept.stage].state is StageState.RUNNING
        return running and kept.state not in NODE_ENDS and self.value_at(need) in (None, mesh)

    def stage_of(self, node: NodeRecord) -> StageRecord:
        """The stage that it is in. Raises IllegalTransition when it is in none."""
        if node.stage is None:
            raise IllegalTransition(f"run {self.record.run}: node {node.node} is {node.state.value} without a stage")
        return self.record.stages[node.stage]

    # -- of a stage ----------------------------------------------------------------------------------------------------

    def is_left(self, stage: StageRecord, node: NodeId) -> bool:
        """The node is in the stage, and has not ended."""
        kept = self.record.nodes[node]
        return kept.stage == stage.stage and kept.state not in NODE_ENDS

    def left(self, stage: StageRecord) -> list[NodeRecord]:
        """The stage's nodes that have not ended."""
        return [self.record.nodes[node] for node in stage.nodes if self.is_left(stage, node)]

    def external(self, stage: StageRecord) -> tuple[NodeId, ...]:
        """Nodes outside the stage whose values its nodes read."""
        inside = set(stage.nodes)
        return tuple(dict.fromkeys(need for node in stage.nodes for need in self.plans[node].inputs if need not in inside))

    def waiting_stages(self, node: NodeId) -> tuple[StageRecord, ...]:
        """Stages that were sent and hold a reader of `node`."""
        found: dict[StageId, StageRecord] = {}
        for reader in self.edges.readers[node]:
            kept = self.record.nodes[reader]
            if kept.stage is not None and kept.state not in NODE_ENDS:
                stage = self.record.stages[kept.stage]
                if stage.state in SENT:
                    found[stage.stage] = stage
        return tuple(found.values())
