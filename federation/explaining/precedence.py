"""Who comes before whom: in the queue of a mesh, in the queue of a tenant, and where a tenant's stages start in order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from federation.explaining.flavor_reach import FlavorReach
from federation.explaining.pieces import Piece
from federation.explaining.queue_places import Flavors, QueueLine, may_meet
from federation.quota.policies import StandingOrders
from mesh.admission import WANT_OF_ROOM
from mesh.ids import MeshId, TenantPath
from mesh.reasons import Reason

#: What keeps a stage from its mesh, and no stage from another mesh.
_MESH_LACKS = WANT_OF_ROOM | {Reason.LEASES_AT_LIMIT}


class Precedence:
    """Among what waits at all meshes.

    Args:
        pieces: What waits, by stage; of each mesh the next one first.
        told: Why each of them waits, as its mesh said.
    """

    def __init__(self, pieces: Mapping[str, Piece], told: Mapping[str, Reason], reach: FlavorReach, orders: StandingOrders) -> None:
        self._pieces = pieces
        self._told = told
        self._reach = reach
        self._orders = orders
        self._in_order: dict[TenantPath, bool] = {}
        self._waiting_at: defaultdict[tuple[MeshId, TenantPath], list[Piece]] = defaultdict(list)
        for piece in pieces.values():
            self._waiting_at[piece.mesh, piece.tenant].append(piece)
        self._like = self._by_likeness()
        self._lines: defaultdict[MeshId, QueueLine] = defaultdict(QueueLine)
        #: Of each stage: how many of those before it in the queue of its mesh could be in its way.
        self.places: Mapping[str, int] = {piece.stage: self._take_place(piece) for piece in pieces.values()}

    def place_behind(self, piece: Piece, before: Iterable[Piece]) -> int:
        """The place of what comes after all that waits.

        Args:
            before: What would come before it, and waits nowhere yet.
        """
        return self._behind_all(piece) + sum(other.mesh == piece.mesh and self._may_precede(other, piece) for other in before)

    def ahead(self, piece: Piece, first: Iterable[str], before: Iterable[Piece]) -> int:
        """Of those that go first in its tenant's queue, how many could be in its way.

        Args:
            first: Their names.
            before: Those among them that wait nowhere yet.
        """
        sent = {one.stage: one for one in before}
        alike = Counter(self._like.get(name, name) for name in first)
        return sum(count for name, count in alike.items() if self._may_precede(sent.get(name) or self._pieces[name], piece))

    def line_before(self, piece: Piece, before: Iterable[Piece] = ()) -> tuple[Piece, ...]:
        """Who starts before it on its mesh, where its tenant's stages start in order; as `mesh.admission_order` has it.

        Args:
            before: Beside those that wait.
        """
        if not self._starts_in_order(piece.tenant):
            return ()
        where, turn = (piece.mesh, piece.tenant), self._turn_of(piece)
        others = (*self._waiting_at.get(where, ()), *(one for one in before if (one.mesh, one.tenant) == where))
        return tuple(one for one in others if one.stage != piece.stage and self._turn_of(one) < turn)

    def own_before(self, piece: Piece) -> list[Piece]:
        """Of the same tenant on the same mesh, the next one first; without those that need no room."""
        others = (one for one in self._waiting_at.get((piece.mesh, piece.tenant), ()) if one.slot)
        order = {one.stage: (-one.priority, one.created_ms) for one in (piece, *others)}
        return sorted((self._pieces[name] for name in order if order[name] < order[piece.stage]), key=lambda one: order[one.stage])

    def _take_place(self, piece: Piece) -> int:
        """Its place behind those of its mesh that took theirs before, which it takes."""
        place = self._behind_all(piece)
        self._lines[piece.mesh].add(self._reach.of(piece), piece.tenant)
        return place

    def _behind_all(self, piece: Piece) -> int:
        return self._lines[piece.mesh].before(self._reach.of(piece), piece.tenant, in_order=self._starts_in_order(piece.tenant))

    def _starts_in_order(self, tenant: TenantPath) -> bool:
        known = self._in_order.get(tenant)
        if known is None:
            self._in_order[tenant] = known = self._orders.yielding(tenant).in_order
        return known

    def _by_likeness(self) -> dict[str, str]:
        """Of each stage one of those that may, or may not, be in the way of just the same others: who explains many stages of a long
        queue asks about few of them."""
        first: dict[tuple[MeshId, TenantPath, Flavors, bool], str] = {}
        return {
            name: first.setdefault((one.mesh, one.tenant, self._reach.of(one), self._told[name] in _MESH_LACKS), name)
            for name, one in self._pieces.items()
        }

    def _may_precede(self, other: Piece, piece: Piece) -> bool:
        """Whether the first, which comes before the second, may keep it waiting: by a flavor that both could take, unless it only waits
        for what another mesh lacks; or by the order of their tenant."""
        if other.mesh == piece.mesh and other.tenant == piece.tenant and self._starts_in_order(piece.tenant):
            return True
        elsewhere = other.mesh != piece.mesh and self._told.get(other.stage) in _MESH_LACKS
        return not elsewhere and may_meet(self._reach.of(other), self._reach.of(piece))

    def _turn_of(self, piece: Piece) -> tuple[bool, int, int]:
        """The least starts first: that for which others stop, then the most urgent."""
        return self._told.get(piece.stage) is not Reason.WAITING_FOR_VICTIMS, -piece.priority, piece.created_ms
