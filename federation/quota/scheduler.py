"""The state machine of quota: workloads are submitted, run, are preempted and end; a round decides which ones start and stop.

Pure: the same calls with the same times give the same decisions. A round copies nothing; trials are undone.

A round, at `now_ms`:

1. Drop expired holds. Admit the workloads with a hold whose victims are gone.
2. Decide first about workloads beyond their queue's `max_wait`, and reserve all room that comes free for them.
3. Pass over the heads of all queues (`QuotaCycle`).

Room freed by an eviction is charged to the preemptor from the decision on (`Hold`), so that no other workload gets it; after
`reservation_timeout_ms` the room is free for all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from federation.errors import UnknownTenant
from federation.quota.cycle import QuotaCycle
from federation.quota.decisions import Admit, Evict, Preempt, QuotaDecision, Wait
from federation.quota.flavors import Assignment, Mode, assignment_without
from federation.quota.forest import OWN_LEAF, QuotaForest
from federation.quota.ledger import Amounts
from federation.quota.limits import Gate, RunningCounts, queue_gate, running_gate
from federation.quota.past_use import PastUse
from federation.quota.pending import PendingQueue
from federation.quota.policies import MESH, QueueSettings, Rules
from federation.quota.preemption.candidates import Victim
from federation.quota.preemption.eviction_order import EvictionOrder
from federation.quota.preemption.quota_reductions import reduction_victims
from federation.quota.snapshot import QuotaSnapshot
from federation.quota.workloads import Running, Workload
from mesh.core.reasons import Reason
from mesh.errors import LedgerError


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Room held for a preemptor until its victims have stopped and it is admitted."""

    workload: Workload
    assignment: Assignment
    victims: tuple[str, ...]
    until_ms: int


