"""Ends of nodes and of the run: final failures with their skipped dependents, cancellation, and the last node."""

from __future__ import annotations

from collections.abc import Iterable

from dag.run.dead_letters import MESSAGE_CHARS_MAX, DeadLetter
from dag.run.node_table import NodeRecord
from dag.run.run_status import SENT, RunStatus
from dag.run.runs import CancelStage, ForgetRun
from dag.run.state_writer import Deliveries, StateWriter
from dag.run.states import NODE_ENDS, OPEN, NodeState, RunState, StageState
from dag.spec.control import NULL_BYTES, WaitSignal
from dag.spec.plans import blobs_named_in
from mesh.core.ids import NodeId
from mesh.core.reasons import Reason
from mesh.core.values import json_value
from mesh.stages.arrays import array_of
from mesh.stages.messages import Failure

#: The value of a sleep, and of a cond without a branch to take.
NULL = json_value(NULL_BYTES)


class Completion:
    """Ends every node that does not succeed, and the run."""

    def __init__(self, run_status: RunStatus, writer: StateWriter, deliveries: Deliveries, resume_window_ms: int) -> None:
        self._run_status = run_status
        self._record = run_status.record
        self._writer = writer
        self._deliveries = deliveries
        self._resume_window_ms = resume_window_ms

    def cancel(self, detail: str, *, also_cleanup: bool) -> None:
        """Cancel the run on the user's request. Cleanup goes on, unless the user stops it too.

        A repeat changes nothing: clients repeat a request that got no answer.
        """
        if self._record.state is not RunState.CANCELLING:
            self._record.reason, self._record.detail = Reason.CANCELLED_BY_USER, detail
            if self._record.state is RunState.RUNNING:
                self._writer.run(RunState.CANCELLING, Reason.CANCELLED_BY_USER, detail)
            self._stop_stages()
            self._drop_unsent(NodeState.CANCELLED, Reason.CANCELLED_BY_USER, ())
        if also_cleanup:
            self._cancel_cleanup()

    def expire(self, detail: str) -> None:
        """Stop the run at its deadline: it fails once its stages have stopped."""
        if self._record.state is RunState.PENDING:
            self._writer.run(RunState.RUNNING)
        self._record.reason, self._record.detail = Reason.RUN_DEADLINE_EXCEEDED, detail
        self._stop_stages()
        self._drop_unsent(NodeState.SKIPPED, Reason.RUN_DEADLINE_EXCEEDED, ())

    def _cancel_cleanup(self) -> None:
        for stage in self._record.stages.values():
            if stage.state in SENT and self._run_status.is_cleanup(stage):
                self._writer.decide(CancelStage(stage=stage.stage))
        cleanup = [node for node in self._record.nodes.among(*OPEN) if self._run_status.survives(node.node)]
        self._drop(cleanup, NodeState.CANCELLED, Reason.CANCELLED_BY_USER, ())

    def fail_for_good(self, node: NodeRecord, failure: Failure) -> None:
        """Fail the node without a retry: record a dead letter and skip the dependents."""
        node.failure = failure
        self._writer.record_dead_letter(
            DeadLetter(
                run=self._record.run,
                node=node.node,
                tenant=self._record.tenant,
                stage=node.stage,
                mesh=node.mesh,
                reason=failure.reason,
                type_name=failure.type_name,
                message=failure.message[:MESSAGE_CHARS_MAX],
                attempts=node.attempt,
                retries_used=node.retries_used,
                losses=node.losses,
                kills=node.kills,
                at_ms=self._writer.now_ms,
            )
        )
        self._writer.node(node, NodeState.FAILED, failure.reason, failure.message)
        self._skip_readers(node, Reason.UPSTREAM_FAILED, (node.node,))
        if self._run_status.fails_fast:
            self._stop_stages()
            self._drop_unsent(NodeState.SKIPPED, Reason.UPSTREAM_FAILED, (node.node,))

    def skip(self, node: NodeRecord, reason: Reason, roots: tuple[NodeId, ...], state: NodeState = NodeState.SKIPPED) -> None:
        """End a node that will not run, and everything downstream of it.

        Args:
            roots: The failed nodes that cause it.
            state: SKIPPED or CANCELLED.
        """
        self._drop([node], state, reason, roots)
        self._skip_readers(node, reason, roots, state)

    def _skip_readers(self, failed: NodeRecord, reason: Reason, roots: tuple[NodeId, ...], state: NodeState = NodeState.SKIPPED) -> None:
        """Skip everything downstream of a node without a value, and withhold the missing inputs from stages that wait for them.

        Nodes that need not share the fate of their needs are left to `dag.run.control`.
        """
        pending = [failed.node]
        seen = {failed.node}
        judges = self._run_status.control.judges
        while pending:
            source = pending.pop()
            source_stage = self._record.nodes[source].stage
            for reader in self._run_status.edges.followers[source]:
                kept = self._record.nodes[reader]
                if kept.state is NodeState.SKIPPED and (not judges(reader) or kept.roots):
                    kept.roots = tuple(dict.fromkeys((*kept.roots, *roots)))
                elif judges(reader):
                    continue
                elif kept.state not in NODE_ENDS:
                    if kept.stage is not None and kept.stage != source_stage and kept.state is NodeState.ASSIGNED:
                        self._deliveries.withhold(self._record.stages[kept.stage], source)
                    self._drop([kept], state, reason, roots)
                if reader not in seen:
                    seen.add(reader)
                    pending.append(reader)

    def drop_if_stopping(self, nodes: list[NodeRecord]) -> bool:
        """End nodes that came back from a mesh while the run stops. Return False, and do nothing, if the run goes on, or these do."""
        if nodes and self._run_status.survives(nodes[0].node):
            return False
        if self._record.state is RunState.CANCELLING:
            self._drop(nodes, NodeState.CANCELLED, Reason.CANCELLED_BY_USER, ())
            return True
        if self._run_status.has_expired():
            self._drop(nodes, NodeState.SKIPPED, Reason.RUN_DEADLINE_EXCEEDED, ())
            return True
        if self._run_status.is_stopping():
            self._drop(nodes, NodeState.SKIPPED, Reason.UPSTREAM_FAILED, self._run_status.failed())
            return True
        return False

    def _stop_stages(self) -> None:
        for stage in self._record.stages.values():
            if self._run_status.is_cleanup(stage) and self._record.state is not RunState.PENDING:
                continue
            if stage.state in SENT:
                self._writer.decide(CancelStage(stage=stage.stage))
            elif stage.state is StageState.PLANNED:
                self._writer.stage(stage, StageState.ENDED)

    def _drop_unsent(self, state: NodeState, reason: Reason, roots: tuple[NodeId, ...]) -> None:
        unsent = self._record.nodes.among(NodeState.WAITING, NodeState.BLOCKED)
        if self._record.state is not RunState.PENDING:
            unsent = [node for node in unsent if not self._run_status.survives(node.node)]
        self._drop(unsent, state, reason, roots)

    def _drop(self, nodes: Iterable[NodeRecord], state: NodeState, reason: Reason, roots: tuple[NodeId, ...]) -> None:
        for node in nodes:
            node.roots = tuple(dict.fromkeys((*node.roots, *roots)))
            self._writer.node(node, state, reason)

    # -- of the run ----------------------------------------------------------------------------------------------------

    def finish_if_done(self) -> None:
        """End the run when all nodes have ended and no stage is at a mesh."""
        if self._writer.open or any(stage.state in SENT for stage in self._record.stages.values()):
            return
        failed = self._run_status.failed()
        if self._record.reason is Reason.CANCELLED_BY_USER:
            self._end_run(RunState.CANCELLED, Reason.CANCELLED_BY_USER, self._record.detail)
        elif self._run_status.has_expired() and len(self._record.nodes) > self._record.nodes.count(NodeState.SUCCEEDED):
            self._end_run(RunState.FAILED, Reason.RUN_DEADLINE_EXCEEDED, self._record.detail)
        elif failed:
            first = self._record.nodes[failed[0]].failure
            name = array_of(failed[0])
            words = f"{name}: {first.type_name}: {first.message}" if first is not None else name
            self._end_run(RunState.FAILED, first.reason if first is not None else None, words)
        else:
            self._end_run(RunState.SUCCEEDED, None, "")

    def _end_run(self, state: RunState, reason: Reason | None, detail: str) -> None:
        for stage in self._record.stages.values():
            if stage.state is StageState.PLANNED:
                self._writer.stage(stage, StageState.ENDED)
        self._record.reason, self._record.detail, self._record.ended_ms = reason, detail, self._writer.now_ms
        self._writer.run(state, reason, detail)
        if self._resume_window_ms and state is not RunState.SUCCEEDED:
            self._record.forget_ms = self._writer.now_ms + self._resume_window_ms
        else:
            self.forget()

    def _signals(self) -> frozenset[str]:
        """Return the hashes of the signals that have come: nobody sends them again to a resumed run."""
        waits = (node for node, control in self._run_status.control.controls.items() if isinstance(control, WaitSignal))
        found = (self._record.nodes[node].stored for node in waits)
        return frozenset(value.sha256 for value in found if value is not None)

    def forget(self) -> None:
        """Delete the values of the ended run that are no outputs. Its code stays, unless it has succeeded: the run may be resumed."""
        nodes = self._record.nodes
        stored = {nodes.names[row]: value for row, value in nodes.stored.items()}
        outputs = [node for node in stored if node in self._run_status.outputs]
        pickled = [kept.failure.pickled for kept in nodes.rare.values() if kept.failure is not None]
        kept_values = [stored[node] for node in outputs] + [value for value in pickled if value is not None]
        code = frozenset() if self._record.state is RunState.SUCCEEDED else blobs_named_in(self._run_status.plans)
        if self._record.state is not RunState.SUCCEEDED and self._run_status.control.controls:
            code |= {NULL.sha256} | self._signals()
        self._record.forgotten = True
        self._writer.decide(
            ForgetRun(
                meshes=tuple(sorted({stage.mesh for stage in self._record.stages.values()})),
                uris=tuple(
                    sorted({value.uri for value in stored.values() if value.uri is not None} - {value.uri for value in kept_values})
                ),
                keep=tuple(sorted({value.sha256 for value in kept_values} | code)),
            )
        )
