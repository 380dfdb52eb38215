"""Which mesh gets a piece of work: a snapshot in; a mesh, or a named reason, out.

Every mesh is asked the same questions in the same order, and the first "no" is its verdict: labels, tenants, is it there,
is it draining, is it steady, could a pool hold the work when empty, could the tenant ever be granted as much, is there a
lease to pay for it or place for one. A mesh without a "no" accepts the work; if its pools are full or the quota is in use
just now, the work would wait there, and the verdict says so, and for how long about.

Of those that accept, the one that costs the least time is taken: waiting there, and bringing the inputs there that lie
elsewhere (`federation.estimates` has the formula). Data so hold work at their mesh when moving them takes longer than
waiting beside them, and not else. At the same cost it is the one where most of the inputs lie; then the one with the least
work before it, measured against its size; then the one with the most room.

Before time, the flavor is chosen, as the work's tenant asks (`federation.flavor_choice`): among meshes at which the work would begin
at most `flavor_delay_ms` later than at the soonest one. Where others give back what is its own, their giving way counts as no wait.
Where it would wait for every flavor, time alone decides.

What the meshes say does not depend on where the inputs are, and is most of the work: `survey` asks them once for all work of
a kind, `choose` picks a mesh for each piece. `route` is both.

All in integers and by id at the end, so the same snapshot gives the same answer.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from heapq import nsmallest
from typing import NamedTuple

from federation.estimates import CostRules, transfer_ms, typical_run_ms, wait_ms
from federation.flavor_choice import Graded, search, words_of
from federation.headroom import Borrowing, Headroom
from federation.quota.flavors import WORST, Grade, Mode
from federation.quota.policies import NO_SETTINGS, Preempt, QueueSettings
from federation.snapshot import MeshView, PoolRecord, Snapshot
from mesh.ids import FlavorName, MeshId, PoolName, TenantPath
from mesh.labels import mismatch
from mesh.reasons import PASSING, Reason
from mesh.resources import NOTHING, ResourceSet, format_units

#: Verdicts under which the mesh accepts the work, which then waits there.
WAITS_THERE = frozenset({Reason.QUOTA_EXHAUSTED, Reason.CAPACITY_BUSY})

#: Loads are compared in millionths of a pool.
_PARTS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a piece of work asks of a mesh."""

    tenant: TenantPath
    slot: ResourceSet  #: The least that must be granted at once for it to start.
    labels: Mapping[str, str] = field(default_factory=dict)  #: See `mesh.labels.mismatch`.
    mesh: MeshId | None = None  #: Only this one, when set.
    near: Mapping[MeshId, int] = field(default_factory=dict)  #: Bytes of its inputs by the mesh that they lie in.
    settings: QueueSettings = NO_SETTINGS  #: Of its tenant. Without an order of flavors in it, they are all alike.


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What one mesh says to a demand."""

    mesh: MeshId
    reason: Reason | None  #: None: it could start now. One of `WAITS_THERE`: accepted, and would wait. Any other: refused.
    detail: str  #: In words.
    pool: PoolName | None = None  #: The pool that would take the work, when the mesh accepts it.
    flavor: FlavorName | None = None
    room: int = 0  #: How many slots could be granted there now, by quota and capacity.
    wait_ms: int = 0  #: How long the work would wait there, about; of an unsteady mesh: how long until it is asked again.
    transfer_ms: int = 0  #: How long inputs that lie elsewhere would be on the way there, about; of meshes that accept.

    @property
    def accepts(self) -> bool:
        """Whether the work may go there: at once, or to wait there."""
        return self.reason is None or self.reason in WAITS_THERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """The work goes to this mesh."""

    mesh: MeshId
    pool: PoolName
    flavor: FlavorName
    reason: Reason  #: ONLY_FIT, FLAVOR_ORDER, LOCALITY or MOST_HEADROOM.
    detail: str  #: In words.
    verdicts: tuple[Verdict, ...]  #: One for each mesh, by id.
    flavor_why: str = ""  #: With FLAVOR_ORDER: what spoke for the flavor, in words.


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """No mesh accepts the work as things stand."""

    reason: Reason  #: The one reason that all meshes gave (or the pinned one), else NO_MESH_FITS.
    detail: str  #: What each mesh said, in words.
    verdicts: tuple[Verdict, ...]  #: One for each mesh, by id.


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """A mesh that accepts a kind of work, with one of its flavors."""

    view: MeshView
    verdict: Verdict  #: As if the inputs were there.
    pool: PoolRecord
    load: int  #: Work before this one, in millionths of the mesh.
    run_ms: int  #: How long a stage runs there, about.
    grade: Grade  #: How well the flavor would do there.
    is_first: bool = True  #: Its verdict is the one that the mesh gives.

    @property
    def graded(self) -> Graded:
        """Its flavor with the grade."""
        return Graded(self.pool.flavor, self.grade)


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What every mesh says to a kind of work, wherever its inputs are."""

    demand: Demand
    verdicts: tuple[Verdict, ...]  #: One for each mesh, by id.
    accepting: tuple[Acceptance, ...]  #: By id; one for each mesh, or for each mesh and flavor where flavors have an order.
    rules: CostRules
    has_choice: bool = False  #: Flavors have an order, and there are several of them.


