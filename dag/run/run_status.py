"""Read-only questions about a run's record and graph, shared by all steps."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dag.run.node_facts import Rows
from dag.run.node_table import NodeRecord, NodeTable
from dag.run.runs import RunRecord, StageRecord
from dag.run.state_writer import StateWriter
from dag.run.states import NODE_ENDS, NodeState, RunState, StageState
from dag.spec.control_graph import ControlGraph
from dag.spec.plans import NodePlan, Plans, cached_in
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


class EdgeRows(NamedTuple):
    """Edges from or to some nodes, as columns."""

    places: Rows  #: Position of the node among those that were asked about.
    rows: Rows  #: The node at the other end.
    is_read: NDArray[np.bool_]  #: Whether the value is read; else the edge is of order only.


class Edges:
    """The edges of a graph, which never change. Nodes are named by their rows where many of them are asked about.

    Attributes:
        order: The rows of all nodes, in topological order.
    """

    def __init__(self, plans: Mapping[NodeId, NodePlan], nodes: NodeTable) -> None:
        self.order = nodes.rows(plans)
        self._names = nodes.names
        needed, waiting, self._is_read = _edges_of(plans)
        self._sources, self._targets = self.order[needed], self.order[waiting]
        count = len(nodes)
        self._to = _Ends.of(count, self._targets, self._sources, self._is_read)
        self._from = _Ends.of(count, self._sources, self._targets, self._is_read)

    @cached_property
    def width(self) -> int:
        """The largest number of nodes at one depth: as many steps from the start."""
        depth = [0] * len(self._names)
        for source, target in zip(self._sources.tolist(), self._targets.tolist(), strict=True):  # In topological order of the targets.
            if depth[source] >= depth[target]:
                depth[target] = depth[source] + 1
        return int(np.bincount(np.array(depth, np.intp)[self.order]).max(initial=0))

    @cached_property
    def needs(self) -> dict[NodeId, tuple[NodeId, ...]]:
        """Each node to the nodes that it waits for, for their values or for the order only."""
        return {node: tuple(needs) for node, needs in self._grouped(self._targets, self._sources).items()}

    @cached_property
    def followers(self) -> dict[NodeId, list[NodeId]]:
        """Each node to the nodes that wait for it."""
        return self._grouped(self._sources, self._targets)

    @cached_property
    def readers(self) -> dict[NodeId, list[NodeId]]:
        """Each node to the followers that read its value."""
        return self._grouped(self._sources[self._is_read], self._targets[self._is_read])

    def _grouped(self, ends: Rows, others: Rows) -> dict[NodeId, list[NodeId]]:
        names = self._names
        found: dict[NodeId, list[NodeId]] = {names[row]: [] for row in self.order.tolist()}
        for end, other in zip(ends.tolist(), others.tolist(), strict=True):
            found[names[end]].append(names[other])
        return found

    def to(self, rows: Rows) -> EdgeRows:
        """Return the edges to these nodes, from the nodes that they wait for."""
        return self._to.at(rows)

    def of(self, rows: Rows) -> EdgeRows:
        """Return the edges from these nodes, to the nodes that wait for them."""
        return self._from.at(rows)


def _edges_of(plans: Mapping[NodeId, NodePlan]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Return the places of the needed and of the waiting node of each edge, and whether the value is read; by waiting node.

    Plans of a graph are not made for this: they are many objects.
    """
    if isinstance(plans, Plans):
        needed, waiting = plans.calls.edges()
        by_waiting = np.argsort(waiting, kind="stable")
        return needed[by_waiting], waiting[by_waiting], by_waiting < len(plans.calls.inputs)
    place_of = {node: place for place, node in enumerate(plans)}
    needs = [(*plan.task.inputs, *plan.task.after) for plan in plans.values()]
    reads = [is_read for plan in plans.values() for is_read in (*[True] * len(plan.task.inputs), *[False] * len(plan.task.after))]
    flat = np.array([place_of[need] for each in needs for need in each], np.int64)
    return flat, np.repeat(np.arange(len(needs)), np.array([len(each) for each in needs], np.int64)), np.array(reads, np.bool_)


