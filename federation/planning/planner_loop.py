"""Planner loop: the elected root reads the ledger now and then, plans, and applies targets.

Several roots may run a loop; the ledger applies the plans of one leader at a time. Leader election only saves work: a leader that
slept through its time finds another leader, and the ledger refuses a plan for a tree that was replaced meanwhile.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import structlog

from federation.errors import LedgerRecovering, PlannerSuperseded, QuotaExceeded, SessionUnknown, TreeChanged
from federation.leases import CONTESTED_MS, ROWS_MAX, VICTIMS_MAX, LeaseLedger, TargetUpdate
from federation.planning.planner import plan
from federation.planning.planner_inputs import HoldingsReader, demands_of, running_by_lease
from federation.planning.settled_plan import SettledPlan
from federation.planning.values import Plan, Target
from federation.quota.forest import QuotaForest
from federation.quota.past_use import NO_PAST, PastUse, load_of
from federation.quota.policies import TenantPolicies
from federation.quota.tenant_policies import PoliciesInForce, TenantPolicyStore
from federation.snapshot import FederationSnapshot
from federation.tenants import TenantTree
from mesh.core.reasons import Reason
from mesh.core.resources import NOTHING, ResourceSet

log = structlog.get_logger(__name__)

#: Reasons of reductions that wait for the minimum run time.
_PATIENT = frozenset({Reason.QUOTA_RECLAIMED, Reason.PREEMPTED_WITHIN_TENANT})
#: Reasons of reductions that no minimum run time delays.
_AT_ONCE = frozenset({Reason.QUOTA_REDUCED, Reason.TENANT_DRAINED})


class UsageHistory:
    """Past use of all tenants of a ledger, on the ledger's own clock."""

    def __init__(self, snapshot: FederationSnapshot, forest: QuotaForest, half_life_ms: int) -> None:
        self._forest = forest
        self._past = PastUse(half_life_ms=half_life_ms, sampled_ms=snapshot.at_ms)

    def let_pass(self, snapshot: FederationSnapshot, forest: QuotaForest, half_life_ms: int) -> PastUse:
        """Return the past use up to the snapshot, by the leaves of the forest. The forest and the half-life may have changed."""
        if forest is not self._forest:
            self._past.move(self._forest, forest)
            self._forest = forest
        self._past.let_pass(snapshot.at_ms, _loads(snapshot, forest))
        self._past.half_life_ms = half_life_ms
        return self._past


