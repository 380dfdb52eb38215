"""Transitions of a run, its stages and nodes: each is checked against the tables of `dag.run.states`, counted, and recorded as an event."""

from __future__ import annotations

from dag.run.dead_letters import DeadLetter
from dag.run.runs import Decision, DropValue, NodeRecord, RunChange, RunEvent, RunRecord, StageRecord
from dag.run.states import NODE_ENDS, NODE_TRANSITIONS, RUN_TRANSITIONS, STAGE_TRANSITIONS, NodeState, RunState, StageState
from mesh.core.ids import MeshId, NodeId, StageId
from mesh.core.reasons import Reason
from mesh.errors import IllegalTransition

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
        self.open = sum(1 for kept in record.nodes.values() if kept.state not in NODE_ENDS)  #: Number of nodes that have not ended.
        self.failures = sum(1 for kept in record.nodes.values() if kept.state is NodeState.FAILED)
        self.blocked = {node for node, kept in record.nodes.items() if kept.state is NodeState.BLOCKED}
        self.begin(0)

    def begin(self, now_ms: int) -> None:
        """Begin a step at `now_ms`, milliseconds since the epoch; its events carry this time."""
        self.now_ms = now_ms
        self._nodes: dict[NodeId, NodeRecord] = {}
        self._stages: dict[StageId, StageRecord] = {}
        self._events: list[RunEvent] = []
        self._decisions: list[Decision] = []
        self._dead: list[DeadLetter] = []

    def change(self) -> RunChange:
        """Return the changes and decisions of the step, in order."""
        return RunChange(
            nodes=tuple(self._nodes.values()),
            stages=tuple(self._stages.values()),
            events=tuple(self._events),
            decisions=tuple(self._decisions),
            dead=tuple(self._dead),
        )

    def decide(self, decision: Decision) -> None:
        self._decisions.append(decision)

    def record_dead_letter(self, letter: DeadLetter) -> None:
        self._dead.append(letter)

    def node(self, node: NodeRecord, state: NodeState, reason: Reason | None = None, detail: str = "") -> None:
        """Move a node to a state. Raises IllegalTransition."""
        before = node.state
        if state is not before and state not in NODE_TRANSITIONS[before]:
            raise IllegalTransition(
                f"run {self.record.run}: node {node.node} (attempt {node.attempt}) cannot go from {before.value} to {state.value}"
            )
        if before not in NODE_ENDS and state in NODE_ENDS:
            self.open -= 1
            self.failures += state is NodeState.FAILED
        node.state = state
        (self.blocked.add if state is NodeState.BLOCKED else self.blocked.discard)(node.node)
        if reason is not None or state is not NodeState.WAITING:
            node.reason = reason
        self.touch(node)
        self.note("node", node=node, before=before.value, after=state.value, reason=reason, detail=detail)

    def drop_checkpoint(self, node: NodeRecord) -> None:
        """Delete the node's checkpoint: a newer one replaces it, or the node has succeeded."""
        if node.checkpoint is not None:
            self.decide(DropValue(value=node.checkpoint.stored))
            node.checkpoint = None
            self.touch(node)

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

    def touch(self, node: NodeRecord) -> None:
        """Mark the node as changed, without an event."""
        self._nodes[node.node] = node

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
