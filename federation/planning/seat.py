"""The planner's seat: whoever holds it looks at the ledger now and then, plans, and sets targets.

Several roots may have one; the ledger lets one at a time have its plans applied. That saves work and nothing else: a seat that slept
through its time finds that another has it, and a plan for a tree that was replaced meanwhile is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import structlog

from federation.errors import LedgerLearning, PlannerSuperseded, QuotaExceeded, SessionUnknown, TreeChanged
from federation.leases import ROWS_MAX, Aim, LeaseLedger
from federation.planning.history import History
from federation.planning.planner import plan
from federation.planning.reading import holdings_of, wants_of
from federation.planning.values import Plan, Target
from federation.quota.forest import QuotaForest
from federation.quota.past_use import NO_PAST, PastUse
from federation.quota.policies import StandingOrders
from federation.snapshot import Snapshot
from federation.tenant_orders import OrdersInForce, TenantOrders
from federation.tenants import TenantTree
from mesh.reasons import Reason
from mesh.resources import NOTHING, ResourceSet

log = structlog.get_logger(__name__)

#: What is given up for these waits for nobody.
_AT_ONCE = frozenset({Reason.QUOTA_CUT, Reason.TENANT_DRAINED})


class PlannerSeat:
    """Plans when `tick` is called; best about once a second.

    Args:
        name: Tells this root from others.
        seat_ms: For how long the seat is taken each time.
        orders: Rules, and the tenants' weights, settings and stops; looked at anew each time.
    """

    def __init__(self, ledger: LeaseLedger, name: str, *, seat_ms: int, orders: TenantOrders) -> None:
        self._ledger = ledger
        self._name = name
        self._seat_ms = seat_ms
        self._orders = orders
        self._history: History | None = None  #: Where the past counts.
        self._forest: tuple[TenantTree, OrdersInForce, QuotaForest] | None = None  #: With what it was made of.
        self._token: int | None = None  #: Of the seat, when it was held at the last tick.

    def tick(self, seen: Snapshot | None = None) -> Plan | None:
        """Plan and apply; None when another has the seat, or nobody can plan now.

        Args:
            seen: What somebody in this process has just read. It serves who has held the seat since before: who takes the seat reads
                for itself what another may have planned until then.

        Raises:
            StoreUnavailable: The ledger does not answer.
        """
        before, self._token = self._token, self._ledger.elect(self._name, self._seat_ms)
        token = self._token
        if token is None:
            return None
        snapshot = seen if seen is not None and token == before else self._ledger.snapshot()
        if snapshot.learn_ms:
            return None
        in_force = self._orders.in_force()
        past = self._past(snapshot, in_force)
        if not (snapshot.wants or snapshot.leases):
            return None
        answer = self._plan(snapshot, in_force, past)
        try:
            # First what is lowered: the ledger counts a slice's growth against targets that are lower already.
            for aims in _slices((*answer.lowered, *answer.raised), snapshot, in_force.filed):
                self._apply(token, snapshot.version, aims)
        except (LedgerLearning, PlannerSuperseded, SessionUnknown, TreeChanged) as passed:
            log.info("the ledger has moved on; the rest of the plan is dropped", planner=self._name, why=str(passed))
        return answer

    def _apply(self, token: int, version: int, aims: tuple[Aim, ...]) -> None:
        """All aims but those that the ledger itself refuses: one tenant's must not cost all others theirs, round after round.

        Halves of a refused slice, and halves of these, find such an aim in few calls.
        """
        try:
            self._ledger.plan_apply(token, version, aims)
        except QuotaExceeded as refused:
            if len(aims) == 1:
                aim = aims[0]
                about = {"mesh": aim.mesh, "tenant": aim.tenant, "flavor": aim.flavor, "target": str(aim.target)}
                log.warning("the ledger has no room for a target of the plan", planner=self._name, why=str(refused), **about)
                return
            middle = len(aims) // 2
            self._apply(token, version, aims[:middle])
            self._apply(token, version, aims[middle:])

    def _past(self, snapshot: Snapshot, in_force: OrdersInForce) -> PastUse:
        """What tenants have used up to now; looked at also while nothing is held, so that such time counts for what it was."""
        half_life_ms = in_force.filed.rules.history_half_life_ms
        if half_life_ms == 0:
            self._history = None
            return NO_PAST
        forest = self._forest_of(snapshot, in_force)
        if self._history is None:
            self._history = History(snapshot, forest, half_life_ms)
        return self._history.let_pass(snapshot, forest, half_life_ms)

    def _plan(self, snapshot: Snapshot, in_force: OrdersInForce, past: PastUse) -> Plan:
        orders = in_force.merged()
        return plan(
            self._forest_of(snapshot, in_force),
            holdings_of(snapshot),
            wants_of(snapshot),
            now_ms=snapshot.at_ms,
            rules=orders.rules,
            settings=orders.settings,
            past=past,
        )

    def _forest_of(self, snapshot: Snapshot, in_force: OrdersInForce) -> QuotaForest:
        if self._forest is None or not self._forest[0].covers(snapshot.tree) or self._forest[1] is not in_force:
            self._forest = snapshot.tree, in_force, QuotaForest.of_tenants(snapshot.tree, in_force.filed.weights)
        return self._forest[2]


def _slices(targets: Iterable[Target], snapshot: Snapshot, filed: StandingOrders) -> Iterator[tuple[Aim, ...]]:
    """Each with what it was in the snapshot: while this was planned, meshes have asked and released.

    Where quota goes back to others, work that is too young to be stopped has the time to come of age, or to end; nothing follows it.
    """
    before = {(lease.mesh, lease.tenant, lease.flavor): lease.target for lease in snapshot.leases if lease.incarnation is None}
    aims = [
        Aim(
            mesh=mesh,
            tenant=tenant,
            flavor=flavor,
            target=ResourceSet(amounts),
            before=before.get((mesh, tenant, flavor), NOTHING),
            wait_ms=filed.min_run_of(tenant) if reason is Reason.QUOTA_RECLAIMED else 0 if reason in _AT_ONCE else None,
        )
        for mesh, tenant, flavor, amounts, reason in targets
    ]
    return (tuple(aims[start : start + ROWS_MAX]) for start in range(0, len(aims), ROWS_MAX))