class _Fit(NamedTuple):
    """A mesh that accepts, with what it is compared by, in this order: the least is the best.

    A tuple, because there is one for each mesh and each piece of work, and tuples are made and compared at once.
    """

    cost_ms: int  #: How long until the work could begin, about.
    far: int  #: Bytes of the inputs that are there already, negated.
    load: int  #: Work before this one, in millionths of the mesh.
    full: int  #: Slots that could be granted there now, negated.
    mesh: MeshId
    pool: PoolName  #: No two of a mesh are alike, so nothing below is ever compared.
    wait_ms: int
    transfer_ms: int
    accepted: Acceptance


#: When nobody says otherwise.
COST_RULES = CostRules()


def route(
    demand: Demand, snapshot: Snapshot, planned: Mapping[MeshId, ResourceSet] | None = None, rules: CostRules = COST_RULES
) -> Routed | Refused:
    """Choose a mesh for the demand.

    Pure: the same arguments give the same answer.

    Args:
        planned: What the caller has sent to meshes since the snapshot was taken; counts as work that comes first.
    """
    return choose(survey(demand, snapshot, rules), demand.near, planned)


def survey(demand: Demand, snapshot: Snapshot, rules: CostRules = COST_RULES, headroom: Headroom | None = None) -> Survey:
    """Ask every mesh; `demand.near` is not looked at. Pure.

    Args:
        headroom: Over the same snapshot, when several kinds of work are asked about.
    """
    views = sorted(snapshot.meshes, key=lambda view: view.record.mesh)
    typical_ms = typical_run_ms((view.standing.pace for view in views), rules)
    asking = _Asking(demand, snapshot.at_ms, rules.queue_max, headroom or Headroom(snapshot))
    verdicts: list[Verdict] = []
    accepting: list[Acceptance] = []
    for view in views:
        run_ms = view.standing.pace.run_ms if view.standing.pace is not None else typical_ms
        verdict, accepted = asking.ask(view, run_ms)
        verdicts.append(verdict)
        accepting.extend(accepted)
    has_choice = bool(demand.settings.flavors) and len({accepted.pool.flavor for accepted in accepting}) > 1
    return Survey(demand=demand, verdicts=tuple(verdicts), accepting=tuple(accepting), rules=rules, has_choice=has_choice)


