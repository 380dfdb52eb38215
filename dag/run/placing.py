"""Turns the answers of routing into stages with a mesh, or into reasons why nodes are blocked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count

import numpy as np

from dag.run.caching import Caching
from dag.run.control import ControlFlow
from dag.run.events import Blockage, NodesPlaced
from dag.run.node_facts import TimerKind
from dag.run.run_status import RunStatus
from dag.run.runs import StageRecord
from dag.run.stages import split
from dag.run.state_writer import StateWriter
from dag.run.states import RUN_ENDS, NodeState, RunState, StageState
from dag.spec.plans import Plans
from federation.quota.starts import SHUT
from mesh.core.ids import NodeId, StageId


class Placing:
    def __init__(self, run_status: RunStatus, writer: StateWriter, control: ControlFlow, caching: Caching) -> None:
        self._run_status = run_status
        self._record = run_status.record
        self._writer = writer
        self._control = control
        self._caching = caching

    def unplaced(self, now_ms: int) -> tuple[NodeId, ...]:
        """Return the nodes to route, as `dag.machine.RunMachine.unplaced` does."""
        is_stopping = self._record.state is RunState.CANCELLING or self._run_status.is_stopping()
        if self._record.state in RUN_ENDS or (is_stopping and not self._run_status.control.cleanup):
            return ()
        nodes = self._record.nodes
        if not nodes.count(NodeState.WAITING, NodeState.BLOCKED):
            return ()
        rows = self._run_status.edges.order
        rows = rows[nodes.are(nodes.columns.state[rows], (NodeState.WAITING, NodeState.BLOCKED))]
        found = [nodes.names[row] for row in rows[nodes.without_stage(rows)].tolist()]
        held = {nodes.names[row] for row, rare in nodes.rare.items() if rare.timers.get(TimerKind.RETRY, 0) > now_ms}.intersection(found)
        held |= self._control.held().intersection(found)
        held |= self._caching.held().intersection(found)
        if is_stopping:
            held |= {node for node in found if not self._run_status.survives(node)}
        if not held:
            return tuple(found)
        for node in found:
            if not held.isdisjoint(self._run_status.edges.needs[node]):
                held.add(node)
        return tuple(node for node in found if node not in held)

    def place(self, event: NodesPlaced) -> None:
        """Make stages of the placed nodes and block the others."""
        if self._record.state is RunState.PENDING:
            self._writer.run(RunState.RUNNING)
        self._block(event.blockages)
        if (whole := self._whole(event)) is not None:
            self._add(whole, event)
            return
        placed = {node: where.mesh for node, where in event.placements.items()}
        order = event.order or [node for node in self._run_status.plans if node in placed]
        edges = [(need, node) for node in order for need in self._run_status.edges.needs[node] if need in placed]
        survives, plans = self._run_status.survives, self._run_status.plans
        parts = {node: (where.part, plans[node].task.gang, survives(node)) for node, where in event.placements.items()}
        for stage in split(order, edges, placed, self._names(), parts):
            self._add(stage, event)

    def _whole(self, event: NodesPlaced) -> StageRecord | None:
        """Return all nodes of the graph as one stage, as `split` does; None: they are not on one mesh, or not in one part of it."""
        plans = self._run_status.plans
        is_alike = isinstance(plans, Plans) and not plans.has_gangs and not self._run_status.control.cleanup
        if not is_alike or len(event.placements) != len(plans):
            return None
        places = {(where.mesh, where.part) for where in event.placements.values()}
        if len(places) != 1:
            return None
        mesh, _ = places.pop()
        return StageRecord(
            stage=next(self._names()), mesh=mesh, level=0, nodes=event.order or tuple(plans), width=self._run_status.edges.width
        )

    def _block(self, blockages: Mapping[NodeId, Blockage]) -> None:
        for node, blockage in blockages.items():
            kept = self._record.nodes[node]
            kept.waits_since_ms = 0 if blockage.reason in SHUT else kept.waits_since_ms or self._writer.now_ms
            if (kept.state, kept.reason, kept.detail) != (NodeState.BLOCKED, blockage.reason, blockage.detail):
                kept.reason, kept.detail = blockage.reason, blockage.detail
                self._writer.node(kept, NodeState.BLOCKED, blockage.reason, blockage.detail)

    def _names(self) -> Iterator[StageId]:
        """Yield names for new stages: first those of stages that were dissolved before they were sent, then new ones.

        Each retry dissolves all planned stages. Without reuse of the names, the records of a run would grow without limit.
        """
        named = self._record.nodes.stages()
        stages = tuple(self._record.stages.values())
        for stage in stages:
            if stage.state is StageState.ENDED and not (stage.sent_ms or stage.nodes) and stage.stage not in named:
                yield stage.stage
        for number in count(len(stages) + 1):
            yield StageId(f"{self._record.run}.{number}")

    def _add(self, stage: StageRecord, event: NodesPlaced) -> None:
        stage.why_here = event.placements[stage.nodes[0]].why
        self._record.stages[stage.stage] = stage
        self._writer.note_stage(stage, None, None, stage.why_here)
        nodes, rows = self._record.nodes, self._run_status.rows(stage)
        nodes.put(rows, stage.stage, stage.mesh)
        whys = [event.placements[node].why for node in stage.nodes]
        of_why: dict[str, list[int]] = {}
        if len(set(whys)) == 1:
            nodes.say(rows, None, stage.why_here)
        else:
            for why, row in zip(whys, rows.tolist(), strict=True):
                of_why.setdefault(why, []).append(row)
        for why, alike in of_why.items():
            nodes.say(np.array(alike, dtype=np.intp), None, why)
        for row in rows[nodes.are(nodes.columns.state[rows], (NodeState.BLOCKED,))].tolist():
            self._writer.node(nodes.at(row), NodeState.WAITING)