class _Ends(NamedTuple):
    """Edges, ordered by the node at one end."""

    first: Rows  #: Position of each node's first edge, and of the end.
    rows: Rows  #: The node at the other end of each edge.
    is_read: NDArray[np.bool_]

    @classmethod
    def of(cls, count: int, ends: Rows, others: Rows, is_read: NDArray[np.bool_]) -> _Ends:
        by_end = np.argsort(ends, kind="stable")
        first = np.zeros(count + 1, dtype=np.intp)
        np.cumsum(np.bincount(ends, minlength=count), out=first[1:])
        return cls(first, others[by_end], is_read[by_end])

    def at(self, rows: Rows) -> EdgeRows:
        lengths = self.first[rows + 1] - self.first[rows]
        places = np.repeat(np.arange(len(rows)), lengths)
        before = np.cumsum(lengths) - lengths
        edges = np.repeat(self.first[rows] - before, lengths) + np.arange(len(places))
        return EdgeRows(places, self.rows[edges], self.is_read[edges])


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
        self.edges = Edges(plans, record.nodes)
        self.outputs = plans.outputs if isinstance(plans, Plans) else frozenset(node for node, plan in plans.items() if plan.is_output)
        self.cached = cached_in(plans)
        self.control = ControlGraph(plans, self.edges, self.outputs)
        self._rows: dict[StageId, tuple[tuple[NodeId, ...], Rows]] = {}
        self._writer = writer
        self.fails_fast = on_error == "fail_fast"

    # -- of the run ----------------------------------------------------------------------------------------------------

    def is_winding_down(self) -> bool:
        """Return whether no new work may begin: the run is being cancelled, or stops at a failure."""
        return self.record.state is RunState.CANCELLING or self.is_stopping()

    def is_stopping(self) -> bool:
        """Return whether the run stops at a failure, or at its deadline."""
        return self.has_expired() or (self.fails_fast and bool(self._writer.failures))

    def has_expired(self) -> bool:
        """Return whether the run has reached its deadline."""
        return self.record.state is RunState.RUNNING and self.record.reason is Reason.RUN_DEADLINE_EXCEEDED

    def is_ending(self) -> bool:
        """Return whether the whole run is being stopped, by its user or by its deadline."""
        return self.record.state is RunState.CANCELLING or self.has_expired()

    def failed(self) -> tuple[NodeId, ...]:
        """Return the nodes that failed for good."""
        return tuple(kept.node for kept in self.record.nodes.among(NodeState.FAILED))

    # -- of a node -----------------------------------------------------------------------------------------------------

    def has_succeeded(self, node: NodeId) -> bool:
        return self.record.nodes[node].state is NodeState.SUCCEEDED

    def is_ready(self, node: NodeId) -> bool:
        """Return whether all needs of the node have succeeded. Needs in the node's own stage count too."""
        if node in self.control.whens:
            task = self.plans[node].task
            return all(map(self.has_succeeded, task.inputs)) and all(self.record.nodes[need].state in NODE_ENDS for need in task.after)
        return all(self.has_succeeded(need) for need in self.edges.needs[node])

    def is_needed(self, node: NodeId) -> bool:
        """Return whether the user, or a node that has not ended, still has to read the value."""
        readers = self.edges.readers[node]
        return node in self.outputs or any(self.record.nodes[reader].state not in NODE_ENDS for reader in readers)

    def leaving(self, stage: StageRecord) -> NDArray[np.bool_]:
        """Return which values of a stage have a reader outside its mesh: the user, the cache, or a node that is or may be placed
        elsewhere."""
        nodes = self.record.nodes
        leaves = np.fromiter((node in self.outputs for node in stage.nodes), dtype=np.bool_, count=len(stage.nodes))
        if self.cached:
            leaves |= np.fromiter((node in self.cached for node in stage.nodes), dtype=np.bool_, count=len(stage.nodes))
        edges = self.edges.of(self.rows(stage))
        outside = edges.is_read & ~nodes.are(nodes.columns.state[edges.rows], NODE_ENDS) & ~nodes.on_mesh(edges.rows, stage.mesh)
        leaves[edges.places[outside]] = True
        return leaves

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

    def survives(self, node: NodeId) -> bool:
        """Return whether the node runs although the run stops."""
        return node in self.control.cleanup

    # -- of a stage ----------------------------------------------------------------------------------------------------

    def rows(self, stage: StageRecord) -> Rows:
        """Return the rows of the stage's nodes."""
        known = self._rows.get(stage.stage)
        if known is None or known[0] is not stage.nodes:
            known = self._rows[stage.stage] = (stage.nodes, self.record.nodes.rows(stage.nodes))
        return known[1]

    def may_be_sent(self, stage: StageRecord) -> bool:
        """Return whether new work of the stage may begin: always, unless the run stops and the stage is no cleanup."""
        return not self.is_winding_down() or self.is_cleanup(stage)

    def is_cleanup(self, stage: StageRecord) -> bool:
        """Return whether the stage runs although the run stops. All nodes of a stage are alike in this."""
        return bool(stage.nodes) and self.survives(stage.nodes[0])

    def is_left(self, stage: StageRecord, node: NodeId) -> bool:
        """Return whether the node is in the stage and has not ended."""
        kept = self.record.nodes[node]
        return kept.stage == stage.stage and kept.state not in NODE_ENDS

    def left(self, stage: StageRecord) -> list[NodeRecord]:
        """Return the stage's nodes that have not ended."""
        nodes, rows = self.record.nodes, self.rows(stage)
        rows = rows[~nodes.are(nodes.columns.state[rows], NODE_ENDS)]
        return [nodes.at(row) for row in rows[nodes.in_stage(rows, stage.stage)].tolist()]

    def external(self, stage: StageRecord) -> tuple[NodeId, ...]:
        """Return the nodes outside the stage whose values the stage reads."""
        if len(stage.nodes) == len(self.record.nodes):
            return ()
        edges = self.edges.to(self.rows(stage))
        outside = edges.rows[edges.is_read & ~np.isin(edges.rows, self.rows(stage))]
        return tuple(self.record.nodes.names[row] for row in dict.fromkeys(outside.tolist()))

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
