"""Whom the planner would ask to give back a part of a lease, were it to plan now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from federation.explaining.answers import GivesWay
from federation.explaining.flavor_reach import FlavorReach
from federation.explaining.pieces import Piece
from federation.planning.planner import plan
from federation.planning.reading import free_room, has_room, holdings_of, left_over, wants_of
from federation.planning.values import Plan, Target, Unmet, Want
from federation.quota.explain import Explanation
from federation.quota.forest import QuotaForest
from federation.quota.policies import StandingOrders
from federation.snapshot import LeaseView, Snapshot
from mesh.ids import FlavorName, MeshId, TenantPath
from mesh.reasons import Reason
from mesh.resources import ResourceSet


class PlannerAsks:
    """Over one snapshot; nothing is planned before it is asked for."""

    def __init__(self, snapshot: Snapshot, forest: QuotaForest, orders: StandingOrders, reach: FlavorReach) -> None:
        self._snapshot = snapshot
        self._forest = forest
        self._orders = orders
        self._reach = reach
        self._wants = wants_of(snapshot)
        self._free = free_room(snapshot)

    def unmet(self) -> tuple[Unmet, ...]:
        """What meshes want and the planner would not give them now, each with its reason."""
        return self._plan(self._wants, tells_young=True).unmet

    def for_waiting(self, piece: Piece, told: Explanation) -> tuple[GivesWay, ...]:
        """For the sake of one that waits, which is behind what its mesh wants for its tenant already.

        Args:
            told: What the quota scheduler says of it.
        """
        others = [want for want in self._wants if (want.mesh, want.tenant) != (piece.mesh, piece.tenant) or want.priority > piece.priority]
        return self._gives_way(piece, told, others)

    def for_sent(self, piece: Piece, told: Explanation, before: Iterable[Piece]) -> tuple[GivesWay, ...]:
        """For the sake of one that would be sent; `told` as for `for_waiting`.

        Args:
            before: What would be sent with it, before it.
        """
        return self._gives_way(piece, told, [*self._wants, *(self._want(other) for other in before if self._reach.at_mesh(other))])

    def _plan(self, wants: Iterable[Want], *, tells_young: bool = False) -> Plan:
        return plan(
            self._forest,
            holdings_of(self._snapshot),
            wants,
            now_ms=self._snapshot.at_ms,
            rules=self._orders.rules,
            settings=self._orders.settings,
            tells_young=tells_young,
        )

    def _gives_way(self, piece: Piece, told: Explanation, others: Sequence[Want]) -> tuple[GivesWay, ...]:
        """Whom the planner would ask for the sake of this piece, and not of the others that want something."""
        if told.reason in (None, Reason.BEHIND_HEAD) or told.gate is not None or not self._reach.at_mesh(piece):
            return ()
        usual = {_key(target): target for target in self._plan(others).lowered}
        with_it = self._plan((*others, self._want(piece))).lowered
        return tuple(self._difference(target, usual.get(_key(target))) for target in with_it if target != usual.get(_key(target)))

    def _want(self, piece: Piece) -> Want:
        flavor = self._reach.at_mesh(piece)[0]
        return Want(
            mesh=piece.mesh,
            tenant=piece.tenant,
            flavor=flavor,
            slot=dict(piece.slot.items()),
            slots=1,
            priority=piece.priority,
            since_ms=self._snapshot.at_ms,
            is_crowded=not has_room(self._free, piece.mesh, flavor, piece.slot),
            free=left_over(self._free, piece.mesh, flavor, piece.slot),
        )

    def _difference(self, target: Target, usual: Target | None) -> GivesWay:
        aimed_at = next(dict(lease.target.items()) for lease in self._snapshot.leases if _key(lease) == _key(target))
        before = usual.amounts if usual is not None else aimed_at
        part = {name: units - target.amounts.get(name, 0) for name, units in before.items()}
        return GivesWay(
            mesh=target.mesh,
            tenant=target.tenant,
            flavor=target.flavor,
            amounts=ResourceSet({name: units for name, units in part.items() if units > 0}),
            reason=target.reason,
        )


def _key(one: Target | LeaseView) -> tuple[MeshId, TenantPath, FlavorName]:
    return one.mesh, one.tenant, one.flavor
