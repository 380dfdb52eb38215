"""Time limits that the root keeps: the wait of an attempt, all of a node's attempts, and the whole run.

The limit on the run time of an attempt, `start_to_close_s`, is kept where the attempt runs: at the mesh.
While the run stops, only the nodes that run nevertheless, the cleanup, have limits.

The wait of an attempt begins when the node could start but for room and quota: `waits_since_ms`. The time of a node begins when all that it
needs has succeeded for the first time, and is a timer of the node. The time of the run begins with its submission, or when it is resumed.

Source: the timeouts of Temporal's activities, whose names they have.
"""

from __future__ import annotations

import numpy as np

from dag.run.completion import Completion
from dag.run.node_facts import Rows, TimerKind
from dag.run.node_table import NodeRecord
from dag.run.recalls import Recalls
from dag.run.run_status import NOT_BEGUN, RunStatus
from dag.run.runs import StopNode
from dag.run.state_writer import StateWriter
from dag.run.states import NODE_ENDS, NodeState, StageState
from dag.run.timers import Timers
from dag.run.withdrawals import Withdrawals
from dag.spec.plans import timed_in
from mesh.core.counting import counted
from mesh.core.reasons import Reason
from mesh.stages.messages import Failure

_NOT_STARTED = (NodeState.WAITING, NodeState.BLOCKED, NodeState.ASSIGNED)


class Timeouts:
    """Time limits of one run.

    Args:
        deadline_ms: Limit on the time of the run; None: no limit.
    """

    def __init__(
        self,
        run_status: RunStatus,
        writer: StateWriter,
        timers: Timers,
        recalls: Recalls,
        completion: Completion,
        withdrawals: Withdrawals,
        *,
        deadline_ms: int | None,
    ) -> None:
        self._run_status = run_status
        self._record = run_status.record
        self._writer = writer
        self._timers = timers
        self._recalls = recalls
        self._completion = completion
        self._withdrawals = withdrawals
        self._deadline_ms = deadline_ms
        self._of_node = timed_in(run_status.plans)
        nodes = self._record.nodes
        self._to_start = nodes.rows(node for node, limits in self._of_node.items() if limits.schedule_to_start_ms is not None)
        self._to_close = nodes.rows(node for node, limits in self._of_node.items() if limits.schedule_to_close_ms is not None)

    def next_ms(self) -> int | None:
        """Return when the next limit is reached; None: no limit is running."""
        due = [self._waits_until(row) for row in self._waiting().tolist()]
        if self._deadline_ms is not None and not self._run_status.is_winding_down():
            due.append(self._record.began_ms + self._deadline_ms)
        return min(due, default=None)

    # -- at the begin of a step ----------------------------------------------------------------------------------------

    def keep(self) -> None:
        """End what has reached a limit of its wait, or of the run."""
        is_stopping = self._run_status.is_winding_down()
        if self._deadline_ms is not None and not is_stopping and self._writer.now_ms >= self._record.began_ms + self._deadline_ms:
            self._completion.expire(f"the run did not end within {self._deadline_ms / 1000:g} s")
        for row in self._waiting().tolist():
            node = self._record.nodes.at(row)
            if self._waits_until(row) <= self._writer.now_ms and node.state in _NOT_STARTED:
                self._refuse(node)

    def close(self, node: NodeRecord) -> None:
        """Fail a node whose attempts have taken too long together."""
        if node.state in NODE_ENDS or not self._may_go_on(node):
            return
        limit_ms = self._of_node[node.node].schedule_to_close_ms or 0
        last = f"; last: {node.failure.type_name}: {node.failure.message}" if node.failure is not None else ""
        words = f"did not succeed within {limit_ms / 1000:g} s and {counted(node.attempt, 'attempt')}{last}"
        self._end(node, Failure(reason=Reason.SCHEDULE_TO_CLOSE_TIMEOUT, type_name="schedulemesh.ScheduleToCloseTimeout", message=words))

    def _refuse(self, node: NodeRecord) -> None:
        stage = self._record.stages[node.stage] if node.stage is not None else None
        reason, detail = (stage.reason, stage.detail) if stage is not None and stage.reason is not None else (node.reason, node.detail)
        last = f" (last: {reason.value}{f', {detail}' if detail else ''})" if reason is not None else ""
        limit_ms = self._of_node[node.node].schedule_to_start_ms or 0
        words = f"waited {(self._writer.now_ms - node.waits_since_ms) / 1000:.1f} s to start, {limit_ms / 1000:g} s at most{last}"
        self._end(node, Failure(reason=Reason.SCHEDULE_TO_START_TIMEOUT, type_name="schedulemesh.ScheduleToStartTimeout", message=words))

    def _end(self, node: NodeRecord, failure: Failure) -> None:
        """Fail the node for good, and let its mesh stop it."""
        stage = self._record.stages[node.stage] if node.stage is not None else None
        self._completion.fail_for_good(node, failure)
        if stage is None or not self._run_status.may_be_sent(stage):
            return
        if stage.state in NOT_BEGUN:
            self._withdrawals.withdraw(stage, failure.reason)
        elif stage.state is StageState.RUNNING:
            self._writer.decide(StopNode(stage=stage.stage, node=node.node))

    # -- at the end of a step ------------------------------------------------------------------------------------------

    def arm(self) -> None:
        """Start the time of nodes that could start for the first time."""
        if not len(self._to_close):
            return
        nodes = self._record.nodes
        rows = self._ready(self._to_close[~nodes.are(nodes.columns.state[self._to_close], NODE_ENDS)])
        for node in map(nodes.at, rows.tolist()):
            if TimerKind.CLOSE not in node.timers and self._may_go_on(node):
                limit_ms = self._of_node[node.node].schedule_to_close_ms or 0
                self._timers.set(node, TimerKind.CLOSE, self._writer.now_ms + limit_ms)

    def _waiting(self) -> Rows:
        """Return the nodes with a limit on their wait that could start but for room and quota."""
        nodes, rows = self._record.nodes, self._to_start
        if not len(rows):
            return rows
        rows = rows[nodes.are(nodes.columns.state[rows], _NOT_STARTED) & (nodes.columns.waits_since_ms[rows] != 0)]
        if self._run_status.is_winding_down():
            rows = np.array([row for row in rows.tolist() if self._run_status.survives(nodes.names[row])], dtype=np.intp)
        return self._ready(rows)

    def _may_go_on(self, node: NodeRecord) -> bool:
        return not self._run_status.is_winding_down() or self._run_status.survives(node.node)

    def _waits_until(self, row: int) -> int:
        nodes = self._record.nodes
        return nodes.columns.waits_since_ms.item(row) + (self._of_node[nodes.names[row]].schedule_to_start_ms or 0)

    def _ready(self, rows: Rows) -> Rows:
        """Return those of the nodes whose needs have all succeeded."""
        nodes, edges = self._record.nodes, self._run_status.edges.to(rows)
        is_late = ~nodes.are(nodes.columns.state[edges.rows], (NodeState.SUCCEEDED,))
        if self._run_status.control.whens:  # A tolerant node needs only the ends of those that it waits for.
            is_tolerant = ~edges.is_read & self._run_status.control.is_tolerant(rows[edges.places], nodes.names)
            is_late &= ~is_tolerant | ~nodes.are(nodes.columns.state[edges.rows], NODE_ENDS)
        late = np.unique(edges.places[is_late])
        return np.delete(rows, late)
