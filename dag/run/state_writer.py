"""Transitions of a run, its stages and nodes: each is checked against the tables of `dag.run.states`, counted, and recorded as an event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from dag.run.dead_letters import DeadLetter
from dag.run.node_facts import Rows
from dag.run.node_table import NodeRecord
from dag.run.run_events import LoggedEvents, NodesEnded, NodesMoved, RunEvent, runs_of
from dag.run.runs import Decision, DeliverInput, DropValue, LostWork, RunChange, RunRecord, StageRecord
from dag.run.states import NODE_TRANSITIONS, OPEN, RUN_TRANSITIONS, STAGE_ENDS, STAGE_TRANSITIONS, NodeState, RunState, StageState
from dag.spec.growth import Growth
from mesh.core.ids import MeshId, NodeId, StageId
from mesh.core.reasons import Reason
from mesh.errors import IllegalTransition
from mesh.stages.messages import NodesSucceeded

#: Reasons that preempt running work through no fault of its own.
PREEMPTED_COUNT = frozenset({Reason.QUOTA_RECLAIMED, Reason.PREEMPTED_WITHIN_TENANT, Reason.MESH_LEFT})
#: Reasons that take back work that has not begun.
_TAKEN_BACK = frozenset(
    {
        Reason.TENANT_SUSPENDED,
        Reason.TENANT_DRAINED,
        Reason.OUTSIDE_WINDOW,
        Reason.RUNNING_LIMIT,
        Reason.USER_LIMIT,
        Reason.WAITED_TOO_LONG,
        Reason.TENANT_NOT_ALLOWED,
        Reason.MOVED,
        Reason.CLUSTER_NOT_SHARED,
    }
)


class StateWriter:
    """Writes a run's record and collects the changes of one step."""

    def __init__(self, record: RunRecord) -> None:
        self.record = record
        self.begin(0)

    @property
    def open(self) -> int:
        """Number of nodes that have not ended."""
        return self.record.nodes.count(*OPEN)

    @property
    def failures(self) -> int:
        """Number of nodes that failed for good."""
        return self.record.nodes.count(NodeState.FAILED)

    @property
    def blocked(self) -> list[NodeRecord]:
        """The blocked nodes, by id."""
        return sorted(self.record.nodes.among(NodeState.BLOCKED), key=lambda kept: kept.node)

    def begin(self, now_ms: int) -> None:
        """Begin a step at `now_ms`, milliseconds since the epoch; its events carry this time."""
        self.now_ms = now_ms
        self._stages: dict[StageId, StageRecord] = {}
        self._events: list[LoggedEvents] = []
        self._decisions: list[Decision] = []
        self._dead: list[DeadLetter] = []
        self._growths: list[Growth] = []
        self._lost: dict[StageId, Counter[str]] = {}

    def change(self) -> RunChange:
        """Return the changes and decisions of the step, in order."""
        return RunChange(
            nodes=self.record.nodes.take_changes(),
            stages=tuple(self._stages.values()),
            events=tuple(self._events),
            decisions=tuple(self._decisions),
            dead=tuple(self._dead),
            growths=tuple(self._growths),
            lost=tuple(LostWork(stage=stage, at_ms=self.now_ms, resources=dict(lost)) for stage, lost in self._lost.items()),
        )

    def decide(self, decision: Decision) -> None:
        self._decisions.append(decision)

    def grow(self, growth: Growth) -> None:
        """Add nodes to the run. The plans of this step do not have them: the next step needs plans of the grown graph."""
        self.record.growths = (*self.record.growths, growth)
        self.record.nodes.add(growth.names())
        self._growths.append(growth)

    def lose_work(self, node: NodeRecord, resources: Mapping[str, int]) -> None:
        """Record what the attempt of a preempted node has run since its last checkpoint; nothing of one that is not known to have run."""
        if node.stage is None or not node.started_ms:
            return
        since_ms = max(node.started_ms, node.checkpoint.saved_ms if node.checkpoint is not None else 0)
        ran_ms = (node.finished_ms or self.now_ms) - since_ms
        if ran_ms > 0:
            self._lost.setdefault(node.stage, Counter()).update({name: units * ran_ms for name, units in resources.items()})

    def record_dead_letter(self, letter: DeadLetter) -> None:
        self._dead.append(letter)

    def node(self, node: NodeRecord, state: NodeState, reason: Reason | None = None, detail: str = "") -> None:
        """Move a node to a state. Raises IllegalTransition."""
        before = node.state
        if state is not before and state not in NODE_TRANSITIONS[before]:
            raise self._illegal(node, state)
        node.state = state
        if reason is not None or state is not NodeState.WAITING:
            node.reason = reason
        self.note("node", node=node, before=before.value, after=state.value, reason=reason, detail=detail)

    def assign(self, rows: Rows, stage: StageRecord) -> None:
        """Move nodes of a stage to ASSIGNED, as `node` does with each of them. Raises IllegalTransition."""
        nodes = self.record.nodes
        for alike in self._alike(rows, NodeState.ASSIGNED):
            before = nodes.at(alike[0].item()).state
            nodes.move(alike, NodeState.ASSIGNED)
            nodes.say(alike, None)
            moved = NodesMoved(
                seq=self.record.seq + 1,
                at_ms=self.now_ms,
                run=self.record.run,
                rows=runs_of(alike.tolist()),
                attempts=self._attempts(alike),
                stage=stage.stage,
                mesh=stage.mesh,
                cluster=stage.cluster,
                before=before.value,
                after=NodeState.ASSIGNED.value,
            )
            self._log(moved)

    def succeed(self, stage: StageRecord, message: NodesSucceeded, entries: Rows, rows: Rows) -> None:
        """Move nodes of a stage to SUCCEEDED, through RUNNING, as `node` does with each of them. Raises IllegalTransition.

        Args:
            entries: The entries of the message that count.
            rows: The node of each of these entries, each once.
        """
        nodes = self.record.nodes
        place = 0
        for alike in self._alike(rows, NodeState.SUCCEEDED):
            started, took, worker = (
                tuple(map(column.__getitem__, entries[place : place + len(alike)].tolist())) if column else ()
                for column in (message.started, message.took, message.worker)
            )
            place += len(alike)
            with_starts = nodes.at(alike[0].item()).state is NodeState.ASSIGNED
            nodes.columns.started_ms[alike] = message.since_ms + np.array(started, dtype=np.int64)
            nodes.columns.finished_ms[alike] = nodes.columns.started_ms[alike] + np.array(took, dtype=np.int64)
            nodes.move(alike, NodeState.SUCCEEDED)
            nodes.put(alike, stage.stage, stage.mesh, stage.incarnation)
            nodes.say(alike, None)
            ended = NodesEnded(
                seq=self.record.seq + 1,
                run=self.record.run,
                rows=runs_of(alike.tolist()),
                attempts=self._attempts(alike),
                stage=stage.stage,
                mesh=stage.mesh,
                cluster=stage.cluster,
                since_ms=message.since_ms,
                started=started,
                took=took,
                workers=message.workers,
                worker=worker,
                with_starts=with_starts,
            )
            self._log(ended)

    def _alike(self, rows: Rows, state: NodeState) -> list[Rows]:
        """Part the rows where their state changes. Raises IllegalTransition if one of them may not go to `state`.

        To succeed, a node that is ASSIGNED goes through RUNNING.
        """
        nodes = self.record.nodes
        before_all = nodes.states_of(rows)
        for before in before_all:
            if state not in NODE_TRANSITIONS[before]:
                wrong = next(kept for kept in map(nodes.at, rows.tolist()) if kept.state is before)
                raise self._illegal(wrong, state)
        if len(before_all) == 1:
            return [rows]
        states = nodes.columns.state[rows]
        return np.split(rows, np.flatnonzero(states[1:] != states[:-1]) + 1)

    def _attempts(self, rows: Rows) -> tuple[int, ...]:
        attempts = self.record.nodes.columns.attempt[rows]
        return () if (attempts == 1).all() else tuple(attempts.tolist())

    def _log(self, events: NodesMoved | NodesEnded) -> None:
        self.record.seq = events.last
        self._events.append(events)

    def _illegal(self, node: NodeRecord, state: NodeState) -> IllegalTransition:
        return IllegalTransition(
            f"run {self.record.run}: node {node.node} (attempt {node.attempt}) cannot go from {node.state.value} to {state.value}"
        )

    def drop_checkpoint(self, node: NodeRecord) -> None:
        """Delete the node's checkpoint: a newer one replaces it, or the node has succeeded."""
        if node.checkpoint is not None:
            self.decide(DropValue(value=node.checkpoint.stored))
            node.checkpoint = None

    def stage(self, stage: StageRecord, state: StageState, reason: Reason | None = None, detail: str = "") -> None:
        """Move a stage to a state. Raises IllegalTransition."""
        before = stage.state
        if state not in STAGE_TRANSITIONS[before]:
            raise IllegalTransition(f"stage {stage.stage} cannot go from {before.value} to {state.value}")
        stage.state = state
        if state is StageState.ENDED:
            stage.reason, stage.detail = None, ""  # Drop the reason for the wait.
        self.note_stage(stage, before, reason, detail)

    def cut_stage(self, stage: StageRecord, reason: Reason | None) -> None:
        """End a stage before its nodes have ended: stopped in good order, or lost. Raises IllegalTransition."""
        stage.ended_ms, stage.reason, stage.detail = self.now_ms, reason, ""
        self.stage(stage, StageState.STOPPED if reason in PREEMPTED_COUNT | _TAKEN_BACK else StageState.LOST, reason)

    def run(self, state: RunState, reason: Reason | None = None, detail: str = "") -> None:
        """Move the run to a state. Raises IllegalTransition."""
        before = self.record.state
        if state not in RUN_TRANSITIONS[before]:
            raise IllegalTransition(f"run {self.record.run} cannot go from {before.value} to {state.value}")
        self.record.state = state
        self.note("run", before=before.value, after=state.value, reason=reason, detail=detail)

    def touch_stage(self, stage: StageRecord) -> None:
        """Mark the stage as changed, without an event."""
        self._stages[stage.stage] = stage

    def note_stage(self, stage: StageRecord, before: StageState | None, reason: Reason | None, detail: str) -> None:
        """Record an event of the stage. `before` is None for a new stage, and the present state if only the reason changes."""
        self.touch_stage(stage)
        self.note(
            "stage",
            stage=stage.stage,
            mesh=stage.mesh,
            cluster=stage.cluster,
            before=before.value if before is not None else "",
            after=stage.state.value,
            reason=reason,
            detail=detail,
        )

    def note(
        self,
        kind: str,
        *,
        before: str,
        after: str,
        reason: Reason | None,
        detail: str,
        node: NodeRecord | None = None,
        stage: StageId | None = None,
        mesh: MeshId | None = None,
        cluster: str = "",
    ) -> None:
        """Record an event under the next number."""
        self.record.seq += 1
        if node is not None:
            stage = stage or node.stage
            mesh = node.mesh
            cluster = self.record.stages[stage].cluster if stage is not None else ""
        self._events.append(
            RunEvent(
                seq=self.record.seq,
                at_ms=self.now_ms,
                run=self.record.run,
                kind=kind,
                node=node.node if node is not None else None,
                attempt=node.attempt if node is not None else 0,
                stage=stage,
                mesh=mesh,
                cluster=cluster,
                before=before,
                after=after,
                reason=reason,
                detail=detail,
            )
        )


class Deliveries:
    """Delivery of inputs to stages: each input once, as a value or as "will not come"."""

    def __init__(self, writer: StateWriter) -> None:
        self._writer = writer

    def deliver(self, stage: StageRecord, node: NodeRecord) -> None:
        """Send a stored value to the stage, unless this input was already delivered or withheld."""
        if node.node in stage.delivered or node.stored is None:
            return
        stage.delivered = (*stage.delivered, node.node)
        self._writer.touch_stage(stage)
        self._writer.decide(DeliverInput(stage=stage.stage, node=node.node, value=node.stored))

    def withhold(self, stage: StageRecord, node: NodeId) -> None:
        """Report to the stage that the input will not come. The stage drops the nodes that need it, and can end."""
        if stage.state not in STAGE_ENDS and node not in stage.delivered:
            stage.delivered = (*stage.delivered, node)
            self._writer.touch_stage(stage)
            self._writer.decide(DeliverInput(stage=stage.stage, node=node, value=None))