class QuotaScheduler:
    """State of quota: running and waiting workloads.

    `settings` are by node: policies and flavors apply to queues, limits and stops to all below a node.
    """

    def __init__(self, forest: QuotaForest, settings: Mapping[int, QueueSettings], rules: Rules = MESH) -> None:
        self.rules = rules
        self.order = EvictionOrder()
        self.past = PastUse(half_life_ms=rules.history_half_life_ms)
        self.holds: dict[str, Hold] = {}
        self.gates: dict[str, Gate] = {}  #: Of workloads that the last round did not try.
        self.waits: dict[str, Wait] = {}  #: Last decision about each waiting workload.
        self._queues: defaultdict[int, PendingQueue] = defaultdict(PendingQueue)
        self._where: dict[str, int] = {}  #: Workload to its queue, waiting or running.
        self._freed: set[int] = set()  #: Roots where room may have come free since the last round.
        self._blocked: list[tuple[int, Amounts]] = []  #: Charges for overdue workloads, in this round only.
        self._ripe: list[tuple[int, int]] = []  #: When running work stops being protected, and its root.
        self._adopt(forest, settings)

    def _adopt(self, forest: QuotaForest, settings: Mapping[int, QueueSettings]) -> None:
        self.forest = forest
        self.settings = {node: settings.get(node, QueueSettings()) for node in range(len(forest.names))}
        self.snapshot = QuotaSnapshot(forest, self.rules, self.settings, displaces=self.order.displaced)
        self.counts = RunningCounts(forest)

    # -- what happens ----------------------------------------------------------------------------------------------------

    def submit(self, workload: Workload) -> None:
        """Queue the workload.

        Raises:
            UnknownTenant: There is no such queue.
            LedgerError: A workload of this id is waiting or running already.
        """
        node = self._new(workload)
        self._queues[node].add(workload._replace(queue=self.forest.names[node]))

    def restore(self, running: Running) -> None:
        """Add a workload that held quota before a restart, whatever the present limits. Raises as `submit`."""
        node = self._new(running.workload)
        self._start(running._replace(workload=running.workload._replace(queue=self.forest.names[node])))

    def _new(self, workload: Workload) -> int:
        node = self.queue_node(workload.queue)
        if workload.workload in self._where:
            raise LedgerError(f"workload {workload.workload} is waiting or running already")
        self._where[workload.workload] = node
        return node

    def end(self, workload: str, now_ms: int) -> None:
        """Remove a workload that has ended or was withdrawn, and free its quota.

        Raises:
            LedgerError: No workload of this id is waiting or running.
        """
        node = self._node_of(workload)
        self._at(now_ms)
        if workload in self._queues[node]:
            self._drop_hold(workload)
            self._queues[node].remove(workload)
        else:
            self._stop(self.snapshot.running[node][workload])
        del self._where[workload]
        self._forget(workload)
        self.order.forget(workload)

    def stopped(self, workload: str, now_ms: int) -> None:
        """Free the quota of a preempted workload that has stopped, and queue it again at its old place. Raises as `end`."""
        node = self._node_of(workload)
        if workload not in self.snapshot.running.get(node, {}):
            raise LedgerError(f"workload {workload} is not running")
        self._at(now_ms)
        running = self.snapshot.running[node][workload]
        self._stop(running)
        self._queues[node].add(running.workload)

    def reshape(self, forest: QuotaForest, settings: Mapping[int, QueueSettings], now_ms: int) -> list[QuotaDecision]:
        """Apply other limits, parents and tenants. Running work continues, unless its queue evicts on a quota reduction.

        Holds are dropped, since they were computed from the old limits.

        Raises:
            UnknownTenant: A tenant with work is not in the new forest. Nothing has changed.
        """
        works = [running for several in self.snapshot.running.values() for running in several.values()]
        waiting = [workload for queue in self._queues.values() for workload in queue]
        renamed = {}
        for queue in {workload.queue for workload in (*waiting, *(running.workload for running in works))}:
            renamed[queue] = forest.names[_queue_in(forest, queue.removesuffix(OWN_LEAF))]
        self._at(now_ms)
        before = self.forest
        self._adopt(forest, settings)
        self._at(now_ms)
        self.past.move(before, forest)
        self._queues.clear()
        self._where.clear()
        self._ripe.clear()
        self.holds.clear()
        for running in works:
            self.restore(running._replace(workload=running.workload._replace(queue=renamed[running.workload.queue])))
        for workload in waiting:
            self.submit(workload._replace(queue=renamed[workload.queue]))
        return self._evict(reduction_victims(self.snapshot))

    # -- a round ---------------------------------------------------------------------------------------------------------

    def round(self, now_ms: int) -> list[QuotaDecision]:
        """Decide which workloads start and stop now, and why the others of this round wait.

        The conformance cases and the laws run these rounds, over the same search and order as the planner. In a federation the planner
        decides instead (ADR 0037), and explanations only read the state.
        """
        self._at(now_ms)
        decisions: list[QuotaDecision] = [*self._drained(), *self._expired(), *self._kept_holds()]
        self._unpark()
        self.gates.clear()
        first = self._overdue()
        decisions += first
        decisions += self._pass(list(self._heads({decision.workload for decision in first})))
        for node, amounts in self._blocked:
            self.snapshot.discharge(node, amounts)
        self._blocked.clear()
        self.snapshot.forget_log()
        return decisions

    def waiting(self, queue: str) -> Iterator[Workload]:
        """Return the waiting workloads of a queue, in order. Raises UnknownTenant."""
        return iter(self._queues[self.queue_node(queue)])

    def is_parked(self, workload: str) -> bool:
        """Return whether the workload is skipped until something changes. Raises LedgerError."""
        return self._queues[self._node_of(workload)].is_parked(workload)

    def find(self, workload: str) -> Workload:
        """Return the workload, waiting or running. Raises LedgerError."""
        node = self._node_of(workload)
        running = self.snapshot.running.get(node, {}).get(workload)
        return running.workload if running is not None else self._queues[node].get(workload)

    def _heads(self, seen: set[str]) -> Iterator[Workload]:
        """Yield for each queue the first workload that may be tried and was not decided in this round."""
        for node in sorted(self._queues):
            queue = self._queues[node]
            if not queue:
                continue
            gate = queue_gate(self.forest, self.settings, node, self.snapshot.now_ms)
            if gate is not None:
                self._close(queue, gate)
                continue
            head = self._head(node, seen)
            if head is not None:
                yield head

    def _head(self, node: int, seen: set[str]) -> Workload | None:
        for workload in self._queues[node].ready():
            if workload.workload in seen or workload.workload in self.holds:
                if self.settings[node].is_strict:
                    return None
                continue
            gate = running_gate(self.counts, self.settings, workload)
            if gate is None:
                return workload
            self.gates[workload.workload] = gate
            if self.settings[node].is_strict or gate.reason is Reason.RUNNING_LIMIT:
                return None
        return None

    def _close(self, queue: PendingQueue, gate: Gate) -> None:
        for workload in queue:
            self.gates[workload.workload] = gate

    def _pass(self, heads: list[Workload]) -> list[QuotaDecision]:
        mark = self.snapshot.mark()
        decided = QuotaCycle(self.snapshot, self.past).run(heads)
        self.snapshot.undo(mark)
        decisions: list[QuotaDecision] = []
        for decision in decided:
            gate = running_gate(self.counts, self.settings, self.find(decision.workload))
            if gate is not None and not isinstance(decision, Wait):  # Other admissions of this pass have reached the limit.
                self.gates[decision.workload] = gate
                continue
            decisions.append(self._carried_out(decision))
        return decisions

    def _carried_out(self, decision: QuotaDecision) -> QuotaDecision:
        node = self._where[decision.workload]
        queue = self._queues[node]
        if isinstance(decision, Admit):
            self._admit(queue.remove(decision.workload), decision.assignment)
        elif isinstance(decision, Preempt):
            self._preempt(queue, decision)
        elif isinstance(decision, Wait):
            self.waits[decision.workload] = decision
            if decision.is_parked or decision.has_untried:  # Kueue goes on with the untried flavors; here a search starts anew.
                queue.park(decision.workload, with_shape=True)
        return decision

    def _admit(self, workload: Workload, assignment: Assignment) -> None:
        self._forget(workload.workload)
        self._start(
            Running(
                workload=workload,
                amounts=assignment.amounts,
                since_ms=self.snapshot.now_ms,
                counts={one.name: one.count for one in assignment.sets},
            )
        )
        self.past.count_entry(self.snapshot, self._where[workload.workload])

    def _preempt(self, queue: PendingQueue, decision: Preempt) -> None:
        workload = queue.get(decision.workload)
        for victim in decision.victims:
            if not victim.running.is_leaving:
                self.order.record(decision.workload, victim.running.workload.workload)
        self._evict(decision.victims)
        queue.make_sticky(decision.workload)
        self.waits[decision.workload] = Wait(workload=decision.workload, reason=Reason.WAITING_FOR_VICTIMS)
        if self.rules.reservation_timeout_ms:
            victims = tuple(victim.running.workload.workload for victim in decision.victims)
            until_ms = self.snapshot.now_ms + self.rules.reservation_timeout_ms
            hold = Hold(workload=workload, assignment=decision.assignment, victims=victims, until_ms=until_ms)
            self.holds[decision.workload] = hold
            self.snapshot.charge(self._where[decision.workload], decision.assignment.amounts)

    def _evict(self, victims: Iterable[Victim]) -> list[QuotaDecision]:
        """Mark the victims as stopping; return an order for each that was not stopping yet."""
        orders: list[QuotaDecision] = []
        for victim in victims:
            work = victim.running.workload.workload
            now = self.snapshot.running[self._where[work]][work]
            if not now.is_leaving:
                self._swap(now, now._replace(is_leaving=True))
                orders.append(Evict(workload=work, reason=victim.reason))
        return orders

    # -- the steps of a round ----------------------------------------------------------------------------------------------

    def _drained(self) -> list[QuotaDecision]:
        victims: list[Victim] = []
        for queue, several in self.snapshot.running.items():
            gate = queue_gate(self.forest, self.settings, queue, self.snapshot.now_ms) if several else None
            if gate is not None and gate.reason is Reason.TENANT_DRAINED:
                victims += [Victim(running=running, reason=Reason.TENANT_DRAINED) for running in several.values()]
        return self._evict(victims)

    def _expired(self) -> list[QuotaDecision]:
        """Drop expired holds: their room is free for all, and their workloads are ordinary heads again."""
        late = [name for name, hold in self.holds.items() if hold.until_ms <= self.snapshot.now_ms]
        for name in late:
            self._drop_hold(name)
            self.waits[name] = Wait(workload=name, reason=Reason.RESERVATION_EXPIRED)
        return [self.waits[name] for name in late]

    def _kept_holds(self) -> list[QuotaDecision]:
        """Admit the workloads whose victims are gone; drop their holds if new limits forbid the admission."""
        decisions: list[QuotaDecision] = []
        for name, hold in list(self.holds.items()):
            if any(self._runs(victim) for victim in hold.victims):
                continue
            node = self._where[name]
            self._drop_hold(name)
            gate = queue_gate(self.forest, self.settings, node, self.snapshot.now_ms) or running_gate(
                self.counts, self.settings, hold.workload
            )
            if gate is None and self.snapshot.ledger.fits(node, hold.assignment.amounts):
                decisions.append(self._carried_out(Admit(workload=name, assignment=hold.assignment)))
        return decisions

    def _overdue(self) -> list[QuotaDecision]:
        """Decide first about each tree's longest overdue workload, and reserve all room that comes free for it."""
        decisions: list[QuotaDecision] = []
        for workload in self._longest_overdue():
            decided = self._pass([workload])
            decisions += decided
            if decided and isinstance(decided[0], Wait):
                node = self._where[workload.workload]
                assignment = assignment_without(self.snapshot, workload, list(self.snapshot.running_below(self.forest.root(node))))
                if assignment.mode is Mode.FIT:
                    self._blocked.append((node, assignment.amounts))
                    self.snapshot.charge(*self._blocked[-1])
        return decisions

    def _longest_overdue(self) -> list[Workload]:
        longest: dict[int, Workload] = {}
        now_ms = self.snapshot.now_ms
        for node, queue in self._queues.items():
            wait_ms = self.settings[node].max_wait_ms
            if wait_ms is None or queue_gate(self.forest, self.settings, node, now_ms) is not None:
                continue
            for workload in queue:
                if now_ms - workload.created_ms < wait_ms or workload.workload in self.holds:
                    continue
                if running_gate(self.counts, self.settings, workload) is not None:
                    continue
                root = self.forest.root(node)
                before = longest.get(root)
                if before is None or (workload.created_ms, workload.workload) < (before.created_ms, before.workload):
                    longest[root] = workload
        return [longest[root] for root in sorted(longest)]

    # -- state -----------------------------------------------------------------------------------------------------------

    def _at(self, now_ms: int) -> None:
        self.snapshot.now_ms = max(self.snapshot.now_ms, now_ms)
        self.past.sample(self.snapshot)

    def _start(self, running: Running) -> None:
        self.snapshot.add(running)
        self.snapshot.forget_log()
        self.counts.add(running.workload)
        node = self._where[running.workload.workload]
        min_run_ms = self.rules.min_run_of(self.settings[node])
        if min_run_ms:
            self._ripe.append((running.since_ms + min_run_ms, self.forest.root(node)))

    def _stop(self, running: Running) -> None:
        self.snapshot.remove(running)
        self.snapshot.forget_log()
        self.counts.add(running.workload, -1)
        self._freed.add(self.forest.root(self._where[running.workload.workload]))

    def _swap(self, old: Running, new: Running) -> None:
        self.snapshot.remove(old)
        self.snapshot.add(new)

    def _drop_hold(self, workload: str) -> None:
        hold = self.holds.pop(workload, None)
        if hold is not None:
            node = self._where[workload]
            self.snapshot.discharge(node, hold.assignment.amounts)
            self._freed.add(self.forest.root(node))

    def _forget(self, workload: str) -> None:
        self.waits.pop(workload, None)
        self.gates.pop(workload, None)

    def _unpark(self) -> None:
        """Unpark workloads where room came free, or running work lost its protection."""
        now_ms = self.snapshot.now_ms
        self._freed |= {root for at_ms, root in self._ripe if at_ms <= now_ms}
        self._ripe = [(at_ms, root) for at_ms, root in self._ripe if at_ms > now_ms]
        for node, queue in self._queues.items():
            if self.forest.root(node) in self._freed:
                queue.unpark()
        self._freed.clear()

    def _runs(self, workload: str) -> bool:
        return workload in self._where and workload in self.snapshot.running.get(self._where[workload], {})

    def queue_node(self, queue: str) -> int:
        """Return the leaf that admits the work of a tenant. Raises UnknownTenant."""
        return _queue_in(self.forest, queue)

    def _node_of(self, workload: str) -> int:
        if workload not in self._where:
            raise LedgerError(f"workload {workload} is neither waiting nor running")
        return self._where[workload]


def _queue_in(forest: QuotaForest, queue: str) -> int:
    """Return the leaf that admits the work of a tenant. Raises UnknownTenant."""
    node = forest.queue_of(queue)
    if forest.children[node]:
        raise UnknownTenant(f"{queue} is not a queue: it has tenants below it and no work of its own")
    return node
