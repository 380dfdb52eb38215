"""Survey: the verdict of every mesh on a kind of work, wherever its inputs are.

Each mesh is checked in the same order, and the first failure is its verdict: labels, tenants, presence, drain, probation
(`federation.routing.mesh_filters`), a pool and a node that could hold the work when empty, a flavor that is open to the tenant, quota that
it could ever be granted, and a lease, or room for one, to pay for the work. A failure that passes, such as an absent mesh, comes after all
that do not. A mesh without a failure accepts the work. If its pools are full or the quota is in use now, the work would wait
there, and the verdict says so with an estimate.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from federation.estimates import COST_RULES, CostRules, typical_run_ms
from federation.mesh_access import words_of_closed
from federation.quota.flavors import WORST, Grade, Mode
from federation.quota.policies import PreemptionMode
from federation.routing.flavor_choice import Graded
from federation.routing.headroom import Borrowing, Headroom
from federation.routing.mesh_filters import holds, refusal_of, words_of_nodes, words_of_pools
from federation.routing.queued_work import load_before, wait_behind_ms
from federation.routing.routing_request import RoutingRequest
from federation.routing.verdicts import MeshVerdict
from federation.snapshot import AbsentMesh, FederationSnapshot, MeshView, PoolRecord
from mesh.core.ids import FlavorName, MeshId
from mesh.core.near_names import NO_MESH_HAS, unheld
from mesh.core.reasons import PASSING, Reason
from mesh.core.resources import NOTHING, ResourceSet, format_units


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """A mesh that accepts a kind of work, with one of its flavors."""

    view: MeshView
    verdict: MeshVerdict  #: As if the inputs were there.
    pool: PoolRecord
    load: int  #: Work before this one, in millionths of the mesh.
    run_ms: int  #: Estimated run time of a stage there; if only quota is missing, on the mesh where quota comes free first.
    running: int  #: Number of stages that run there at once.
    grade: Grade  #: Grade of the flavor there.
    is_first: bool = True  #: Its verdict is the mesh's verdict.

    @property
    def graded(self) -> Graded:
        """The flavor with its grade."""
        return Graded(self.pool.flavor, self.grade)


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Verdicts of all meshes on a kind of work, wherever its inputs are."""

    request: RoutingRequest
    verdicts: tuple[MeshVerdict, ...]  #: One for each mesh, by id.
    accepting: tuple[Acceptance, ...]  #: By id; one for each mesh, or for each mesh and flavor if flavors have an order.
    rules: CostRules
    has_choice: bool = False  #: Flavors have an order, and there are several of them.
    absent: tuple[AbsentMesh, ...] = ()  #: Known meshes that are absent.
    unheld: str = ""  #: Message about the first resource of the work that no mesh has; empty if each is there, or none is known.


def survey(
    request: RoutingRequest, snapshot: FederationSnapshot, rules: CostRules = COST_RULES, headroom: Headroom | None = None
) -> Survey:
    """Return the verdicts of all meshes; `request.near` is ignored. Pure.

    Args:
        headroom: Headroom on the same snapshot, shared by surveys of several kinds of work.
    """
    views = sorted(snapshot.meshes, key=lambda view: view.record.mesh)
    typical_ms = typical_run_ms((view.condition.pace for view in views), rules)
    paces = [_Pace(view.condition.pace.run_ms if view.condition.pace is not None else typical_ms, view.claimed) for view in views]
    asking = _Asking(request, snapshot.at_ms, rules.queue_max, headroom or Headroom(snapshot), _fastest(views, paces))
    verdicts: list[MeshVerdict] = []
    accepting: list[Acceptance] = []
    for view, pace in zip(views, paces, strict=True):
        verdict, accepted = asking.ask(view, pace)
        verdicts.append(verdict)
        accepting.extend(accepted)
    has_choice = bool(request.settings.flavors) and len({accepted.pool.flavor for accepted in accepting}) > 1
    return Survey(
        request=request,
        verdicts=tuple(verdicts),
        accepting=tuple(accepting),
        rules=rules,
        has_choice=has_choice,
        absent=snapshot.absent,
        unheld="" if accepting else _unheld(request.slot, snapshot.resources()),
    )


def _unheld(slot: ResourceSet, known: frozenset[str]) -> str:
    lacking = next((name for name in slot if name not in known), None) if known else None
    return unheld(NO_MESH_HAS, lacking, known) if lacking is not None else ""


