"""Decides nodes of control flow: those that the root does itself, tolerant nodes, and branches that are not taken.

Every step ends with `settle`, which follows from the record alone, so that another coordinator decides the same. A decision may lead to
further ones, so it goes over the nodes until nothing changes. All other nodes are skipped by `Completion` as soon as a need fails.

Values that only the root makes are JSON. The value of a cond is that of its branch: the same stored bytes. The root reads no value: the
node that decides returns true or false, and these are recognized by their hashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dag.run.completion import NULL, Completion
from dag.run.node_facts import TimerKind
from dag.run.node_table import NodeRecord
from dag.run.run_status import RunStatus
from dag.run.state_writer import Deliveries, StateWriter
from dag.run.states import NODE_ENDS, NodeState, RunState
from dag.run.timers import Timers
from dag.spec.control import NULL_BYTES, ON_SUCCESS, Cond, Control, Grown, Sleep, WaitSignal
from dag.spec.control_graph import ControlGraph
from mesh.core.clock import moment
from mesh.core.ids import NodeId
from mesh.core.reasons import Reason
from mesh.core.values import Encoding, StoredValue, json_value
from mesh.stages.messages import Failure

#: JSON that counts as false; all other JSON counts as true.
_FALSE = frozenset(json_value(data).sha256 for data in (b"false", NULL_BYTES, b"0", b"0.0", b"-0.0", b'""', b"[]", b"{}"))


class ControlFlow:
    def __init__(self, run_status: RunStatus, writer: StateWriter, completion: Completion, deliveries: Deliveries, timers: Timers) -> None:
        self._run_status = run_status
        self._record = run_status.record
        self._graph: ControlGraph = run_status.control
        self._writer = writer
        self._completion = completion
        self._deliveries = deliveries
        self._timers = timers

    def signal(self, name: str, value: StoredValue) -> None:
        """Keep a signal at the nodes that wait for it, now or later; the first one counts."""
        for node, control in self._graph.controls.items():
            kept = self._record.nodes[node]
            if isinstance(control, WaitSignal) and control.name == name and kept.state not in NODE_ENDS and kept.stored is None:
                kept.stored = value

    def settle(self) -> None:
        """Decide all that follows from the ends of nodes, from signals and from the time."""
        if not self._graph or not self._writer.open:
            return
        while self._skip_untaken() | self._settle_watched():
            pass

    def has_to_begin(self) -> bool:
        """Return whether a step would begin a wait, or end one, though no event has come: the first nodes of a graph may be waits."""
        waits = [
            node
            for node, control in self._graph.controls.items()
            if not isinstance(control, (Cond, Grown)) and self._record.nodes[node].state is NodeState.WAITING and not self._has_begun(node)
        ]
        if not waits:
            return False
        taken = self._taken()
        return any(self._is_ready(node, taken) for node in waits)

    def wake(self, kept: NodeRecord) -> None:
        """End the wait of a node whose time has come."""
        control = self._graph.controls.get(kept.node)
        if kept.state is not NodeState.WAITING or not self._has_begun(kept.node):
            return
        if isinstance(control, WaitSignal):
            words = f"signal {control.name} did not come within {(control.timeout_ms or 0) / 1000:g} s"
            failure = Failure(reason=Reason.SIGNAL_TIMED_OUT, type_name="schedulemesh.SignalTimedOut", message=words)
            self._completion.fail_for_good(kept, failure)
        else:
            self._succeed(kept, NULL, "")

    def waiting(self) -> list[NodeRecord]:
        """Return the nodes that wait for a time or a signal."""
        found = (self._record.nodes[node] for node in self._graph.controls)
        return [kept for kept in found if kept.state is NodeState.WAITING and self._has_begun(kept.node)]

    def held(self) -> set[NodeId]:
        """Return the nodes that no mesh may get yet; their followers are to be held too."""
        if not self._graph:
            return set()
        states = self._record.nodes
        held = {node for node in self._graph.controls if states[node].state not in NODE_ENDS}
        held |= {node for node in self._graph.whens if not self._has_order(node)}
        if self._graph.head_of:
            taken = self._taken()
            held |= {node for node, head in self._graph.head_of.items() if taken[head] is not True and states[node].state not in NODE_ENDS}
        return held

    # -- branches ------------------------------------------------------------------------------------------------------

    def _taken(self) -> dict[NodeId, bool | None]:
        """Return whether each branch is taken by one of its conds; None: not decided yet."""
        taken: dict[NodeId, bool | None] = {}
        for branch, conds in self._graph.conds_of.items():
            answers = [self._is_taken(branch, cond, taken) for cond in conds]
            taken[branch] = True if True in answers else None if None in answers else False
        return taken

    def _is_taken(self, branch: NodeId, cond: NodeId, taken: dict[NodeId, bool | None]) -> bool | None:
        head = self._graph.head_of.get(cond)
        around = True if head is None else taken[head]
        if around is not True:
            return around
        choice = self._choice(cond)
        return None if choice is None else branch in choice

    def _choice(self, cond: NodeId) -> tuple[NodeId, ...] | None:
        """Return the branch that the cond takes, if any; None: not decided yet."""
        control = self._graph.controls[cond]
        assert isinstance(control, Cond)  # noqa: S101  narrows the type
        test = self._record.nodes[control.test]
        if test.state not in NODE_ENDS:
            return () if self._record.nodes[cond].state in NODE_ENDS else None
        answer = _truth(test)
        if answer is None:
            return ()
        if answer:
            return (control.then,)
        return () if control.otherwise is None else (control.otherwise,)

    def _skip_untaken(self) -> bool:
        """Skip the nodes that only branches need which are not taken."""
        if not self._graph.head_of:
            return False
        taken, has_changed = self._taken(), False
        for node, head in self._graph.head_of.items():
            kept = self._record.nodes[node]
            if taken[head] is False and kept.state in (NodeState.WAITING, NodeState.BLOCKED) and not kept.stage:
                self._completion.skip(kept, Reason.BRANCH_NOT_TAKEN, ())
                has_changed = True
        return has_changed

    # -- nodes, in topological order -----------------------------------------------------------------------------------

    def _settle_watched(self) -> bool:
        taken = self._taken()  # A branch that is taken during this pass counts in the next one.
        return sum(self._settle(node, taken) for node in self._graph.watched) > 0

    def _settle(self, node: NodeId, taken: Mapping[NodeId, bool | None]) -> bool:
        """Decide one node; return whether it has changed."""
        kept, control = self._record.nodes[node], self._graph.controls.get(node)
        if kept.state not in (NodeState.WAITING, NodeState.BLOCKED, NodeState.ASSIGNED):
            return False
        if isinstance(control, Cond):
            return self._settle_cond(kept, control)
        if isinstance(control, Grown):
            return self._settle_grown(kept, control)
        missing = self._missing(node)
        if missing:
            self._skip_for(kept, missing)
            return True
        if self._graph.when_of(node) == "failure" and self._has_order(node) and not any(map(self._is_failed, self._order_of(node))):
            self._completion.skip(kept, Reason.BRANCH_NOT_TAKEN, ())
            return True
        return control is not None and self._is_ready(node, taken) and self._wait(kept, control)

    def _settle_cond(self, kept: NodeRecord, cond: Cond) -> bool:
        test = self._record.nodes[cond.test]
        missing = [need for need in (cond.test, *self._order_of(kept.node)) if self._has_ended_without_value(need)]
        if missing:
            self._skip_for(kept, missing)
            return True
        if test.state is not NodeState.SUCCEEDED or not all(map(self._run_status.has_succeeded, self._order_of(kept.node))):
            return False
        if _truth(test) is None:
            words = f"node {cond.test} decides between branches, and returned neither true nor false; let it return bool(…)"
            failure = Failure(reason=Reason.CONDITION_UNDECIDED, type_name="schedulemesh.ConditionUndecided", message=words)
            self._completion.fail_for_good(kept, failure)
            return True
        choice = self._choice(kept.node)
        if not choice:
            self._succeed(kept, NULL, "no branch was taken")
            return True
        branch = self._record.nodes[choice[0]]
        if branch.state is NodeState.SUCCEEDED and branch.stored is not None:
            self._succeed(kept, branch.stored, f"took {branch.node}")
        elif self._has_ended_without_value(branch.node):
            self._skip_for(kept, [branch.node])
        else:
            return False
        return True

    def _settle_grown(self, kept: NodeRecord, grown: Grown) -> bool:
        source = self._record.nodes[grown.value_of]
        if self._has_ended_without_value(source.node):
            self._skip_for(kept, [source.node])
        elif source.state is NodeState.SUCCEEDED and source.stored is not None:
            self._succeed(kept, source.stored, f"value of {source.node}")
        else:
            return False
        return True

    def _wait(self, kept: NodeRecord, control: Control) -> bool:
        """Begin the wait of a node whose needs are met, or end it by its signal; return whether the node has changed."""
        has_begun = self._has_begun(kept.node)
        if self._record.state is RunState.PENDING:
            self._writer.run(RunState.RUNNING)
        if isinstance(control, WaitSignal) and kept.stored is not None:
            self._succeed(kept, kept.stored, f"signal {control.name}")
        elif has_begun:
            return False
        elif isinstance(control, WaitSignal):
            until = f", until {moment(self._set_timer(kept, control.timeout_ms))}" if control.timeout_ms is not None else ""
            self._note(kept, Reason.WAITING_FOR_SIGNAL, f"signal {control.name}{until}")
        elif isinstance(control, Sleep):
            self._note(kept, Reason.SLEEPING, f"until {moment(self._set_timer(kept, control.sleep_ms))}")
        return True

    def _set_timer(self, kept: NodeRecord, after_ms: int) -> int:
        due_ms = self._writer.now_ms + after_ms
        self._timers.set(kept, TimerKind.WAKE, due_ms)
        return due_ms

    def _note(self, kept: NodeRecord, reason: Reason, detail: str) -> None:
        kept.detail = detail
        self._writer.node(kept, NodeState.WAITING, reason, detail)

    def _succeed(self, kept: NodeRecord, value: StoredValue, detail: str) -> None:
        kept.stored, kept.exported = value, True
        self._timers.drop(kept, TimerKind.WAKE)
        kept.finished_ms = self._writer.now_ms
        kept.detail = detail
        self._writer.node(kept, NodeState.SUCCEEDED, detail=detail)
        for stage in self._run_status.waiting_stages(kept.node):
            self._deliveries.deliver(stage, kept)

    def _skip_for(self, kept: NodeRecord, missing: Iterable[NodeId]) -> None:
        """End a node whose needs have ended without a value, as they did: skipped with all roots, or cancelled."""
        needs = [self._record.nodes[need] for need in missing]
        roots = tuple(dict.fromkeys(root for need in needs for root in ((need.node,) if need.state is NodeState.FAILED else need.roots)))
        if kept.state is NodeState.ASSIGNED and kept.stage is not None:
            for need in needs:
                if need.stage != kept.stage:
                    self._deliveries.withhold(self._record.stages[kept.stage], need.node)
        if roots or not any(need.state is NodeState.CANCELLED for need in needs):
            self._completion.skip(kept, Reason.UPSTREAM_FAILED if roots else Reason.BRANCH_NOT_TAKEN, roots)
        else:
            self._completion.skip(kept, Reason.CANCELLED_BY_USER, (), NodeState.CANCELLED)

    # -- what is there -------------------------------------------------------------------------------------------------

    def _order_of(self, node: NodeId) -> tuple[NodeId, ...]:
        return self._run_status.plans[node].task.after

    def _has_begun(self, node: NodeId) -> bool:
        return self._record.nodes[node].reason in (Reason.SLEEPING, Reason.WAITING_FOR_SIGNAL)

    def _has_ended_without_value(self, node: NodeId) -> bool:
        state = self._record.nodes[node].state
        return state in NODE_ENDS and state is not NodeState.SUCCEEDED

    def _is_failed(self, node: NodeId) -> bool:
        """Return whether the node failed, or was skipped because of a failure."""
        kept = self._record.nodes[node]
        return kept.state is NodeState.FAILED or (kept.state is NodeState.SKIPPED and bool(kept.roots))

    def _has_order(self, node: NodeId) -> bool:
        """Return whether the nodes that this one waits for in order have ended as it needs them to."""
        order = self._order_of(node)
        if self._graph.when_of(node) == ON_SUCCESS:
            return all(map(self._run_status.has_succeeded, order))
        return all(self._record.nodes[need].state in NODE_ENDS for need in order)

    def _is_ready(self, node: NodeId, taken: Mapping[NodeId, bool | None]) -> bool:
        head = self._graph.head_of.get(node)
        if head is not None and taken[head] is not True:
            return False
        return all(map(self._run_status.has_succeeded, self._run_status.plans[node].task.inputs)) and self._has_order(node)

    def _missing(self, node: NodeId) -> list[NodeId]:
        """Return the needs that have ended without what this node needs of them."""
        task = self._run_status.plans[node].task
        needs = (*task.inputs, *task.after) if self._graph.when_of(node) == ON_SUCCESS else task.inputs
        return [need for need in needs if self._has_ended_without_value(need)]


def _truth(kept: NodeRecord) -> bool | None:
    """Return what a node has decided; None: it did not succeed, or its value is not JSON."""
    if kept.state is not NodeState.SUCCEEDED or kept.stored is None or kept.stored.encoding is not Encoding.JSON:
        return None
    return kept.stored.sha256 not in _FALSE