def choose(
    asked: Survey, near: Mapping[MeshId, int], planned: Mapping[MeshId, ResourceSet] | None = None, *, pieces: int = 1
) -> Routed | Refused:
    """Pick the mesh for a piece of the work that was asked about. Pure.

    Args:
        near: Bytes of its inputs by the mesh that they lie in.
        planned: See `route`.
        pieces: How many like it get this answer. A flavor with room for all of them goes before one with room for some.
    """
    if not asked.accepting:
        return _refuse(asked.demand, asked.verdicts)
    fits = _fits(asked, near, planned or {})
    best, *others = nsmallest(2, fits)
    passed = best
    if asked.has_choice:
        best = min(_of_one_flavor(asked, fits, pieces))
        others = nsmallest(1, [fit for fit in fits if fit.mesh != best.mesh])
    told = {fit.mesh: _told(fit) for fit in fits if fit.accepted.is_first and _is_told_anew(fit)}
    if not best.accepted.is_first or _is_told_anew(best):
        told[best.mesh] = _told(best)
    verdicts = tuple([told.get(verdict.mesh, verdict) for verdict in asked.verdicts]) if told else asked.verdicts
    pool, flavor_why = best.accepted.pool, ""
    reason, detail = _why(best, others)
    if passed.accepted.pool.flavor != pool.flavor:
        flavor_why = words_of(best.accepted.graded, passed.accepted.graded)
        reason, detail = Reason.FLAVOR_ORDER, f"{_words(best)}; {flavor_why}"
    return Routed(
        mesh=best.mesh, pool=pool.pool, flavor=pool.flavor, reason=reason, detail=detail, verdicts=verdicts, flavor_why=flavor_why
    )


def _fits(asked: Survey, near: Mapping[MeshId, int], planned: Mapping[MeshId, ResourceSet]) -> list[_Fit]:
    total = sum(near.values())
    all_far_ms = transfer_ms(total, asked.rules)
    fits = []
    for accepted in asked.accepting:
        verdict, mesh = accepted.verdict, accepted.view.record.mesh
        waits_ms, load, here = verdict.wait_ms, accepted.load, near.get(mesh, 0)
        if mesh in planned:
            ours = planned[mesh]
            waits_ms = _expected_wait_ms(asked.demand.slot, accepted.view, verdict.room, accepted.run_ms, ours)
            load = _load(asked.demand.slot, accepted.view, ours)
        moves_ms = transfer_ms(total - here, asked.rules) if here else all_far_ms
        fits.append(_Fit(waits_ms + moves_ms, -here, load, -verdict.room, mesh, accepted.pool.pool, waits_ms, moves_ms, accepted))
    return fits


def _of_one_flavor(asked: Survey, fits: list[_Fit], pieces: int) -> list[_Fit]:
    """Those near enough in time that have the flavor which the tenant's search finds; all, when it would wait for any flavor.

    First is looked at where all pieces could start at once, as a workload in a quota round is tried whole before it is shrunk.
    """
    latest_ms = min([fit.cost_ms for fit in fits]) + asked.rules.flavor_delay_ms
    in_time = [fit for fit in fits if (fit.transfer_ms if fit.accepted.grade.mode is Mode.RECLAIM else fit.cost_ms) <= latest_ms]
    settings = asked.demand.settings
    roomy = [fit for fit in in_time if fit.accepted.grade.mode is Mode.FIT and pieces <= -fit.full] if asked.demand.slot else []
    found = search([fit.accepted.graded for fit in roomy], settings) if pieces > 1 else None
    if found is None:
        found = search([fit.accepted.graded for fit in in_time], settings)
    return [fit for fit in in_time if fit.accepted.pool.flavor == found.flavor] if found is not None else fits


def _is_told_anew(fit: _Fit) -> bool:
    """Do this piece's inputs, or what is planned, change what the mesh says?"""
    return bool(fit.transfer_ms) or fit.wait_ms != fit.accepted.verdict.wait_ms


def _told(fit: _Fit) -> Verdict:
    """The verdict with what this piece's inputs and what is planned change in it."""
    kept = fit.accepted.verdict
    return Verdict(
        mesh=kept.mesh,
        reason=kept.reason,
        detail=kept.detail,
        pool=kept.pool,
        flavor=kept.flavor,
        room=kept.room,
        wait_ms=fit.wait_ms,
        transfer_ms=fit.transfer_ms,
    )