class _Pace(NamedTuple):
    """Pace at which running stages end."""

    run_ms: int  #: Estimated run time of a stage.
    running: int  #: Number of stages that run at once.


def _fastest(views: Iterable[MeshView], paces: Iterable[_Pace]) -> dict[FlavorName, _Pace]:
    """Return by flavor the pace of the mesh where quota comes free first, since free quota may be used wherever the flavor is."""
    fastest: dict[FlavorName, _Pace] = {}
    for view, pace in zip(views, paces, strict=True):
        for flavor in {pool.flavor for pool in view.record.pools} if pace.running and view.alive else ():
            other = fastest.setdefault(flavor, pace)
            if pace.run_ms * other.running < other.run_ms * pace.running:
                fastest[flavor] = pace
    return fastest


@dataclass(frozen=True, slots=True)
class _Asking:
    """Checks of each mesh for one kind of work."""

    request: RoutingRequest
    now_ms: int
    queue_max: int
    headroom: Headroom
    fastest: Mapping[FlavorName, _Pace]
    borrowings: dict[FlavorName, Borrowing] = field(default_factory=dict)

    def ask(self, view: MeshView, pace: _Pace) -> tuple[MeshVerdict, tuple[Acceptance, ...]]:
        """Return the mesh's verdict, and the pools that accept the work."""
        refusal = refusal_of(self.request, view, self.now_ms, self.queue_max, self.headroom.crowded.get(view.record.mesh, ()))
        if refusal is None:
            return self._pools(view, pace)
        reason, detail = refusal
        if reason in PASSING and not (by_pools := self._pools(view, pace)[0]).could_accept:
            return by_pools, ()
        held_ms = view.flapping_ms(self.now_ms) if reason is Reason.MESH_FLAPPING else 0
        return MeshVerdict(mesh=view.record.mesh, reason=reason, detail=detail, wait_ms=held_ms), ()

    def _pools(self, view: MeshView, pace: _Pace) -> tuple[MeshVerdict, tuple[Acceptance, ...]]:
        """Return the verdict of the best pool: one that could start the work, otherwise one where it would wait.

        If flavors have an order, the best pool of each flavor accepts the work.
        """
        request, mesh = self.request, view.record.mesh
        pools = sorted(view.record.pools, key=lambda pool: pool.pool)
        holding = [pool for pool in pools if holds(request, pool)]
        if not holding:
            return MeshVerdict(mesh=mesh, reason=Reason.POOL_TOO_SMALL, detail=words_of_pools(request, view.record)), ()
        too_large = words_of_nodes(request.slot, view.record, request.gang)
        if too_large is not None:
            return MeshVerdict(mesh=mesh, reason=Reason.NO_NODE_FITS, detail=too_large), ()
        judged = [(*self._judge(view, pool, pace), pool) for pool in holding]
        accepting = [each for each in judged if each[0].accepts]
        if not accepting:
            return min((verdict for verdict, *_ in judged), key=lambda verdict: verdict.reason not in PASSING), ()
        accepting.sort(key=lambda each: (each[0].reason is not None, -each[0].grantable_slots, each[2].pool))
        load, first = load_before(request.slot, view, NOTHING), accepting[0][0]
        kept = {pool.flavor: (verdict, grade, pool) for verdict, grade, pool in reversed(accepting)}
        taken = kept.values() if request.settings.flavors else accepting[:1]
        return first, tuple(
            Acceptance(
                view=view,
                verdict=verdict,
                pool=pool,
                load=load,
                run_ms=turns.run_ms,
                running=turns.running,
                grade=grade,
                is_first=verdict is first,
            )
            for verdict, grade, pool in taken
            for turns in (self._turns(verdict, pace),)
        )

    def _turns(self, verdict: MeshVerdict, pace: _Pace) -> _Pace:
        """Return the pace that ends the wait. With room and without quota, no stage of that mesh has to end."""
        lacks_quota_alone = verdict.reason is Reason.QUOTA_EXHAUSTED and verdict.free_slots > 0
        return self.fastest.get(verdict.flavor, pace) if lacks_quota_alone and verdict.flavor is not None else pace

    def _judge(self, view: MeshView, pool: PoolRecord, pace: _Pace) -> tuple[MeshVerdict, Grade]:
        """Return verdict and grade of a pool that is large enough when empty, by quota limits, quota in use, and room."""
        mesh, slot, flavor, tenant = view.record.mesh, self.request.slot, pool.flavor, self.request.tenant
        if slot and self.headroom.is_closed(tenant, flavor):
            words = words_of_closed(tenant, flavor, next(iter(slot)))
            return MeshVerdict(mesh=mesh, reason=Reason.FLAVOR_CLOSED, detail=words), WORST
        grantable = {name: self.headroom.grantable(tenant, flavor, name) for name in slot}
        short = _short(slot, {name: quota.potential for name, quota in grantable.items()})
        if short is not None:
            words = f"{tenant} can be granted at most {short} of flavor {flavor}, even if no other tenant uses any"
            return MeshVerdict(mesh=mesh, reason=Reason.QUOTA_TOO_SMALL, detail=words), WORST
        if slot and view.record.leases_full and not self.headroom.holds(mesh, tenant, flavor):
            words = f"it is at its lease limit, with all leases in use and none of {tenant} for flavor {flavor}"
            return MeshVerdict(mesh=mesh, reason=Reason.LEASES_AT_LIMIT, detail=words), WORST
        # After a loss of nodes a mesh may report more use than capacity; that is no room, not an error.
        free = {name: pool.free(name, self.request.priority, is_gang=self.request.gang is not None) for name in slot}
        available = {name: quota.available for name, quota in grantable.items()}
        borrowing = self._borrowing(flavor)
        reason, words = _wait(self.request, pool, available, free, borrowing)
        grade = Grade(Mode.FIT, borrowing.level) if reason is None else self._waiting_grade(mesh, flavor, free, borrowing)
        if grade.mode is Mode.RECLAIM:
            where = "" if slot <= ResourceSet(free) else " there"
            words = f"{words}; borrowers{where} hold quota of {tenant}, which can be reclaimed"
        free_slots = min([free[name] // units for name, units in slot.items()], default=0)
        grantable_slots = min([free_slots, *(available[name] // units for name, units in slot.items())])
        verdict = MeshVerdict(
            mesh=mesh, reason=reason, detail=words, pool=pool.pool, flavor=flavor, grantable_slots=grantable_slots, free_slots=free_slots
        )
        turns = self._turns(verdict, pace)
        return replace(verdict, wait_ms=wait_behind_ms(slot, view, grantable_slots, turns.run_ms, NOTHING, running=turns.running)), grade

    def _waiting_grade(self, mesh: MeshId, flavor: FlavorName, free: Mapping[str, int], borrowing: Borrowing) -> Grade:
        """Return RECLAIM if the tenant is entitled to the quota and others hold as much borrowed quota there as the pool lacks."""
        tenant, policies = self.request.tenant, self.request.settings.policies
        is_entitled = borrowing.is_entitled and policies.reclaim is PreemptionMode.ANY
        gives = is_entitled and all(
            units <= free[name] or units <= free[name] + self.headroom.borrowed_at(mesh, flavor, name, tenant)
            for name, units in self.request.slot.items()
        )
        return Grade(Mode.RECLAIM if gives else Mode.NO_RECLAIM_CANDIDATES, borrowing.level)

    def _borrowing(self, flavor: FlavorName) -> Borrowing:
        known = self.borrowings.get(flavor)
        if known is None:
            self.borrowings[flavor] = known = self.headroom.borrowing(self.request.tenant, flavor, self.request.slot)
        return known


def _wait(
    request: RoutingRequest, pool: PoolRecord, available: Mapping[str, int], free: Mapping[str, int], borrowing: Borrowing
) -> tuple[Reason | None, str]:
    """Return why the work would wait in the pool, in words; no reason if it could start."""
    short = _short(request.slot, available)
    if short is not None:
        words = f"would wait in pool {pool.pool}: the quota of {request.tenant} is in use, {short} of flavor {pool.flavor} left"
        return Reason.QUOTA_EXHAUSTED, words
    short = _short(request.slot, free)
    if short is not None:
        return Reason.POOL_BUSY, f"would wait in pool {pool.pool}: it is full now, {short} free"
    how = "by borrowing" if borrowing.level else "within its own quota"
    return None, f"could start now in pool {pool.pool}, {how} of flavor {pool.flavor}"


def _short(slot: ResourceSet, room: Mapping[str, int]) -> str | None:
    """Describe the first resource of which `room` holds less than a slot; None if the slot fits."""
    for name, units in slot.items():
        if room[name] < units:
            return f"{format_units(name, room[name])} {name} (needs {format_units(name, units)})"
    return None
