"""The run machine: events in, decisions out; the only writer of a run.

A node moves along `NODE_TRANSITIONS` within an attempt. Nodes without a stage are *unplaced*: routing gives them a mesh,
`split` makes stages of them (`dag.steps.placing`), and a stage is sent as soon as it can start (`dag.steps.stage_dispatch`).

What is lost is computed again. `Recalls.restart` gives a node a new attempt and takes back, over the border of every stage that
was sent, the nodes that wait for it: a stage drops them when it is told that the input will not come (`DeliverInput` of
None), so it can end and give its slots back. Values live where they were computed, with a *holder* (one runner of a
mesh); a value that was not stored is gone when its holder is.

What a step is made of stands in `dag.steps`, a file for each noun; here is what comes in, and in which order it is dealt with.

Source: events in, decisions out as dask's `WorkerState`; stages as `references` of the design, ADR 0007.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dag.compiling import NodePlan
from dag.events import CancelRequested, MeshClosed, MeshGone, NodesPlaced, StartsAllowed, WaitsLimited
from dag.retrying import RETRY_RULES, RetryRules
from dag.runs import NodeRecord, RunChange, RunRecord, StageRecord
from dag.states import RUN_ENDS, RunState
from dag.steps.attempts import Attempts
from dag.steps.completion import Completion
from dag.steps.deliveries import Deliveries
from dag.steps.losses import Losses
from dag.steps.placing import Placing
from dag.steps.recalls import Recalls
from dag.steps.reports import Reports
from dag.steps.run_status import NOT_BEGUN, RunStatus
from dag.steps.stage_dispatch import StageDispatch
from dag.steps.state_writer import StateWriter
from dag.steps.withdrawals import Withdrawals
from mesh.ids import MeshId, NodeId
from mesh.messages import StageMessage

RunInput = StageMessage | NodesPlaced | CancelRequested | MeshGone | MeshClosed | StartsAllowed | WaitsLimited

_ANY_NUMBER = StartsAllowed()


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
        self.plans = plans
        for node in plans:
            record.nodes.setdefault(node, NodeRecord(node=node))
        self._writer = writer = StateWriter(record)
        self._run_status = run_status = RunStatus(record, plans, writer, on_error)
        deliveries = Deliveries(writer)
        self._recalls = recalls = Recalls(run_status, writer, deliveries)
        self._completion = completion = Completion(run_status, writer, deliveries)
        attempts = Attempts(run_status, writer, recalls, completion, retrying)
        losses = Losses(run_status, writer, deliveries, completion, attempts)
        self._withdrawals = Withdrawals(run_status, writer, recalls, completion)
        self._placing = Placing(run_status, writer)
        self._dispatch = StageDispatch(run_status, writer, deliveries, losses, runtime_env=runtime_env, deadline_ms=stage_deadline_ms)
        self._reports = Reports(run_status, writer, deliveries, recalls, completion, attempts, losses)
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
        self._writer.begin(now_ms)
        self._allowed = _ANY_NUMBER
        for event in events:
            if self.record.state in RUN_ENDS:
                break
            self._take(event)
        if self.record.state not in RUN_ENDS:
            self._recalls.close_gaps()
            self._dispatch.send_what_can_start(self._allowed)
            self._completion.finish_if_done()
        self._report_wait()
        return self._writer.change()

    def _take(self, event: RunInput) -> None:
        if isinstance(event, NodesPlaced):
            self._placing.place(event)
        elif isinstance(event, CancelRequested):
            self._completion.cancel(event.detail)
        elif isinstance(event, MeshGone):
            self._withdrawals.lose_mesh(event.mesh, event.reason)
        elif isinstance(event, MeshClosed):
            self._withdrawals.leave_mesh(event.mesh)
        elif isinstance(event, StartsAllowed):
            self._allowed = event
            self._withdrawals.keep_to(event)
        elif isinstance(event, WaitsLimited):
            self._withdrawals.refuse_overdue(event.longest_ms)
        else:
            self._reports.take(event)

    def _report_wait(self) -> None:
        """While the run goes on, its own reason is that of its first blocked node or waiting stage: what `runs` shows in one line."""
        if self.record.state is not RunState.RUNNING:
            return
        waiting: list[NodeRecord | StageRecord] = [self.record.nodes[node] for node in sorted(self._writer.blocked)]
        waiting += [stage for stage in self.record.stages.values() if stage.state in NOT_BEGUN and stage.detail]
        self.record.reason, self.record.detail = (waiting[0].reason, waiting[0].detail) if waiting else (None, "")

    # -- what others ask -----------------------------------------------------------------------------------------------

    def unplaced(self, now_ms: int) -> tuple[NodeId, ...]:
        """Nodes that routing has to answer for, in topological order; none while the run is being stopped.

        What waits before it is tried again is left out, and with it all that depends on it: a stage must not be split from what
        lies between two of its nodes, or the two would wait for each other.
        """
        return self._placing.unplaced(now_ms)

    def overdue(self, longest_ms: int, now_ms: int) -> tuple[NodeId, ...]:
        """Nodes that could have started longer ago than that, and still wait at the root or in the queue of a mesh."""
        return self._withdrawals.overdue(longest_ms, now_ms)

    def mesh_of(self, node: NodeId) -> MeshId | None:
        """Where the node is, or is to be."""
        return self.record.nodes[node].mesh

    def value_at(self, node: NodeId) -> MeshId | None:
        """The mesh that a node's value cannot leave, because it was sent there without being stored; None: it is free."""
        return self._run_status.value_at(node)

    def size_of(self, node: NodeId) -> int | None:
        """How many bytes the node's value has; None: it is not computed yet, or was never stored."""
        stored = self.record.nodes[node].stored
        return None if stored is None else stored.size_bytes
