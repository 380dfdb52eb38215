"""The planner's seat: whoever holds it looks at the ledger now and then, plans, and sets targets.

Several roots may have one; the ledger lets one at a time have its plans applied. That saves work and nothing else: a seat that slept
through its time finds that another has it, and a plan for a tree that was replaced meanwhile is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

import structlog

from federation.errors import LedgerLearning, PlannerSuperseded, QuotaExceeded, SessionUnknown, TreeChanged
from federation.leases import ROWS_MAX, Aim, LeaseLedger
from federation.planning.planner import plan
from federation.planning.values import Holding, Plan, Target, Want
from federation.quota.forest import QuotaForest
from federation.quota.policies import StandingOrders
from federation.snapshot import LeaseView, Snapshot, WantView
from mesh.ids import FlavorName, MeshId, TenantPath
from mesh.resources import ResourceSet

log = structlog.get_logger(__name__)

#: The ledger's tokens are microseconds of its clock when they are minted.
_TOKENS_A_MS = 1_000


class PlannerSeat:
    """Plans when `tick` is called; best about once a second.

    Args:
        name: Tells this root from others.
        seat_ms: For how long the seat is taken each time.
        orders: Rules, and the tenants' weights and settings.
    """

    def __init__(self, ledger: LeaseLedger, name: str, *, seat_ms: int, orders: StandingOrders) -> None:
        self._ledger = ledger
        self._name = name
        self._seat_ms = seat_ms
        self._orders = orders
        self._forest: tuple[int, QuotaForest] | None = None  #: With the version of the tree that it was made of.

    def tick(self) -> Plan | None:
        """Plan and apply; None when another has the seat, or nobody can plan now.

        Raises:
            StoreUnavailable: The ledger does not answer.
        """
        token = self._ledger.elect(self._name, self._seat_ms)
        if token is None:
            return None
        snapshot = self._ledger.snapshot()
        if snapshot.learn_ms or not (snapshot.wants or snapshot.leases):
            return None
        answer = self._plan(snapshot)
        try:
            # First what is lowered: the ledger counts a slice's growth against targets that are lower already.
            for aims in _slices((*answer.lowered, *answer.raised)):
                self._ledger.plan_apply(token, snapshot.version, aims)
        except (LedgerLearning, PlannerSuperseded, QuotaExceeded, SessionUnknown, TreeChanged) as passed:
            log.info("the ledger has moved on; the rest of the plan is dropped", planner=self._name, why=str(passed))
        return answer

    def _plan(self, snapshot: Snapshot) -> Plan:
        alive = {view.record.mesh for view in snapshot.meshes if view.alive}
        promised = {(lease.mesh, lease.tenant, lease.flavor): lease for lease in snapshot.leases if lease.incarnation is None}
        crowded = {(view.mesh, view.tenant, view.flavor) for view in snapshot.wants if not _has_room(snapshot, view)}
        wants = (_want(view, promised.get((view.mesh, view.tenant, view.flavor)), snapshot.at_ms, crowded) for view in snapshot.wants)
        return plan(
            self._forest_of(snapshot),
            [_holding(lease) for lease in snapshot.leases],
            [want for want in wants if want.slots > 0 and want.mesh in alive and want.tenant in snapshot.tree.tenants],
            now_ms=snapshot.at_ms,
            rules=self._orders.rules,
            settings=self._orders.settings,
        )

    def _forest_of(self, snapshot: Snapshot) -> QuotaForest:
        if self._forest is None or self._forest[0] != snapshot.version:
            self._forest = snapshot.version, QuotaForest.of_tenants(snapshot.tree, self._orders.weights)
        return self._forest[1]


def _holding(lease: LeaseView) -> Holding:
    """What runs out with its session (it has an `incarnation`) stays charged and can be asked for nothing."""
    return Holding(
        mesh=lease.mesh if lease.incarnation is None else MeshId(f"{lease.mesh}#{lease.incarnation}"),
        tenant=lease.tenant,
        flavor=lease.flavor,
        target=dict(lease.target.items()) if lease.incarnation is None else dict(lease.amounts.items()),
        token=lease.token,
        priority=lease.priority,
        since_ms=lease.token // _TOKENS_A_MS,
        is_fixed=lease.incarnation is not None,
    )


def _has_room(snapshot: Snapshot, want: WantView) -> bool:
    """Would one slot fit into a pool of the mesh, by what the mesh has told last?"""
    pools = (pool for view in snapshot.meshes if view.record.mesh == want.mesh for pool in view.record.pools if pool.flavor == want.flavor)
    return any(all(units <= pool.capacity[name] - pool.used[name] for name, units in want.slot.items()) for pool in pools)


def _want(view: WantView, lease: LeaseView | None, at_ms: int, crowded: AbstractSet[tuple[MeshId, TenantPath, FlavorName]]) -> Want:
    """Slots that an earlier plan has promised and that are still on their way are wanted no more."""
    coming = 0
    if lease is not None:
        coming = min(((lease.target[name] - lease.amounts[name]) // units for name, units in view.slot.items() if units), default=0)
    return Want(
        mesh=view.mesh,
        tenant=view.tenant,
        flavor=view.flavor,
        slot=dict(view.slot.items()),
        slots=view.slots - max(0, coming),
        priority=view.priority,
        since_ms=at_ms - view.waiting_ms,
        is_crowded=(view.mesh, view.tenant, view.flavor) in crowded,
    )


def _slices(targets: Iterable[Target]) -> Iterator[tuple[Aim, ...]]:
    aims = [_aim(target.mesh, target.tenant, target.flavor, ResourceSet(target.amounts)) for target in targets]
    return (tuple(aims[start : start + ROWS_MAX]) for start in range(0, len(aims), ROWS_MAX))


def _aim(mesh: MeshId, tenant: TenantPath, flavor: FlavorName, target: ResourceSet) -> Aim:
    return Aim(mesh=mesh, tenant=tenant, flavor=flavor, target=target)