def _expected_wait_ms(slot: ResourceSet, view: MeshView, room: int, run_ms: int, planned: ResourceSet) -> int:
    """The wait behind the mesh's queue and behind what is planned for it."""
    if not slot:
        return 0  # What asks for nothing has room always.
    ours = max([planned[name] // units for name, units in slot.items()]) if planned else 0
    return wait_ms(waiting=view.waiting + ours, room=room, running=view.claimed, run_ms=run_ms)


def may_use(record_tenants: Iterable[str], tenant: TenantPath) -> bool:
    """Whether a mesh that is open to `record_tenants` (paths with all below them, or `*`) takes work of the tenant."""
    return any(allowed in ("*", tenant) or tenant.startswith(f"{allowed}/") for allowed in record_tenants)


@dataclass(frozen=True, slots=True)
class _Asking:
    """The questions to each mesh about one kind of work."""

    demand: Demand
    now_ms: int
    queue_max: int
    headroom: Headroom
    borrowings: dict[FlavorName, Borrowing] = field(default_factory=dict)

    def ask(self, view: MeshView, run_ms: int) -> tuple[Verdict, tuple[Acceptance, ...]]:
        """The mesh's verdict, and the pools that take the work when the mesh accepts it."""
        refusal = _closed(self.demand, view, self.now_ms, self.queue_max)
        if refusal is None:
            return self._pools(view, run_ms)
        reason, detail = refusal
        held_ms = view.unsteady_ms(self.now_ms) if reason is Reason.MESH_UNSTEADY else 0
        return Verdict(mesh=view.record.mesh, reason=reason, detail=detail, wait_ms=held_ms), ()

    def _pools(self, view: MeshView, run_ms: int) -> tuple[Verdict, tuple[Acceptance, ...]]:
        """The verdict of the pool that suits best: one that could start the work, else one where it would wait. Where flavors have
        an order, the best pool of each flavor takes the work."""
        demand, mesh = self.demand, view.record.mesh
        pools = sorted(view.record.pools, key=lambda pool: pool.pool)
        holding = [pool for pool in pools if demand.slot <= pool.capacity]
        if not holding:
            sizes = ", ".join(f"{pool.pool} {pool.capacity!r}" for pool in pools) or "none"
            words = f"needs {demand.slot!r}, more than any pool holds when empty ({sizes})"
            return Verdict(mesh=mesh, reason=Reason.CAPACITY_TOO_SMALL, detail=words), ()
        judged = [(*self._judge(view, pool, run_ms), pool) for pool in holding]
        accepting = [each for each in judged if each[0].accepts]
        if not accepting:
            return min((verdict for verdict, *_ in judged), key=lambda verdict: verdict.reason not in PASSING), ()
        accepting.sort(key=lambda each: (each[0].reason is not None, -each[0].room, each[2].pool))
        load, first = _load(demand.slot, view, NOTHING), accepting[0][0]
        kept = {pool.flavor: (verdict, grade, pool) for verdict, grade, pool in reversed(accepting)}
        taken = kept.values() if demand.settings.flavors else accepting[:1]
        return first, tuple(
            Acceptance(view=view, verdict=verdict, pool=pool, load=load, run_ms=run_ms, grade=grade, is_first=verdict is first)
            for verdict, grade, pool in taken
        )

    def _judge(self, view: MeshView, pool: PoolRecord, run_ms: int) -> tuple[Verdict, Grade]:
        """A pool that is large enough when empty: would the quota ever do, does it do now, is there room now?"""
        mesh, slot, flavor, tenant = view.record.mesh, self.demand.slot, pool.flavor, self.demand.tenant
        grantable = {name: self.headroom.grantable(tenant, flavor, name) for name in slot}
        short = _short(slot, {name: quota.potential for name, quota in grantable.items()})
        if short is not None:
            words = f"{tenant} can be granted at most {short} of flavor {flavor}, even when nobody else uses any"
            return Verdict(mesh=mesh, reason=Reason.QUOTA_TOO_SMALL, detail=words), WORST
        if slot and view.record.leases_full and not self.headroom.holds(mesh, tenant, flavor):
            words = f"it holds as many leases as it may, all of them in use, and none of {tenant} for flavor {flavor}"
            return Verdict(mesh=mesh, reason=Reason.LEASES_AT_LIMIT, detail=words), WORST
        # A mesh may report more use than capacity after its nodes went away; that is no room, not an error.
        free = {name: max(0, pool.capacity[name] - pool.used[name]) for name in slot}
        available = {name: quota.available for name, quota in grantable.items()}
        borrowing = self._borrowing(flavor)
        reason, words = _wait(self.demand, pool, available, free, borrowing)
        grade = Grade(Mode.FIT, borrowing.level) if reason is None else self._waiting_grade(mesh, flavor, free, borrowing)
        if grade.mode is Mode.RECLAIM:
            words = f"{words}; others there hold what is its own, and would have to give it back"
        room = min([min(free[name], available[name]) // units for name, units in slot.items()], default=0)
        waits_ms = _expected_wait_ms(slot, view, room, run_ms, NOTHING)
        return Verdict(mesh=mesh, reason=reason, detail=words, pool=pool.pool, flavor=flavor, room=room, wait_ms=waits_ms), grade

    def _waiting_grade(self, mesh: MeshId, flavor: FlavorName, free: Mapping[str, int], borrowing: Borrowing) -> Grade:
        """Would others give way there: is it entitled, and do they hold as much of the pool as is missing?"""
        tenant, policies = self.demand.tenant, self.demand.settings.policies
        is_entitled = borrowing.is_entitled and policies.reclaim is Preempt.ANY
        gives = is_entitled and all(
            units <= free[name] or units <= free[name] + self.headroom.borrowed_at(mesh, flavor, name, tenant)
            for name, units in self.demand.slot.items()
        )
        return Grade(Mode.RECLAIM if gives else Mode.NO_VICTIMS, borrowing.level)

    def _borrowing(self, flavor: FlavorName) -> Borrowing:
        known = self.borrowings.get(flavor)
        if known is None:
            self.borrowings[flavor] = known = self.headroom.borrowing(self.demand.tenant, flavor, self.demand.slot)
        return known


def _closed(demand: Demand, view: MeshView, now_ms: int, queue_max: int) -> tuple[Reason, str] | None:
    """Why the mesh does not take the work whatever its size; None when it might."""
    record = view.record
    if demand.mesh is not None and demand.mesh != record.mesh:
        return Reason.LABEL_MISMATCH, f"the work is pinned to {demand.mesh}"
    lacking = mismatch(demand.labels, record.labels)
    if lacking is not None:
        return Reason.LABEL_MISMATCH, lacking
    if not may_use(record.tenants, demand.tenant):
        return Reason.TENANT_NOT_ALLOWED, f"open to {', '.join(record.tenants) or 'nobody'}, not to {demand.tenant}"
    if not view.alive:
        return Reason.MESH_UNREACHABLE, "its heartbeat is overdue"  # Without the age: the words go into events, once per change.
    if view.is_draining:
        why = view.standing.drain.reason if view.standing.drain is not None else ""
        return Reason.MESH_DRAINING, f"it is draining and takes nothing new{f' ({why})' if why else ''}"
    if view.unsteady_ms(now_ms):
        return Reason.MESH_UNSTEADY, _unsteady(view)
    if view.waiting >= queue_max:
        return Reason.QUEUE_FULL, f"{queue_max} stages or more wait for it"
    return None


def _unsteady(view: MeshView) -> str:
    """Until when, and not how much longer: the words go into events, once per change."""
    kept = view.standing.steadiness
    assert kept is not None  # noqa: S101  asked only of a mesh that is on probation
    until = datetime.fromtimestamp(kept.steady_ms / 1_000, tz=timezone.utc).strftime("%H:%M:%SZ")
    times = "once" if len(kept.losses_ms) == 1 else f"{len(kept.losses_ms)} times"
    return f"it was lost {times} lately and came back; it gets nothing new before {until}"


def _wait(
    demand: Demand, pool: PoolRecord, available: Mapping[str, int], free: Mapping[str, int], borrowing: Borrowing
) -> tuple[Reason | None, str]:
    """Why the work would wait in the pool; no reason when it would not."""
    short = _short(demand.slot, available)
    if short is not None:
        words = f"would wait in pool {pool.pool}: the quota of {demand.tenant} is in use, {short} of flavor {pool.flavor} left"
        return Reason.QUOTA_EXHAUSTED, words
    short = _short(demand.slot, free)
    if short is not None:
        return Reason.CAPACITY_BUSY, f"would wait in pool {pool.pool}: it is full now, {short} free"
    how = "by borrowing" if borrowing.level else "within its own quota"
    return None, f"could start now in pool {pool.pool}, {how} of flavor {pool.flavor}"


def _short(slot: ResourceSet, room: Mapping[str, int]) -> str | None:
    """The first resource of which `room` holds less than a slot, in words; None when the slot fits."""
    for name, units in slot.items():
        if room[name] < units:
            return f"{format_units(name, room[name])} {name} (needs {format_units(name, units)})"
    return None


def _load(slot: ResourceSet, view: MeshView, planned: ResourceSet) -> int:
    """Work that comes first, in millionths of the mesh's capacity: what is planned, and a slot for each waiting stage.

    Nobody knows here how large the waiting stages are, so they count as large as this one.
    """
    if not view.waiting and not planned:
        return 0
    pools = view.record.pools
    before = [(planned[name] + view.waiting * units, sum([pool.capacity[name] for pool in pools])) for name, units in slot.items()]
    return max([units * _PARTS // held for units, held in before if held], default=view.waiting)


def _why(best: _Fit, others: list[_Fit]) -> tuple[Reason, str]:
    """The first comparison that set the best apart from the second, as a reason and in words."""
    words = _words(best)
    if not others:
        return Reason.ONLY_FIT, words
    second = others[0]
    if best.cost_ms < second.cost_ms and best.wait_ms < second.wait_ms:
        return Reason.MOST_HEADROOM, f"{words}; elsewhere it would wait about {_seconds(second.wait_ms)}"
    if best.cost_ms < second.cost_ms or best.far < second.far:
        return Reason.LOCALITY, f"{words}; most of its inputs are there"
    if best.load < second.load:
        return Reason.MOST_HEADROOM, f"{words}; less work is before it than elsewhere"
    return Reason.MOST_HEADROOM, words


def _words(best: _Fit) -> str:
    words = best.accepted.verdict.detail
    return f"{words}; about {_seconds(best.wait_ms)} to wait" if best.wait_ms else words


def _seconds(span_ms: int) -> str:
    return f"{-(-span_ms // 100) / 10:g} s"


def _refuse(demand: Demand, verdicts: tuple[Verdict, ...]) -> Refused:
    asked = [verdict for verdict in verdicts if demand.mesh in (None, verdict.mesh)]
    if not asked:
        if demand.mesh is not None:
            return Refused(reason=Reason.MESH_UNREACHABLE, detail=f"{demand.mesh}: no mesh of this name has joined", verdicts=verdicts)
        return Refused(reason=Reason.NO_MESH_FITS, detail="no mesh has joined", verdicts=verdicts)
    reasons = {verdict.reason for verdict in asked}
    common = reasons.pop() if len(reasons) == 1 else None
    return Refused(
        reason=common or Reason.NO_MESH_FITS,
        detail="; ".join(f"{verdict.mesh}: {verdict.detail}" for verdict in asked),
        verdicts=verdicts,
    )
