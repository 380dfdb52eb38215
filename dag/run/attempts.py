"""Retries of nodes after a failed or lost attempt.

Errors, lost meshes and dead workers have separate counters. An error of the function uses up the retries that its author gave.
The federation limits the other two.
"""

from __future__ import annotations

from dag.run.completion import Completion
from dag.run.node_table import NodeRecord
from dag.run.recalls import Recalls
from dag.run.retrying import RetryRules
from dag.run.run_status import RunStatus
from dag.run.state_writer import PREEMPTED_COUNT, StateWriter
from dag.run.states import RunState
from dag.spec.plans import NodePlan
from mesh.core.counting import counted, times
from mesh.core.reasons import Reason
from mesh.stages.messages import Failure


class Attempts:
    def __init__(self, run_status: RunStatus, writer: StateWriter, recalls: Recalls, completion: Completion, rules: RetryRules) -> None:
        self._run_status = run_status
        self._record = run_status.record
        self._writer = writer
        self._recalls = recalls
        self._completion = completion
        self._rules = rules

    def fail(self, node: NodeRecord, failure: Failure) -> None:
        """Handle a failed attempt that the mesh reported."""
        node.failure = failure
        is_of_the_end = self._record.state is RunState.CANCELLING or failure.reason is Reason.CANCELLED_BY_USER
        if is_of_the_end and self._completion.drop_if_stopping([node]):
            return
        if self._run_status.is_stopping():
            self._completion.fail_for_good(node, failure)
        elif failure.reason is Reason.WORKER_LOST:
            self.lose_worker(node, failure.message)
        elif failure.reason is Reason.VALUE_LOST or failure.reason in PREEMPTED_COUNT:
            self.lose(node, failure.reason, failure.message)
        elif node.retries_used < self._run_status.plans[node.node].retries and _is_retried(self._run_status.plans[node.node], failure):
            node.retries_used += 1
            self._retry(node, failure.reason, failure.message)
        else:
            self._completion.fail_for_good(node, failure)

    def lose_worker(self, node: NodeRecord, detail: str) -> None:
        """Retry a node whose worker died, after a wait; fail the node as poison after `kills_max` dead workers."""
        node.kills += 1
        if node.kills >= self._rules.kills_max:
            words = f"{counted(node.kills, 'worker')} died under it; last: {detail}"
            self._completion.fail_for_good(node, Failure(reason=Reason.POISON_TASK, type_name="schedulemesh.Poison", message=words))
        else:
            self._retry(node, Reason.WORKER_LOST, detail)

    def lose(self, node: NodeRecord, reason: Reason, detail: str, *, waits: bool = False) -> None:
        """Retry a node that was lost through no fault of its own, up to `losses_max` times."""
        node.losses += reason not in PREEMPTED_COUNT  # A preempted node may run again without limit.
        (self._retry if waits else self._recalls.restart)(node, reason, detail)
        if node.losses > self._rules.losses_max:
            words = f"lost {times(node.losses)} with the mesh or worker that ran it; last: {detail}"
            self._completion.fail_for_good(node, Failure(reason=reason, type_name="schedulemesh.WorkLost", message=words))

    def _retry(self, node: NodeRecord, reason: Reason, detail: str) -> None:
        """Begin a new attempt after a wait that grows with each failure."""
        failures = node.retries_used + node.kills + node.losses
        wait_ms = self._rules.wait_after_ms(f"{self._record.run}:{node.node}", max(1, failures))
        self._recalls.restart(node, reason, f"{detail} (again in {wait_ms / 1000:.1f} s)" if wait_ms else detail)
        node.not_before_ms = self._writer.now_ms + wait_ms


def _is_retried(plan: NodePlan, failure: Failure) -> bool:
    """Return whether the node's retries apply to this failure.

    `retry_exceptions` limits errors of the function only. A failure of the mesh, such as to write the value, is always retried.
    """
    if failure.reason is Reason.OUTSIDE_GROUP:  # The code asks for the same again.
        return False
    if plan.retry_exceptions is None or failure.reason is not Reason.USER_ERROR:
        return True
    return not plan.retry_exceptions.isdisjoint((failure.type_name, *failure.bases))
