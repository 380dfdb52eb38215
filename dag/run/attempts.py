"""Retries of nodes after a failed or lost attempt.

Errors, lost meshes and dead workers have separate counters. An error of the function uses up the retries that its author gave, and so does
a death by lack of memory while there are some. The federation limits the other two.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import replace
from typing import cast

from dag.run.completion import Completion
from dag.run.events import NodeGrown
from dag.run.node_facts import TimerKind
from dag.run.node_table import NodeRecord
from dag.run.recalls import Recalls
from dag.run.retrying import RetryRules, is_never_retried, is_retried
from dag.run.run_status import RunStatus
from dag.run.runs import DropValue
from dag.run.state_writer import PREEMPTED_COUNT, StateWriter
from dag.run.timers import Timers
from dag.spec.growth import GROWTH_LIMITS
from dag.spec.plans import NodePlan, Plans, with_memory
from mesh.core.counting import counted, times
from mesh.core.ids import NodeId
from mesh.core.reasons import Reason
from mesh.stages.messages import Failure

#: Failures that cost a worker.
_DEATHS = frozenset({Reason.WORKER_LOST, Reason.OUT_OF_MEMORY})
#: Steps of an amount of memory that grows.
_STEP_BYTES = 2**20


class Attempts:
    def __init__(
        self,
        run_status: RunStatus,
        writer: StateWriter,
        recalls: Recalls,
        completion: Completion,
        timers: Timers,
        rules: RetryRules,
    ) -> None:
        self._run_status = run_status
        self._record = run_status.record
        self._writer = writer
        self._recalls = recalls
        self._completion = completion
        self._timers = timers
        self._growing = Growing(run_status)
        self._rules = rules

    def fail(self, node: NodeRecord, failure: Failure) -> None:
        """Handle a failed attempt that the mesh reported."""
        node.failure = failure
        plan = self._run_status.plans[node.node]
        is_of_the_end = self._run_status.is_ending() or failure.reason is Reason.CANCELLED_BY_USER
        if is_of_the_end and self._completion.drop_if_stopping([node]):
            return
        if self._run_status.is_stopping() and not self._run_status.survives(node.node):
            self._completion.fail_for_good(node, failure)
        elif failure.reason is Reason.VALUE_LOST or failure.reason in PREEMPTED_COUNT:
            self.lose(node, failure.reason, failure.message)
        elif failure.reason is not Reason.WORKER_LOST and node.retries_used < plan.retries and is_retried(plan, failure):
            node.retries_used += 1
            grown = self._growing.grow(node) if failure.reason is Reason.OUT_OF_MEMORY else ""
            self._retry(node, failure, failure.message + grown)
        elif failure.reason in _DEATHS and not is_never_retried(plan, failure):
            self.lose_worker(node, failure)
        else:
            self._completion.fail_for_good(node, failure)

    def grow(self, node: NodeRecord, grown: NodeGrown) -> None:
        """Add the nodes that the function returned. The next attempt of the node waits for their value, and runs nowhere."""
        self._writer.decide(DropValue(value=grown.graph))
        if self._completion.drop_if_stopping([node]):
            return
        problem = GROWTH_LIMITS.problem_of(grown.growth, self._record.growths)
        if self._run_status.plans[node.node].cache is not None:
            problem = "is a cached node and returned nodes: leave `cache` out, and give it to the nodes that it returns"
        if problem is not None:
            refused = Failure(reason=Reason.GROWTH_REFUSED, type_name="schedulemesh.GrowthRefused", message=f"{node.node} {problem}")
            self._completion.fail_for_good(node, refused)
            return
        self._writer.drop_checkpoint(node)
        self._writer.grow(grown.growth)
        detail = f"returned {counted(grown.growth.nodes, 'node')}; its value becomes that of {grown.growth.value_of()}"
        self._recalls.restart(node, Reason.GRAPH_GREW, detail)

    def lose_worker(self, node: NodeRecord, failure: Failure) -> None:
        """Retry a node whose worker died, after a wait; fail the node as poison after `kills_max` dead workers.

        Args:
            failure: Its traceback: the last lines that the node printed.
        """
        node.kills += 1
        if is_never_retried(self._run_status.plans[node.node], failure):
            self._completion.fail_for_good(node, failure)
        elif node.kills >= self._rules.kills_max:
            words = f"{counted(node.kills, 'worker')} died under it; last: {failure.message}"
            poison = Failure(reason=Reason.POISON_TASK, type_name="schedulemesh.Poison", message=words, traceback=failure.traceback)
            self._completion.fail_for_good(node, poison)
        else:
            self._retry(node, failure, failure.message)

    def lose(self, node: NodeRecord, reason: Reason, detail: str, *, waits: bool = False) -> None:
        """Retry a node that was lost through no fault of its own, up to `losses_max` times."""
        if reason in PREEMPTED_COUNT:
            self._writer.lose_work(node, self._run_status.plans[node.node].task.resources)
        else:
            node.losses += 1  # A preempted node may run again without limit.
        lost = Failure(reason=reason, type_name="schedulemesh.WorkLost", message=detail)
        if node.losses > self._rules.losses_max:
            self._recalls.restart(node, reason, detail)
            words = f"lost {times(node.losses)} with the mesh or worker that ran it; last: {detail}"
            self._completion.fail_for_good(node, replace(lost, message=words))
        elif waits:
            self._retry(node, lost, detail)
        else:
            self._recalls.restart(node, reason, detail)

    def _retry(self, node: NodeRecord, failure: Failure, detail: str) -> None:
        """Begin a new attempt after a wait that grows with each failure.

        The node fails at once if its `schedule_to_close_s` ends during that wait.
        """
        failures = node.retries_used + node.kills + node.losses
        backoff = self._run_status.plans[node.node].backoff
        wait_ms = self._rules.wait_after_ms(f"{self._record.run}:{node.node}", max(1, failures), backoff)
        due_ms, close_ms = self._writer.now_ms + wait_ms, node.timers.get(TimerKind.CLOSE)
        if close_ms is not None and due_ms >= close_ms:
            words = f"no time is left for another attempt after: {failure.type_name}: {failure.message}"
            late = replace(failure, reason=Reason.SCHEDULE_TO_CLOSE_TIMEOUT, message=words)
            self._completion.fail_for_good(node, late)
            return
        self._recalls.restart(node, failure.reason, f"{detail} (again in {wait_ms / 1000:.1f} s)" if wait_ms else detail)
        if wait_ms:
            self._timers.set(node, TimerKind.RETRY, due_ms)


class Growing:
    """Memory of nodes that ran out of it: their next attempts ask for more.

    The record has the amounts, so that a loaded run continues with them; the plans of the graph follow the record.
    """

    def __init__(self, run_status: RunStatus) -> None:
        self._plans = run_status.plans
        nodes = run_status.record.nodes
        for row, rare in nodes.rare.items():
            if rare.memory_bytes:
                self._put(nodes.names[row], rare.memory_bytes)

    def grow(self, node: NodeRecord) -> str:
        """Let the next attempt of the node ask for more memory; return that in words, or nothing if it does not grow."""
        plan = self._plans[node.node]
        present = (plan.task.gang.bundle if plan.task.gang is not None else plan.task.resources)["memory"]
        grown = -(-int(present * plan.memory_growth) // _STEP_BYTES) * _STEP_BYTES
        if not present or plan.memory_growth <= 1 or grown <= present:
            return ""
        node.memory_bytes = grown
        self._put(node.node, grown)
        return f"; the next attempt asks for {grown // _STEP_BYTES} MiB of memory"

    def _put(self, node: NodeId, memory_bytes: int) -> None:
        if isinstance(self._plans, Plans):
            self._plans.set_memory(node, memory_bytes)
            return
        plan = self._plans[node]
        task = replace(plan.task, **with_memory(plan.task.resources, plan.task.gang, memory_bytes))
        cast(MutableMapping[NodeId, NodePlan], self._plans)[node] = replace(plan, task=task)
