"""One pass over the heads of all queues.

All heads are nominated on the same snapshot, then decided in order on a live snapshot: an admission, or room promised to a preemptor,
counts at once.

    does not fit, ever or now            parked
    may preempt, but has no victims      parked; its room is blocked for this pass, unless it can reclaim for certain
    fits, or its victims are known       admitted, or preempts; if it lost to others of this pass, it keeps its place
    its victims are others' already      nominated again on its flavors as if they were gone; if it fits then, it waits
    fits only after those are gone       waits for them (Kueue admits it beside them, and both run for a while)

Source: Kueue `scheduler/scheduler.go`.
"""

from __future__ import annotations

from collections.abc import Iterable

from federation.quota.decisions import Admit, Preempt, QuotaDecision, Wait
from federation.quota.flavors import Mode
from federation.quota.ledger import Amounts
from federation.quota.nomination import Nomination, nominate
from federation.quota.order import in_order
from federation.quota.past_use import NO_PAST, PastUse
from federation.quota.policies import PreemptionMode as Policy
from federation.quota.preemption.candidates import Victim
from federation.quota.snapshot import QuotaSnapshot
from federation.quota.workloads import Running, Workload
from federation.tenants import FlavorResource
from mesh.core.reasons import Reason


class QuotaCycle:
    """One pass. Afterwards the snapshot is charged with the decisions, and its running work is unchanged."""

    def __init__(self, snapshot: QuotaSnapshot, past: PastUse = NO_PAST) -> None:
        self._snapshot, self._past = snapshot, past
        self._gone: dict[str, Running] = {}  #: Victims of this pass, by id.
        self._promised: list[tuple[int, Amounts]] = []  #: Charges of this pass for workloads that do not start in it.

    def run(self, heads: Iterable[Workload]) -> list[QuotaDecision]:
        """Decide about at most one workload of each queue; return the decisions in order."""
        nominated = [nominate(self._snapshot, head) for head in heads]
        return [self._turn(one) for one in in_order(self._snapshot, nominated, self._past)]

    def _turn(self, one: Nomination) -> QuotaDecision:
        if self._gone.keys() & {victim.running.workload.workload for victim in one.victims}:
            again = self._anew(one)
            if again.assignment.mode is Mode.FIT:
                return self._wait_for_others(again)
            one = again
        assignment = one.assignment
        if assignment.mode is Mode.NO_FIT:
            return self._park(one)
        if assignment.mode is Mode.PREEMPT and not one.victims:
            self._block(one)
            return self._park(one)
        if not self._fits(one.workload, assignment.amounts, one.victims):
            return Wait(workload=one.workload.workload, reason=Reason.LOST_TO_EARLIER_WORK, refusals=assignment.refusals)
        if assignment.mode is Mode.FIT:
            if not self._fits_beside_victims(one):
                return self._wait_for_others(one)
            self._snapshot.charge(self._node(one.workload), assignment.amounts)
            return Admit(workload=one.workload.workload, assignment=assignment)
        self._promise(one.workload, assignment.amounts)
        self._gone |= {victim.running.workload.workload: victim.running for victim in one.victims}
        return Preempt(workload=one.workload.workload, assignment=assignment, victims=one.victims)

    def _node(self, workload: Workload) -> int:
        return self._snapshot.forest.index[workload.queue]

    def _anew(self, one: Nomination) -> Nomination:
        mark = self._snapshot.mark()
        self._snapshot.remove_all(self._gone.values())
        again = nominate(self._snapshot, one.workload, earlier=one)
        self._snapshot.undo(mark)
        return again

    def _wait_for_others(self, one: Nomination) -> QuotaDecision:
        """Reserve room in this pass for a workload that fits once the victims of others are gone."""
        if self._fits(one.workload, one.assignment.amounts, ()):
            self._promise(one.workload, one.assignment.amounts)
        return Wait(workload=one.workload.workload, reason=Reason.WAITING_FOR_VICTIMS, refusals=one.assignment.refusals)

    def _promise(self, workload: Workload, amounts: Amounts) -> None:
        node = self._node(workload)
        self._snapshot.charge(node, amounts)
        self._promised.append((node, amounts))

    def _fits_beside_victims(self, one: Nomination) -> bool:
        """Return whether the workload fits at once, while the pass's victims still run and the workloads waiting for them do not."""
        if not self._gone or not self._snapshot.rules.counts_leaving:
            return True
        mark = self._snapshot.mark()
        for node, amounts in self._promised:
            self._snapshot.discharge(node, amounts)
        fits = self._snapshot.ledger.fits(self._node(one.workload), one.assignment.amounts)
        self._snapshot.undo(mark)
        return fits

    def _fits(self, workload: Workload, amounts: Amounts, victims: tuple[Victim, ...]) -> bool:
        """Return whether the workload fits once its own and the pass's victims are gone."""
        mark = self._snapshot.mark()
        self._snapshot.remove_all(self._gone.values())
        self._snapshot.remove_all(victim.running for victim in victims)
        fits = self._snapshot.ledger.fits(self._node(workload), amounts)
        self._snapshot.undo(mark)
        return fits

    def _park(self, one: Nomination) -> QuotaDecision:
        assignment = one.assignment
        reason = Reason.NO_RECLAIM_CANDIDATES if assignment.mode is Mode.PREEMPT else worst_reason(one)
        yields_turn, has_untried = not self._snapshot.settings[self._node(one.workload)].is_strict, assignment.has_untried
        return Wait(
            workload=one.workload.workload,
            reason=reason,
            is_parked=yields_turn and not has_untried,
            has_untried=yields_turn and has_untried,
            refusals=assignment.refusals,
        )

    def _block(self, one: Nomination) -> None:
        """Block room within its queue's limits for a workload that cannot be sure to reclaim that room later."""
        snapshot, node, assignment = self._snapshot, self._node(one.workload), one.assignment
        if snapshot.settings[node].policies.reclaim is Policy.ANY:
            return
        blocked: dict[FlavorResource, int] = {}
        for key, units in assignment.amounts.items():
            rows, use = snapshot.forest.rows(key), snapshot.ledger.use(node, key)
            limit = rows.borrowing_limit[node]
            most = rows.nominal[node] - use if assignment.level == 0 else None if limit is None else rows.nominal[node] + limit - use
            blocked[key] = units if most is None else max(0, min(units, most))
        self._promise(one.workload, blocked)


def worst_reason(one: Nomination) -> Reason:
    """Return the reason why the workload does not fit: that of the flavor that comes nearest."""
    reasons = {refusal.reason for refusal in one.assignment.refusals}
    return next((reason for reason in _NEAREST_FIRST if reason in reasons), Reason.QUOTA_EXHAUSTED)


_NEAREST_FIRST = (
    Reason.QUOTA_EXHAUSTED,
    Reason.QUOTA_TOO_SMALL,
    Reason.FLAVOR_CLOSED,
    Reason.FLAVOR_UNKNOWN,
    Reason.FLAVOR_EXCLUDED,
)
