"""The run machine: events in, decisions out; the only writer of a run.

A node moves along `NODE_TRANSITIONS` within an attempt. Nodes without a stage are *unplaced*: routing gives them a mesh,
`split` makes stages of them, and a stage is sent as soon as its first node can start and every unfinished input from
outside comes from a stage that runs already. The second half of that rule keeps stages from holding slots while they
wait for each other: a running stage waits for running stages only, and these waits follow the graph, which has no circle.

What is lost is computed again. `_restart` gives a node a new attempt and takes back, over the border of every stage that
was sent, the nodes that wait for it: a stage drops them when it is told that the input will not come (`DeliverInput` of
None), so it can end and give its slots back. Values live where they were computed, with a *holder* (one runner of a
mesh); a value that was not stored is gone when its holder is.

Messages name stage and attempt, and one that names another than the present ones is out of date and dropped: a result is
taken at most once per attempt.

Source: events in, decisions out as dask's `WorkerState`; stages as `references` of the design, ADR 0007.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from dag.compiling import NodePlan, blobs_named_in
from dag.dead_letters import MESSAGE_CHARS_MAX, DeadLetter
from dag.events import CancelRequested, MeshClosed, MeshGone, NodesPlaced, StartsAllowed, WaitsLimited
from dag.moves import Moves
from dag.retrying import RETRY_RULES, RetryRules
from dag.runs import CancelStage, DeliverInput, ForgetRun, NodeRecord, RunChange, RunRecord, SendStage, StageRecord
from dag.sending import spec_of
from dag.stages import split
from dag.states import (
    NODE_ENDS,
    RUN_ENDS,
    STAGE_ENDS,
    NodeState,
    RunState,
    StageState,
)
from federation.quota.starts import SHUT
from mesh.errors import IllegalTransition
from mesh.ids import MeshId, NodeId, StageId
from mesh.messages import (
    Failure,
    InputLost,
    NodeFailed,
    NodeStarted,
    NodeSucceeded,
    StageEnded,
    StageLost,
    StageMessage,
    StageStarted,
    StageWaiting,
)
from mesh.reasons import Reason

#: Losses that nobody counts: what gave way to others is entitled to run again, however often it has to.
_NOT_COUNTED = frozenset({Reason.QUOTA_RECLAIMED, Reason.LOWER_IN_QUEUE})

RunInput = StageMessage | NodesPlaced | CancelRequested | MeshGone | MeshClosed | StartsAllowed | WaitsLimited

_ANY_NUMBER = StartsAllowed()
_NOT_BEGUN = (StageState.PLANNED, StageState.QUEUED)
_NOT_STARTED = frozenset({NodeState.WAITING, NodeState.BLOCKED, NodeState.ASSIGNED})
_SENT = (StageState.QUEUED, StageState.RUNNING)


class RunMachine:
    """One run. `record` is the state; `plans` and the edges are the graph, which does not change.

    Args:
        record: As loaded; the machine writes it in place.
        plans: Every node of the graph, in topological order.
        runtime_env: Ray's runtime environment of the whole run.
        on_error: `fail_fast` stops the run at the first failure, `continue` finishes what does not depend on it.
        retrying: How often and how soon what failed is tried again.
        stage_deadline_ms: How long a mesh may take for a stage; None: as long as it likes.
    """

    def __init__(
        self,
        record: RunRecord,
        plans: Mapping[NodeId, NodePlan],
        *,
        runtime_env: dict[str, object],
        on_error: str,
        retrying: RetryRules = RETRY_RULES,
        stage_deadline_ms: int | None = None,
    ) -> None:
        self.record = record
        self._retrying = retrying
        self._stage_deadline_ms = stage_deadline_ms
        self.plans = plans
        self._runtime_env = runtime_env
        self._on_error = on_error
        self._needs = {node: tuple(dict.fromkeys((*plan.inputs, *plan.after))) for node, plan in plans.items()}
        self._followers: dict[NodeId, list[NodeId]] = {node: [] for node in plans}
        self._readers: dict[NodeId, list[NodeId]] = {node: [] for node in plans}
        for node, needs in self._needs.items():
            for need in needs:
                self._followers[need].append(node)
                if need in plans[node].inputs:
                    self._readers[need].append(node)
        for node in plans:
            record.nodes.setdefault(node, NodeRecord(node=node))
        self._moves = Moves(record)
        self._has_gaps = False
        self._allowed = _ANY_NUMBER  #: In the present step.

    # -- events in, decisions out --------------------------------------------------------------------------------------

    def handle(self, events: Iterable[RunInput], now_ms: int) -> RunChange:
        """Take the events in; return all that changed and what must be done, in order.

        Pure: the same events on the same record give the same change.

        Args:
            events: Oldest first.
            now_ms: Milliseconds since the epoch, stamped on what changes; what failed waits from then on.
        Raises:
            IllegalTransition: No row in the tables of `dag.states`; a defect of the machine, not of the input.
        """
        self._moves.begin(now_ms)
        self._allowed = _ANY_NUMBER
        for event in events:
            if self.record.state in RUN_ENDS:
                break
            self._take(event)
        if self.record.state not in RUN_ENDS:
            self._close_gaps()
            self._send_what_can_start()
            self._finish_if_done()
        self._tell_what_it_waits_for()
        return self._moves.change()

    def unplaced(self, now_ms: int) -> tuple[NodeId, ...]:
        """Nodes that routing has to answer for, in topological order; none while the run is being stopped.

        What waits before it is tried again is left out, and with it all that depends on it: a stage must not be split from what
        lies between two of its nodes, or the two would wait for each other.
        """
        if self.record.state not in (RunState.PENDING, RunState.RUNNING) or self._stopping():
            return ()
        waiting = (NodeState.WAITING, NodeState.BLOCKED)
        found = [node for node in self.plans if (kept := self.record.nodes[node]).stage is None and kept.state in waiting]
        held = {node for node in found if self.record.nodes[node].not_before_ms > now_ms}
        if held:
            for node in found:
                if not held.isdisjoint(self._needs[node]):
                    held.add(node)
        return tuple(node for node in found if node not in held)

    def mesh_of(self, node: NodeId) -> MeshId | None:
        """Where the node is, or is to be."""
        return self.record.nodes[node].mesh

    def value_at(self, node: NodeId) -> MeshId | None:
        """The mesh that a node's value cannot leave, because it was sent there without being stored; None: it is free."""
        kept = self.record.nodes[node]
        sent = kept.state in (NodeState.ASSIGNED, NodeState.RUNNING, NodeState.SUCCEEDED)
        return kept.mesh if sent and not kept.exported else None

    def size_of(self, node: NodeId) -> int | None:
        """How many bytes the node's value has; None: it is not computed yet, or was never stored."""
        stored = self.record.nodes[node].stored
        return None if stored is None else stored.size_bytes

    def _take(self, event: RunInput) -> None:
        if isinstance(event, NodesPlaced):
            self._place(event)
        elif isinstance(event, CancelRequested):
            self._cancel(event)
        elif isinstance(event, MeshGone):
            self._lose_mesh(event.mesh)
        elif isinstance(event, MeshClosed):
            self._leave_mesh(event.mesh)
        elif isinstance(event, StartsAllowed):
            self._allow(event)
        elif isinstance(event, WaitsLimited):
            self._refuse_overdue(event.longest_ms)
        else:
            stage = self.record.stages.get(event.stage)
            if stage is not None and stage.state not in STAGE_ENDS:
                self._take_message(stage, event)

    def _take_message(self, stage: StageRecord, event: StageMessage) -> None:
        if isinstance(event, StageWaiting):
            stage.reason, stage.detail = event.reason, event.detail
            self._moves.note_stage(stage, stage.state, event.reason, event.detail)
        elif isinstance(event, StageStarted):
            self._start_stage(stage, event)
        elif isinstance(event, StageEnded):
            self._end_stage(stage)
        elif isinstance(event, StageLost):
            self._lose_stage(stage, event.reason)
        elif isinstance(event, InputLost):
            self._lose_input(stage, event.node)
        else:
            node = self.record.nodes.get(event.node)
            if node is not None and node.stage == stage.stage and node.attempt == event.attempt and node.state not in NODE_ENDS:
                self._take_node(node, event)

    def _take_node(self, node: NodeRecord, event: NodeStarted | NodeSucceeded | NodeFailed) -> None:
        node.started_ms = event.started_ms
        if isinstance(event, NodeStarted):
            if node.state is NodeState.ASSIGNED:
                self._moves.node(node, NodeState.RUNNING)
        elif isinstance(event, NodeSucceeded):
            self._succeed(node, event)
        else:
            node.finished_ms = event.finished_ms
            self._fail(node, event.failure)

    # -- placing and sending -------------------------------------------------------------------------------------------

    def _place(self, event: NodesPlaced) -> None:
        if self.record.state is RunState.PENDING:
            self._moves.run(RunState.RUNNING)
        for node, blockage in event.blockages.items():
            kept = self.record.nodes[node]
            kept.waits_since_ms = 0 if blockage.reason in SHUT else kept.waits_since_ms or self._moves.now_ms
            if (kept.state, kept.reason, kept.detail) != (NodeState.BLOCKED, blockage.reason, blockage.detail):
                kept.reason, kept.detail = blockage.reason, blockage.detail
                self._moves.node(kept, NodeState.BLOCKED, blockage.reason, blockage.detail)
        placed = {node: where.mesh for node, where in event.placements.items()}
        order = [node for node in self.plans if node in placed]
        edges = [(need, node) for node in order for need in self._needs[node] if need in placed]
        free = self._free_names()
        for plan in split(order, edges, placed):
            stage = StageRecord(
                stage=next(free, None) or StageId(f"{self.record.run}.{len(self.record.stages) + 1}"),
                mesh=plan.mesh,
                level=plan.level,
                nodes=plan.nodes,
                width=plan.width,
                why_here=event.placements[plan.nodes[0]].why,
            )
            self.record.stages[stage.stage] = stage
            self._moves.note_stage(stage, None, None, stage.why_here)
            for node in plan.nodes:
                kept = self.record.nodes[node]
                kept.stage, kept.mesh, kept.detail, kept.reason = stage.stage, plan.mesh, event.placements[node].why, None
                if kept.state is NodeState.BLOCKED:
                    self._moves.node(kept, NodeState.WAITING)
                self._moves.touch(kept)

    def _free_names(self) -> Iterator[StageId]:
        """Names of stages that were dissolved before anybody heard of them: each retry dissolves all that was planned, so a run would
        gather records of them without end."""
        named = {kept.stage for kept in self.record.nodes.values()}
        stages = tuple(self.record.stages.values())
        return (
            stage.stage
            for stage in stages
            if stage.state is StageState.ENDED and not (stage.sent_ms or stage.nodes) and stage.stage not in named
        )

    def _send_what_can_start(self) -> None:
        if self._winding_down() or self.record.state is not RunState.RUNNING:
            return
        most, under_way = self._allowed.under_way_max, sum(stage.state in _SENT for stage in self.record.stages.values())
        for stage in tuple(self.record.stages.values()):
            if stage.state is StageState.PLANNED:
                self._drop_what_has_ended(stage)
            if stage.state is StageState.PLANNED:
                self._lose_values(need for need in self._external(stage) if self._is_out_of_reach(need, stage.mesh))
                if not self._may_go(stage):
                    continue
                if most is not None and under_way >= most:
                    self._keep_back(stage)
                    continue
                under_way += 1
                self._send(stage)

    def _keep_back(self, stage: StageRecord) -> None:
        """It could go, and its tenant or its user may start no more now."""
        self._begin_to_wait(stage)
        told = self._allowed.reason, self._allowed.detail
        if (stage.reason, stage.detail) != told:
            stage.reason, stage.detail = told
            self._moves.note_stage(stage, stage.state, *told)

    def _drop_what_has_ended(self, stage: StageRecord) -> None:
        """Nodes that were skipped while the stage waited are not sent; a stage without any others is over."""
        left = tuple(node for node in stage.nodes if self.record.nodes[node].state not in NODE_ENDS)
        if not left:
            self._moves.stage(stage, StageState.ENDED)
        elif len(left) < len(stage.nodes):
            stage.nodes = left
            self._moves.touch_stage(stage)

    def _is_out_of_reach(self, need: NodeId, mesh: MeshId) -> bool:
        return self._succeeded(need) and self.value_at(need) not in (None, mesh)

    def _may_go(self, stage: StageRecord) -> bool:
        inside = set(stage.nodes)
        some_node_can_start = False
        for node in stage.nodes:
            late = [need for need in self._needs[node] if not self._succeeded(need)]
            some_node_can_start = some_node_can_start or not late
            for need in late:
                if need not in inside and not (need in self.plans[node].inputs and self._will_come(need, stage.mesh)):
                    return False
        return some_node_can_start

    def _will_come(self, need: NodeId, mesh: MeshId) -> bool:
        """The value is being computed, and can be had on `mesh` when it is there."""
        kept = self.record.nodes[need]
        running = kept.stage is not None and self.record.stages[kept.stage].state is StageState.RUNNING
        return running and kept.state not in NODE_ENDS and self.value_at(need) in (None, mesh)

    def _send(self, stage: StageRecord) -> None:
        for node in stage.nodes:
            self.record.nodes[node].exported = self._leaves(node, stage.mesh)
        self._begin_to_wait(stage)
        spec = spec_of(self.record, stage, self.plans, self._runtime_env, self._stage_deadline_ms, self._allowed.yielding)
        stage.sent_ms, stage.reason, stage.detail = self._moves.now_ms, Reason.WAITING_IN_QUEUE, ""
        self._moves.stage(stage, StageState.QUEUED)
        for node in stage.nodes:
            self._moves.node(self.record.nodes[node], NodeState.ASSIGNED)
        self._moves.decide(SendStage(mesh=stage.mesh, spec=spec))
        for need in self._external(stage):
            if self._succeeded(need) and self.record.nodes[need].mesh != stage.mesh:
                self._deliver(stage, self.record.nodes[need])

    def _begin_to_wait(self, stage: StageRecord) -> None:
        for node in stage.nodes:
            kept = self.record.nodes[node]
            if not kept.waits_since_ms:
                kept.waits_since_ms = self._moves.now_ms
                self._moves.touch(kept)

    def _leaves(self, node: NodeId, mesh: MeshId) -> bool:
        """Somebody outside the mesh reads the value: the user, or a node that is (or may yet be) placed elsewhere."""
        readers = (self.record.nodes[reader] for reader in self._readers[node])
        return self.plans[node].is_output or any(kept.mesh != mesh and kept.state not in NODE_ENDS for kept in readers)

    # -- what meshes tell ----------------------------------------------------------------------------------------------

    def _start_stage(self, stage: StageRecord, event: StageStarted) -> None:
        if stage.state is not StageState.QUEUED:
            return
        stage.incarnation, stage.cluster, stage.slots = event.incarnation, event.cluster, event.slots
        stage.started_ms, stage.reason, stage.detail = self._moves.now_ms, None, ""
        self._moves.stage(stage, StageState.RUNNING, None, f"{event.slots} slots under lease token {event.token}")
        gone = []
        for need in self._external(stage):
            kept = self.record.nodes[need]
            if kept.state is NodeState.SUCCEEDED and (kept.mesh, kept.incarnation) != (stage.mesh, stage.incarnation):
                if kept.stored is not None:
                    self._deliver(stage, kept)
                else:
                    gone.append(need)
        self._lose_values(gone)

    def _succeed(self, node: NodeRecord, event: NodeSucceeded) -> None:
        stage = self._stage_of(node)
        node.finished_ms, node.stored, node.incarnation = event.finished_ms, event.stored, stage.incarnation
        self._moves.node(node, NodeState.SUCCEEDED, detail=event.worker)
        for follower in self._followers[node.node]:  # What waited while this one ran could not have started before.
            kept = self.record.nodes[follower]
            if kept.waits_since_ms and kept.state in _NOT_STARTED:
                kept.waits_since_ms = self._moves.now_ms
                self._moves.touch(kept)
        for reader_stage in self._waiting_stages(node.node):
            if reader_stage.stage == stage.stage or (reader_stage.mesh, reader_stage.incarnation) == (stage.mesh, stage.incarnation):
                continue
            if reader_stage.state is StageState.QUEUED and reader_stage.mesh == stage.mesh:
                continue  # Whether the same runner will have it shows when it starts.
            self._lose_input(reader_stage, node.node)

    def _fail(self, node: NodeRecord, failure: Failure) -> None:
        node.failure = failure
        if self.record.state is RunState.CANCELLING:
            self._drop([node], NodeState.CANCELLED, Reason.CANCELLED_BY_USER, ())
        elif self._stopping() and failure.reason is Reason.CANCELLED_BY_USER:
            self._drop([node], NodeState.SKIPPED, Reason.UPSTREAM_FAILED, self._failed())
        elif self._stopping():
            self._fail_for_good(node, failure)
        elif failure.reason is Reason.WORKER_LOST:
            self._lose_worker(node, failure.message)
        elif failure.reason is Reason.VALUE_LOST:
            self._lose(node, failure.reason, failure.message)
        elif node.retries_used < self.plans[node.node].retries:
            node.retries_used += 1
            self._retry(node, failure.reason, failure.message)
        else:
            self._fail_for_good(node, failure)

    def _fail_for_good(self, node: NodeRecord, failure: Failure) -> None:
        node.failure = failure
        self._moves.bury(
            DeadLetter(
                run=self.record.run,
                node=node.node,
                tenant=self.record.tenant,
                stage=node.stage,
                mesh=node.mesh,
                reason=failure.reason,
                type_name=failure.type_name,
                message=failure.message[:MESSAGE_CHARS_MAX],
                attempts=node.attempt,
                retries_used=node.retries_used,
                losses=node.losses,
                kills=node.kills,
                at_ms=self._moves.now_ms,
            )
        )
        self._moves.node(node, NodeState.FAILED, failure.reason, failure.message)
        self._skip_readers(node)
        if self._on_error == "fail_fast":
            self._stop_stages()
            self._drop_unsent(NodeState.SKIPPED, Reason.UPSTREAM_FAILED, (node.node,))

    def _end_stage(self, stage: StageRecord) -> None:
        stage.ended_ms = self._moves.now_ms
        self._moves.stage(stage, StageState.ENDED)
        left = [self.record.nodes[node] for node in stage.nodes if self._is_left(stage, node)]
        if not self._drop_if_stopping(left):
            for node in left:  # The mesh dropped it: back to where it can be placed again.
                self._recall(node)

    def _lose_stage(self, stage: StageRecord, reason: Reason) -> None:
        stage.ended_ms = self._moves.now_ms
        self._moves.stage(stage, StageState.LOST, reason)
        left = [self.record.nodes[node] for node in stage.nodes if self._is_left(stage, node)]
        if self._drop_if_stopping(left):
            return
        held = [kept.node for kept in self.record.nodes.values() if self._is_held_by(kept, stage)]
        for node in left:
            if self._is_left(stage, node.node):  # A recall above it may have dealt with it.
                self._lose_with_stage(node, stage, reason)
            if self._drop_if_stopping([other for other in left if self._is_left(stage, other.node)]):
                return  # This one was lost too often, and the run stops at it.
        self._lose_values(held)

    def _drop_if_stopping(self, nodes: list[NodeRecord]) -> bool:
        if self.record.state is RunState.CANCELLING:
            self._drop(nodes, NodeState.CANCELLED, Reason.CANCELLED_BY_USER, ())
            return True
        if self._stopping():
            self._drop(nodes, NodeState.SKIPPED, Reason.UPSTREAM_FAILED, self._failed())
            return True
        return False

    def _lose_mesh(self, mesh: MeshId) -> None:
        """What the mesh has not begun goes elsewhere. What it runs is lost only when its session is swept: it may yet come back."""
        for stage in tuple(self.record.stages.values()):
            if stage.mesh != mesh:
                continue
            if stage.state is StageState.PLANNED:
                self._dissolve(stage)
            elif stage.state is StageState.QUEUED:
                self._moves.decide(CancelStage(stage=stage.stage))
                self._recall_stage(stage, Reason.MESH_UNREACHABLE)

    def _leave_mesh(self, mesh: MeshId) -> None:
        """What was not sent to the mesh yet goes elsewhere; what stands in its queue is its own, and it finishes that."""
        for stage in tuple(self.record.stages.values()):
            if stage.mesh == mesh and stage.state is StageState.PLANNED:
                self._dissolve(stage)

    def _allow(self, event: StartsAllowed) -> None:
        """What the tenant may not start now is placed when it may, on what the meshes are like then."""
        self._allowed = event
        if not event.is_shut or self._winding_down():
            return
        for stage in tuple(self.record.stages.values()):
            if stage.state is StageState.PLANNED:
                self._dissolve(stage)
            elif stage.state is StageState.QUEUED:
                self._moves.decide(CancelStage(stage=stage.stage))
                self._recall_stage(stage, event.reason)

    def _recall_stage(self, stage: StageRecord, reason: Reason | None) -> None:
        """Nothing of it ever ran, so nothing is lost: its nodes are placed again, at no cost."""
        stage.ended_ms = self._moves.now_ms
        self._moves.stage(stage, StageState.LOST, reason)
        left = [self.record.nodes[node] for node in stage.nodes if self._is_left(stage, node)]
        if not self._drop_if_stopping(left):
            for node in left:
                self._recall(node)

    # -- loss and repetition -------------------------------------------------------------------------------------------

    def _is_held_by(self, kept: NodeRecord, stage: StageRecord) -> bool:
        held = kept.state is NodeState.SUCCEEDED and kept.stored is None
        return held and stage.incarnation > 0 and (kept.mesh, kept.incarnation) == (stage.mesh, stage.incarnation)

    def _lose_input(self, stage: StageRecord, node: NodeId) -> None:
        """The stage's runner does not have the finished value: what was stored is handed over, the rest is computed again.

        So is what was handed over already: its file is gone or damaged.
        """
        kept = self.record.nodes.get(node)
        if kept is None:
            return
        if kept.stored is not None and node not in stage.delivered:
            self._deliver(stage, kept)
            return
        if kept.stored is not None:
            if not any(self._is_left(stage, reader) for reader in self._readers[node]):
                return  # Whoever read it there was taken back: this is about an earlier attempt's value.
            kept.stored = None
            self._moves.touch(kept)
        self._lose_values([node])

    def _lose_values(self, nodes: Iterable[NodeId]) -> None:
        """These finished values are gone; compute again those that somebody still has to read, and what that takes."""
        pending = list(nodes)
        while pending and not self._winding_down():
            kept = self.record.nodes[pending.pop()]
            if not self._succeeded(kept.node) or kept.stored is not None or not self._is_needed(kept.node):
                continue
            holder = (kept.mesh, kept.incarnation)
            self._lose(kept, Reason.VALUE_LOST, f"the value went with a runner of mesh {kept.mesh}")
            needed = (self.record.nodes[need] for need in self.plans[kept.node].inputs)
            pending.extend(need.node for need in needed if need.stored is None and (need.mesh, need.incarnation) == holder)

    def _lose_with_stage(self, node: NodeRecord, stage: StageRecord, reason: Reason) -> None:
        """A node that was running when the runner died may have killed it; one that waited has not."""
        if reason is Reason.WORKER_LOST and node.state is NodeState.RUNNING:
            self._lose_worker(node, f"a runner of mesh {stage.mesh} died under it")
        elif reason is Reason.DEADLINE_EXCEEDED:
            self._lose(node, reason, f"mesh {stage.mesh} did not end the stage in time", waits=True)
        else:
            self._lose(node, reason, f"mesh {stage.mesh} lost the stage")

    def _lose_worker(self, node: NodeRecord, detail: str) -> None:
        """A worker died under the node: again after a while, until it is plain that the node does it."""
        node.kills += 1
        if node.kills >= self._retrying.kills_max:
            words = f"{node.kills} workers died under it; last: {detail}"
            self._fail_for_good(node, Failure(reason=Reason.POISON, type_name="schedulemesh.Poison", message=words))
        else:
            self._retry(node, Reason.WORKER_LOST, detail)

    def _retry(self, node: NodeRecord, reason: Reason, detail: str) -> None:
        """A new attempt, after a wait that grows with each failure."""
        failures = node.retries_used + node.kills + node.losses
        wait_ms = self._retrying.wait_after_ms(f"{self.record.run}:{node.node}", max(1, failures))
        self._restart(node, reason, f"{detail} (again in {wait_ms / 1000:.1f} s)" if wait_ms else detail)
        node.not_before_ms = self._moves.now_ms + wait_ms

    def _lose(self, node: NodeRecord, reason: Reason, detail: str, *, waits: bool = False) -> None:
        """The attempt is lost through no fault of its own: again, but not for ever."""
        node.losses += reason not in _NOT_COUNTED
        (self._retry if waits else self._restart)(node, reason, detail)
        if node.losses > self._retrying.losses_max:
            words = f"lost {node.losses} times with the mesh or worker that ran it; last: {detail}"
            self._fail_for_good(node, Failure(reason=reason, type_name="schedulemesh.WorkLost", message=words))

    def _is_needed(self, node: NodeId) -> bool:
        return self.plans[node].is_output or any(self.record.nodes[reader].state not in NODE_ENDS for reader in self._readers[node])

    def _restart(self, node: NodeRecord, reason: Reason, detail: str) -> None:
        """A new attempt, and back with everything that was sent to wait for this one."""
        before = node.state
        if before in NODE_ENDS:
            self._moves.open += 1
        old_stage = node.stage
        self._take_back_readers(node.node, old_stage)
        node.attempt += 1
        node.state, node.stage, node.mesh, node.incarnation, node.stored = NodeState.WAITING, None, None, 0, None
        node.not_before_ms = node.waits_since_ms = 0
        node.exported = False
        self._has_gaps = True
        node.reason, node.detail, node.started_ms, node.finished_ms = reason, detail, 0, 0
        self._moves.touch(node)
        self._moves.note(
            "node", node=node, before=before.value, after=NodeState.WAITING.value, reason=reason, detail=detail, stage=old_stage
        )

    def _take_back_readers(self, node: NodeId, stage: StageId | None) -> None:
        """Recall, transitively, the nodes that were sent to wait for `node`; other stages are told that it will not come."""
        pending = [(node, stage)]
        while pending:
            source, source_stage = pending.pop()
            for follower in self._followers[source]:
                kept = self.record.nodes[follower]
                if kept.state is not NodeState.ASSIGNED or kept.stage is None:
                    continue  # Not sent: it simply waits for the new attempt. Running or over: it has what it needs.
                if kept.stage != source_stage:
                    if source not in self.plans[follower].inputs:
                        continue  # It waited for the order only, and the order was kept.
                    self._withhold(self.record.stages[kept.stage], source)
                pending.append((follower, kept.stage))
                self._recall(kept)

    def _withhold(self, stage: StageRecord, node: NodeId) -> None:
        if stage.state not in STAGE_ENDS and node not in stage.delivered:
            stage.delivered = (*stage.delivered, node)
            self._moves.touch_stage(stage)
            self._moves.decide(DeliverInput(stage=stage.stage, node=node, value=None))

    def _recall(self, node: NodeRecord) -> None:
        if node.state is NodeState.RUNNING:
            node.attempt += 1
            node.state = NodeState.ASSIGNED
        if node.state is NodeState.ASSIGNED:
            self._moves.node(node, NodeState.WAITING, Reason.WAITING_FOR_INPUTS)
        if node.stage is not None and self.record.stages[node.stage].started_ms:
            node.waits_since_ms = 0  # Its wait was over when its mesh began with it.
        node.stage, node.mesh = None, None
        self._has_gaps = True
        self._moves.touch(node)

    def _close_gaps(self) -> None:
        """Where nodes were taken out of stages, all that was not sent is placed anew, together with them.

        Stages that are split in one go form no circle; the rest of an old split and a new one might: a node of the first waits
        for one of the second, and another the other way round.
        """
        if not self._has_gaps:
            return
        for stage in tuple(self.record.stages.values()):
            if stage.state is StageState.PLANNED:
                self._dissolve(stage)
        self._has_gaps = False

    def _dissolve(self, stage: StageRecord) -> None:
        nodes, stage.nodes = stage.nodes, ()
        self._moves.stage(stage, StageState.ENDED)
        for node in nodes:
            if self.record.nodes[node].state not in NODE_ENDS:
                self._recall(self.record.nodes[node])

    def _tell_what_it_waits_for(self) -> None:
        """While the run goes on, its own reason is that of its first blocked node or waiting stage: what `runs` shows in one line."""
        if self.record.state is not RunState.RUNNING:
            return
        waiting: list[NodeRecord | StageRecord] = [self.record.nodes[node] for node in sorted(self._moves.blocked)]
        waiting += [stage for stage in self.record.stages.values() if stage.state in _NOT_BEGUN and stage.detail]
        self.record.reason, self.record.detail = (waiting[0].reason, waiting[0].detail) if waiting else (None, "")

    # -- waiting too long ----------------------------------------------------------------------------------------------

    def overdue(self, longest_ms: int, now_ms: int) -> tuple[NodeId, ...]:
        """Nodes that could have started longer ago than that, and still wait at the root or in the queue of a mesh."""
        queued = (node for stage in self.record.stages.values() if stage.state in _NOT_BEGUN for node in stage.nodes)
        return tuple(
            node
            for node in dict.fromkeys((*sorted(self._moves.blocked), *queued))
            if (since_ms := self.record.nodes[node].waits_since_ms) and now_ms - since_ms > longest_ms and self._is_ready(node)
        )

    def _is_ready(self, node: NodeId) -> bool:
        """All that it needs is there; a node that waits for others of its own stage is refused with them."""
        return all(self._succeeded(need) for need in self._needs[node])

    def _refuse_overdue(self, longest_ms: int) -> None:
        """What has waited too long fails, once for all; what was sent with it and can go on without it is placed again."""
        if self._winding_down():
            return
        for node in self.overdue(longest_ms, self._moves.now_ms):
            kept = self.record.nodes[node]
            if kept.state in NODE_ENDS:
                continue  # The one before it took it along.
            why = f" (last: {kept.reason.value})" if kept.reason is not None else ""
            stage = self.record.stages[kept.stage] if kept.stage is not None else None
            if stage is not None and stage.reason is not None:
                why = f" (last: {stage.reason.value}{f', {stage.detail}' if stage.detail else ''})"
            waited_s, longest_s = (self._moves.now_ms - kept.waits_since_ms) / 1000, longest_ms / 1000
            words = f"waited {waited_s:.1f} s to start, and {self.record.tenant} waits {longest_s:g} s at most{why}"
            self._fail_for_good(kept, Failure(reason=Reason.WAITED_TOO_LONG, type_name="schedulemesh.WaitedTooLong", message=words))
            if stage is not None and stage.state in _NOT_BEGUN and not self._winding_down():
                self._take_out_of_queue(stage)

    def _take_out_of_queue(self, stage: StageRecord) -> None:
        if stage.state is StageState.PLANNED:
            self._dissolve(stage)
        else:
            self._moves.decide(CancelStage(stage=stage.stage))
            self._recall_stage(stage, Reason.WAITED_TOO_LONG)

    # -- stopping and ending -------------------------------------------------------------------------------------------

    def _cancel(self, event: CancelRequested) -> None:
        if self.record.state is RunState.CANCELLING:
            return
        self.record.reason, self.record.detail = Reason.CANCELLED_BY_USER, event.detail
        if self.record.state is RunState.RUNNING:
            self._moves.run(RunState.CANCELLING, Reason.CANCELLED_BY_USER, event.detail)
        self._stop_stages()
        self._drop_unsent(NodeState.CANCELLED, Reason.CANCELLED_BY_USER, ())

    def _stop_stages(self) -> None:
        for stage in self.record.stages.values():
            if stage.state in (StageState.QUEUED, StageState.RUNNING):
                self._moves.decide(CancelStage(stage=stage.stage))
            elif stage.state is StageState.PLANNED:
                self._moves.stage(stage, StageState.ENDED)

    def _drop_unsent(self, state: NodeState, reason: Reason, roots: tuple[NodeId, ...]) -> None:
        unsent = (NodeState.WAITING, NodeState.BLOCKED)
        self._drop([kept for kept in self.record.nodes.values() if kept.state in unsent], state, reason, roots)

    def _drop(self, nodes: Iterable[NodeRecord], state: NodeState, reason: Reason, roots: tuple[NodeId, ...]) -> None:
        for node in nodes:
            node.roots = tuple(dict.fromkeys((*node.roots, *roots)))
            self._moves.node(node, state, reason)

    def _skip_readers(self, failed: NodeRecord) -> None:
        """Everything downstream of a final failure is skipped; stages that wait for it are told that it will not come."""
        pending = [failed.node]
        seen = {failed.node}
        while pending:
            source = pending.pop()
            source_stage = self.record.nodes[source].stage
            for reader in self._followers[source]:
                kept = self.record.nodes[reader]
                if kept.state is NodeState.SKIPPED:
                    kept.roots = tuple(dict.fromkeys((*kept.roots, failed.node)))
                    self._moves.touch(kept)
                elif kept.state not in NODE_ENDS:
                    if kept.stage is not None and kept.stage != source_stage and kept.state is NodeState.ASSIGNED:
                        self._withhold(self.record.stages[kept.stage], source)
                    self._drop([kept], NodeState.SKIPPED, Reason.UPSTREAM_FAILED, (failed.node,))
                if reader not in seen:
                    seen.add(reader)
                    pending.append(reader)

    def _failed(self) -> tuple[NodeId, ...]:
        return tuple(node for node, kept in self.record.nodes.items() if kept.state is NodeState.FAILED)

    def _winding_down(self) -> bool:
        """Nothing new is begun: the run is being cancelled, or stops at a failure."""
        return self.record.state is RunState.CANCELLING or self._stopping()

    def _stopping(self) -> bool:
        return self._on_error == "fail_fast" and bool(self._moves.failures)

    def _finish_if_done(self) -> None:
        if self._moves.open or any(stage.state in (StageState.QUEUED, StageState.RUNNING) for stage in self.record.stages.values()):
            return
        failed = self._failed()
        if self.record.reason is Reason.CANCELLED_BY_USER:
            self._end_run(RunState.CANCELLED, Reason.CANCELLED_BY_USER, self.record.detail)
        elif failed:
            first = self.record.nodes[failed[0]].failure
            words = f"{failed[0]}: {first.type_name}: {first.message}" if first is not None else failed[0]
            self._end_run(RunState.FAILED, first.reason if first is not None else None, words)
        else:
            self._end_run(RunState.SUCCEEDED, None, "")

    def _end_run(self, state: RunState, reason: Reason | None, detail: str) -> None:
        for stage in self.record.stages.values():
            if stage.state is StageState.PLANNED:
                self._moves.stage(stage, StageState.ENDED)
        outputs = {node for node, plan in self.plans.items() if plan.is_output}
        stored = {node: kept.stored for node, kept in self.record.nodes.items() if kept.stored is not None}
        pickled = [kept.failure.pickled for kept in self.record.nodes.values() if kept.failure is not None]
        kept_values = [value for node, value in stored.items() if node in outputs] + [value for value in pickled if value is not None]
        code = blobs_named_in(self.plans.values()) if state is RunState.FAILED else frozenset()  # Its dead letters may run again.
        self._moves.decide(
            ForgetRun(
                meshes=tuple(sorted({stage.mesh for stage in self.record.stages.values()})),
                uris=tuple(sorted(value.uri for node, value in stored.items() if value.uri is not None and node not in outputs)),
                keep=tuple(sorted({value.sha256 for value in kept_values} | code)),
            )
        )
        self.record.reason, self.record.detail, self.record.ended_ms = reason, detail, self._moves.now_ms
        self._moves.run(state, reason, detail)

    # -- small questions -----------------------------------------------------------------------------------------------

    def _succeeded(self, node: NodeId) -> bool:
        return self.record.nodes[node].state is NodeState.SUCCEEDED

    def _is_left(self, stage: StageRecord, node: NodeId) -> bool:
        kept = self.record.nodes[node]
        return kept.stage == stage.stage and kept.state not in NODE_ENDS

    def _stage_of(self, node: NodeRecord) -> StageRecord:
        if node.stage is None:
            raise IllegalTransition(f"run {self.record.run}: node {node.node} is {node.state.value} without a stage")
        return self.record.stages[node.stage]

    def _external(self, stage: StageRecord) -> tuple[NodeId, ...]:
        """Nodes outside the stage whose values its nodes read."""
        inside = set(stage.nodes)
        return tuple(dict.fromkeys(need for node in stage.nodes for need in self.plans[node].inputs if need not in inside))

    def _waiting_stages(self, node: NodeId) -> tuple[StageRecord, ...]:
        """Stages that were sent and hold a reader of `node`."""
        found: dict[StageId, StageRecord] = {}
        for reader in self._readers[node]:
            kept = self.record.nodes[reader]
            if kept.stage is not None and kept.state not in NODE_ENDS:
                stage = self.record.stages[kept.stage]
                if stage.state in (StageState.QUEUED, StageState.RUNNING):
                    found[stage.stage] = stage
        return tuple(found.values())

    def _deliver(self, stage: StageRecord, node: NodeRecord) -> None:
        if node.node in stage.delivered or node.stored is None:
            return
        stage.delivered = (*stage.delivered, node.node)
        self._moves.touch_stage(stage)
        self._moves.decide(DeliverInput(stage=stage.stage, node=node.node, value=node.stored))