def _loads(snapshot: FederationSnapshot, forest: QuotaForest) -> dict[int, int]:
    """Return the present load by leaf, as `load_of` counts it. Promised growth that is not granted yet does not count."""
    used: defaultdict[int, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    for lease in snapshot.leases:
        for name, units in lease.amounts.items():
            used[forest.queue_of(lease.tenant)][name] += units
    return {leaf: load_of(forest, leaf, units) for leaf, units in used.items()}


@dataclass(slots=True)
class TickTimes:
    """Times at which a root plans, ms on its clock: every `tick_ms`, and sooner when quota is contested.

    A plan for contested quota waits for `CONTESTED_MS`, in which more demand is recorded. Such plans take at most half of the time,
    however large the federation.
    """

    tick_ms: int
    _regular_ms: int = 0  #: Time of the next regular tick.
    _contest_ms: int | None = None  #: When quota was first contested since the last tick.
    _rested_ms: int = 0  #: No plan for contested quota before.

    def note_contest(self, now_ms: int) -> None:
        """Note that quota is contested."""
        self._contest_ms = now_ms if self._contest_ms is None else self._contest_ms

    def due_ms(self) -> int:
        """Return when the next tick is due."""
        return (
            self._regular_ms if self._contest_ms is None else min(self._regular_ms, max(self._contest_ms + CONTESTED_MS, self._rested_ms))
        )

    def is_regular(self, now_ms: int) -> bool:
        """Return whether the regular tick is due, and not only a plan for contested quota."""
        return now_ms >= self._regular_ms

    def begin(self) -> None:
        """Note that a tick begins: it will know all demand recorded so far."""
        self._contest_ms = None

    def end(self, began_ms: int, now_ms: int) -> None:
        """Note that a tick has ended."""
        self._rested_ms = now_ms + now_ms - began_ms
        if self.is_regular(began_ms):
            self._regular_ms = now_ms + self.tick_ms


class PlannerLoop:
    """Planner loop of one root; `tick` is called about once a second, and when quota is contested: see `TickTimes`.

    Args:
        name: Name of this root, unique among all roots.
        leader_ttl_ms: How long this root leads after a tick, ms.
        tenant_policies: Rules, and the tenants' weights, settings and stops; read on each tick.
    """

    def __init__(self, ledger: LeaseLedger, name: str, *, leader_ttl_ms: int, tenant_policies: TenantPolicyStore) -> None:
        self._ledger = ledger
        self._name = name
        self._leader_ttl_ms = leader_ttl_ms
        self._tenant_policies = tenant_policies
        self._history: UsageHistory | None = None  #: Present if past use counts.
        self._forest: tuple[TenantTree, PoliciesInForce, QuotaForest] | None = None  #: The forest with its sources.
        self._holdings = HoldingsReader()
        self._settled: SettledPlan | None = None  #: The last plan, if it changed nothing.
        self._token: int | None = None  #: Token of the election, if this root led at the last tick.

    def tick(self, seen: FederationSnapshot | None = None) -> Plan | None:
        """Plan and apply; None if another root leads, or the ledger is recovering or empty.

        Args:
            seen: A snapshot that this process has just read. Only a root that has led since the last tick uses it: a new leader has to
                read the plans of its predecessor.

        Raises:
            StoreUnavailable: The ledger does not respond.
        """
        before, self._token = self._token, self._ledger.elect(self._name, self._leader_ttl_ms)
        token = self._token
        if token is None:
            return None
        snapshot = seen if seen is not None and token == before else self._ledger.snapshot()
        if snapshot.recovery_ms:
            return None
        in_force = self._tenant_policies.in_force()
        past = self._past(snapshot, in_force)
        if not (snapshot.demands or snapshot.leases):
            return None
        answer = self._plan(snapshot, in_force, past)
        try:
            # Lowered targets go first: the ledger checks growth against targets that are already lower.
            for target_updates in _slices((*answer.lowered, *answer.raised), snapshot, in_force.filed):
                self._apply(token, snapshot.version, target_updates)
        except (LedgerRecovering, PlannerSuperseded, SessionUnknown, TreeChanged) as passed:
            log.info("the ledger has changed; the rest of the plan is dropped", planner=self._name, why=str(passed))
        return answer

    def _apply(self, token: int, version: int, target_updates: tuple[TargetUpdate, ...]) -> None:
        """Apply all targets except those that the ledger refuses, so that one tenant's target does not block the others round after round.

        A refused slice is halved, and its halves again, which finds the refused target in few calls.
        """
        try:
            self._ledger.plan_apply(token, version, target_updates)
        except QuotaExceeded as refused:
            if len(target_updates) == 1:
                target_update = target_updates[0]
                about = {
                    "mesh": target_update.mesh,
                    "tenant": target_update.tenant,
                    "flavor": target_update.flavor,
                    "target": str(target_update.target),
                }
                log.warning("the ledger has no room for a target of the plan", planner=self._name, why=str(refused), **about)
                return
            middle = len(target_updates) // 2
            self._apply(token, version, target_updates[:middle])
            self._apply(token, version, target_updates[middle:])

    def _past(self, snapshot: FederationSnapshot, in_force: PoliciesInForce) -> PastUse:
        """Return the past use up to now. Ticks without any lease are recorded as well, so that idle time counts as idle."""
        half_life_ms = in_force.filed.rules.history_half_life_ms
        if half_life_ms == 0:
            self._history = None
            return NO_PAST
        forest = self._forest_of(snapshot, in_force)
        if self._history is None:
            self._history = UsageHistory(snapshot, forest, half_life_ms)
        return self._history.let_pass(snapshot, forest, half_life_ms)

    def _plan(self, snapshot: FederationSnapshot, in_force: PoliciesInForce, past: PastUse) -> Plan:
        if self._settled is not None and self._settled.holds(snapshot, in_force):
            return self._settled.plan
        tenant_policies, running = in_force.merged(), running_by_lease(snapshot)
        answer = plan(
            self._forest_of(snapshot, in_force),
            self._holdings.read(snapshot, running),
            demands_of(snapshot, running),
            now_ms=snapshot.at_ms,
            rules=tenant_policies.rules,
            settings=tenant_policies.settings,
            past=past,
        )
        self._settled = SettledPlan.of(answer, snapshot, in_force)
        return answer

    def _forest_of(self, snapshot: FederationSnapshot, in_force: PoliciesInForce) -> QuotaForest:
        if self._forest is None or not self._forest[0].covers(snapshot.tree) or self._forest[1] is not in_force:
            self._forest = snapshot.tree, in_force, QuotaForest.of_tenants(snapshot.tree, in_force.filed.weights)
        return self._forest[2]


def _slices(targets: Iterable[Target], snapshot: FederationSnapshot, filed: TenantPolicies) -> Iterator[tuple[TargetUpdate, ...]]:
    """Yield slices of targets, each target with its value in the snapshot, since meshes acquire and release during planning.

    Work within its minimum run time may continue after a reclaim until that time ends; other reductions wait for nothing.
    """
    before = {(lease.mesh, lease.tenant, lease.flavor): lease.target for lease in snapshot.leases if lease.incarnation is None}
    target_updates = [
        TargetUpdate(
            mesh=mesh,
            tenant=tenant,
            flavor=flavor,
            target=ResourceSet(amounts),
            before=before.get((mesh, tenant, flavor), NOTHING),
            victims=victims[:VICTIMS_MAX],
            wait_ms=filed.min_run_of(tenant) if reason in _PATIENT else 0 if reason in _AT_ONCE else None,
        )
        for mesh, tenant, flavor, amounts, reason, victims in targets
    ]
    return (tuple(target_updates[start : start + ROWS_MAX]) for start in range(0, len(target_updates), ROWS_MAX))
