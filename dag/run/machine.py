"""The run machine: events in, decisions out; the only writer of a run.

A node moves along `NODE_TRANSITIONS` within an attempt. Nodes without a stage are *unplaced*: routing gives them a mesh,
`split` makes stages of them (`dag.run.placing`), and a stage is sent as soon as it can start (`dag.run.stage_dispatch`).

Lost work is computed again. `Recalls.restart` gives a node a new attempt and recalls the nodes in other sent stages that wait for
it. A `DeliverInput` of None reports to such a stage that the input will not come. The stage drops the recalled nodes, so it can
end and release its slots. Values stay where they were computed, with a *holder* (one runner of a mesh). A value that was not
stored is lost with its holder.

Each part of a step has a module of its own beside this one. This module defines the inputs and the order of their handling.

Source: events in, decisions out as in dask's `WorkerState`; ADR 0007 for stages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dag.run.attempts import Attempts
from dag.run.caching import Caching, Lookup
from dag.run.completion import Completion
from dag.run.control import ControlFlow
from dag.run.events import (
    CacheAnswer,
    CacheAnswered,
    CancelRequested,
    ForgetDue,
    MeshClosed,
    MeshGone,
    NodeGrown,
    NodesPlaced,
    ResumeRequested,
    SignalSent,
    StagesMoved,
    StartsAllowed,
    TimersDue,
    WaitsLimited,
)
from dag.run.losses import Losses
from dag.run.node_facts import TimerKind
from dag.run.node_table import NodeRecord
from dag.run.placing import Placing
from dag.run.recalls import Recalls
from dag.run.reports import Reports
from dag.run.retrying import RETRY_RULES, RetryRules
from dag.run.run_status import NOT_BEGUN, RunStatus
from dag.run.runs import Decision, RunChange, RunRecord, SendAgain, StageRecord
from dag.run.stage_dispatch import StageDispatch
from dag.run.state_writer import Deliveries, StateWriter
from dag.run.states import RUN_ENDS, NodeState, RunState, StageState
from dag.run.timeouts import Timeouts
from dag.run.timers import Timers
from dag.run.withdrawals import Withdrawals
from dag.spec.plans import NodePlan
from mesh.core.ids import MeshId, NodeId
from mesh.core.reasons import PASSING
from mesh.stages.messages import StageMessage

RunInput = (
    StageMessage
    | NodeGrown
    | NodesPlaced
    | CacheAnswered
    | CancelRequested
    | SignalSent
    | MeshGone
    | MeshClosed
    | StagesMoved
    | StartsAllowed
    | WaitsLimited
    | TimersDue
    | ResumeRequested
    | ForgetDue
)

_ANY_NUMBER = StartsAllowed()


class RunMachine:
    """State machine of one run. `record` is the state; `plans` and the edges are the graph, which does not change.

    Args:
        record: The stored record; the machine changes it in place.
        plans: Every node of the graph, in topological order. After a step that adds nodes (`RunChange.growths`) the record needs a machine
            with the plans of the grown graph.
        runtime_env: Ray's runtime environment of the whole run.
        on_error: `fail_fast` stops the run at the first failure, `continue` finishes what does not depend on it.
        retrying: Limits and waits for retries.
        stage_deadline_ms: Time limit for a mesh to run a stage; None: no limit.
        deadline_ms: Time limit of the run; None: no limit.
        is_traced: Whether tasks get a trace context though the client sent none.
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
        deadline_ms: int | None = None,
        is_traced: bool = False,
    ) -> None:
        self.record = record
        self.plans = plans
        record.nodes.add(plans)
        self._writer = writer = StateWriter(record)
        self._run_status = run_status = RunStatus(record, plans, writer, on_error)
        deliveries = Deliveries(writer)
        self._timers = timers = Timers(record.nodes)
        self._recalls = recalls = Recalls(run_status, writer, deliveries, timers)
        self._completion = completion = Completion(run_status, writer, deliveries, retrying.resume_window_ms)
        attempts = Attempts(run_status, writer, recalls, completion, timers, retrying)
        losses = Losses(run_status, writer, deliveries, completion, attempts)
        self._withdrawals = withdrawals = Withdrawals(run_status, writer, recalls, completion)
        self._timeouts = Timeouts(run_status, writer, timers, recalls, completion, withdrawals, deadline_ms=deadline_ms)
        self._control = ControlFlow(run_status, writer, completion, deliveries, timers)
        self._caching = Caching(run_status, writer, deliveries, timers, self._control, runtime_env)
        self._placing = Placing(run_status, writer, self._control, self._caching)
        self._dispatch = StageDispatch(
            run_status, writer, deliveries, losses, runtime_env=runtime_env, deadline_ms=stage_deadline_ms, is_traced=is_traced
        )
        self._reports = Reports(run_status, writer, deliveries, recalls, completion, attempts, losses)
        self._allowed = _ANY_NUMBER  #: Limit of the present step.

    # -- events in, decisions out --------------------------------------------------------------------------------------

    def handle(self, events: Iterable[RunInput], now_ms: int) -> RunChange:
        """Handle the events; return all changes and decisions, in order.

        Pure: the same events on the same record give the same change.

        Args:
            events: Oldest first.
            now_ms: Milliseconds since the epoch, for the events of the step and for the waits before retries.
        Raises:
            IllegalTransition: The tables of `dag.run.states` have no such transition; a defect of the machine, not of the input.
        """
        self._writer.begin(now_ms)
        self._allowed = _ANY_NUMBER
        for event in events:
            if self.record.state in RUN_ENDS and not self._take_after_end(event):
                break
            self._take(event)
        if self.record.state not in RUN_ENDS:
            self._take_timers()
            self._control.settle()
        if self.record.state not in RUN_ENDS:
            self._recalls.close_gaps()
            self._dispatch.send_what_can_start(self._allowed)
            self._timeouts.arm()
            self._caching.settle()
            self._completion.finish_if_done()
        self._report_wait()
        return self._writer.change()

    def _take_after_end(self, event: RunInput) -> bool:
        """Handle an event about a run that has ended; return whether the run goes on."""
        if isinstance(event, ResumeRequested) and self.record.state is not RunState.SUCCEEDED:
            self._recalls.resume(event.detail)
        elif isinstance(event, ForgetDue) and not self.record.forgotten:
            self._completion.forget()
        return self.record.state not in RUN_ENDS

    def _take_timers(self) -> None:
        """Handle the timers and the time limits that are due. The messages of the step came first: a node that has ended is in time."""
        self._timeouts.keep()
        for kind, node in self._timers.take_due(self._writer.now_ms):
            if kind is TimerKind.CLOSE:
                self._timeouts.close(node)
            elif kind is TimerKind.WAKE:
                self._control.wake(node)

    def next_timer_ms(self) -> int | None:
        """Return when the run needs a step at the latest, since the epoch; None: only events concern it."""
        if self.record.state in RUN_ENDS:
            return None
        if self._control.has_to_begin():
            return 0
        due = [due_ms for due_ms in (self._timers.next_ms(), self._timeouts.next_ms()) if due_ms is not None]
        return min(due, default=None)

    def _take(self, event: RunInput) -> None:
        if isinstance(event, NodesPlaced):
            self._placing.place(event)
        elif isinstance(event, CacheAnswered):
            self._caching.take(event)
        elif isinstance(event, CancelRequested):
            self._completion.cancel(event.detail, also_cleanup=event.also_cleanup)
        elif isinstance(event, SignalSent):
            self._control.signal(event.name, event.value)
        elif isinstance(event, MeshGone | MeshClosed):
            self._take_mesh(event)
        elif isinstance(event, StagesMoved):
            self._withdrawals.move(event.stages)
        elif isinstance(event, StartsAllowed):
            self._allowed = event
            self._withdrawals.keep_to(event)
        elif isinstance(event, WaitsLimited):
            self._withdrawals.refuse_overdue(event.longest_ms)
        elif not isinstance(event, TimersDue | ResumeRequested | ForgetDue):  # Every step takes the timers; the others are for ended runs.
            self._reports.take(event)

    def _take_mesh(self, event: MeshGone | MeshClosed) -> None:
        if isinstance(event, MeshGone):
            self._withdrawals.lose_mesh(event.mesh, event.reason)
        else:
            self._withdrawals.leave_mesh(event.mesh)

    def _report_wait(self) -> None:
        """Copy the reason of the first blocked node or waiting stage to the run, for the one line per run that `runs` shows."""
        if self.record.state is not RunState.RUNNING or self._run_status.has_expired():
            return
        waiting: list[NodeRecord | StageRecord] = [*self._writer.blocked]
        waiting += self._control.waiting()
        waiting += self._caching.waiting()
        waiting += [stage for stage in self.record.stages.values() if stage.state in NOT_BEGUN and stage.detail]
        if not any(stage.state is StageState.RUNNING for stage in self.record.stages.values()):
            waiting.sort(key=lambda one: one.reason not in PASSING)  # Stable: a reason that passes goes first.
            if waiting and waiting[0].reason not in PASSING and self._goes_on_unseen():
                waiting = []
        self.record.reason, self.record.detail = (waiting[0].reason, waiting[0].detail) if waiting else (None, "")

    def _goes_on_unseen(self) -> bool:
        """Return whether a part of the run is about to be considered by its mesh, or waits for its retry."""
        if any(stage.state is StageState.QUEUED and not stage.detail for stage in self.record.stages.values()):
            return True
        retried = (row for row, rare in self.record.nodes.rare.items() if rare.timers.get(TimerKind.RETRY, 0) > self._writer.now_ms)
        return any(kept.state is NodeState.WAITING and kept.stage is None for kept in map(self.record.nodes.at, retried))

    def outbox(self) -> tuple[Decision, ...]:
        """Return the decisions of the last commit, for a record that was loaded."""
        stages, dispatch = self.record.stages, self._dispatch
        return tuple(
            dispatch.decision(stages[each.stage], each.preemption) if isinstance(each, SendAgain) else each for each in self.record.outbox
        )

    # -- what others ask -----------------------------------------------------------------------------------------------

    def unplaced(self, now_ms: int) -> tuple[NodeId, ...]:
        """Return the nodes to route, in topological order; none while the run stops.

        A node that waits for its retry is left out, with all its descendants. A stage made without such a node could contain both an
        ancestor and a descendant of it, and the two stages would wait for each other.
        """
        return self._placing.unplaced(now_ms)

    def lookups(self, *, again: bool = False) -> dict[NodeId, Lookup]:
        """Return what to ask the cache about nodes that could start.

        Args:
            again: Also about the nodes that wait for the value of another one.
        """
        return self._caching.lookups(again=again)

    def changes_node(self, node: NodeId, answer: CacheAnswer) -> bool:
        """Return whether an answer of the cache about the node differs from what the record has."""
        return self._caching.changes_node(node, answer)

    def overdue(self, longest_ms: int, now_ms: int) -> tuple[NodeId, ...]:
        """Return the nodes that have been ready for longer than `longest_ms` and still wait at the root or in the queue of a mesh."""
        return self._withdrawals.overdue(longest_ms, now_ms)

    def mesh_of(self, node: NodeId) -> MeshId | None:
        """Return the present or planned mesh of the node."""
        return self.record.nodes[node].mesh

    def value_at(self, node: NodeId) -> MeshId | None:
        """Return the only mesh that has the node's value, because the value is not stored; None if any mesh can get it."""
        return self._run_status.value_at(node)

    def size_of(self, node: NodeId) -> int | None:
        """Return the size of the node's value in bytes; None if it is not computed yet, or was never stored."""
        stored = self.record.nodes[node].stored
        return None if stored is None else stored.size_bytes
