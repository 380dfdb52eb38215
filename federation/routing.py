"""Which mesh gets a piece of work: a snapshot in; a mesh, or a named reason, out.

Every mesh is asked the same questions in the same order, and the first "no" is its verdict: labels, tenants, is it there,
is it draining, is it steady, could a pool hold the work when empty, could the tenant ever be granted as much. A mesh without
a "no" accepts the work; if its pools are full or the quota is in use just now, the work would wait there, and the verdict
says so, and for how long about.

Of those that accept, the one that costs the least time is taken: waiting there, and bringing the inputs there that lie
elsewhere (`federation.estimates` has the formula). Data so hold work at their mesh when moving them takes longer than
waiting beside them, and not else. At the same cost it is the one where most of the inputs lie; then the one with the least
work before it, measured against its size; then the one with the most room.

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
from federation.snapshot import MeshView, PoolRecord, Snapshot
from mesh.ids import FlavorName, MeshId, PoolName, TenantPath
from mesh.labels import mismatch
from mesh.reasons import Reason
from mesh.resources import NOTHING, ResourceSet, format_units

#: Verdicts under which the mesh accepts the work, which then waits there.
WAITS_THERE = frozenset({Reason.QUOTA_EXHAUSTED, Reason.CAPACITY_BUSY})

#: Loads are compared in millionths of a pool.
_PARTS = 1_000_000
#: What the tenant could ever hold and would get now, of the flavors that were looked at.
_Quotas = dict[FlavorName, tuple[ResourceSet, ResourceSet]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a piece of work asks of a mesh."""

    tenant: TenantPath
    slot: ResourceSet  #: The least that must be granted at once for it to start.
    labels: Mapping[str, str] = field(default_factory=dict)  #: See `mesh.labels.mismatch`.
    mesh: MeshId | None = None  #: Only this one, when set.
    near: Mapping[MeshId, int] = field(default_factory=dict)  #: Bytes of its inputs by the mesh that they lie in.


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
    reason: Reason  #: ONLY_FIT, LOCALITY or MOST_HEADROOM.
    detail: str  #: In words.
    verdicts: tuple[Verdict, ...]  #: One for each mesh, by id.


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """No mesh accepts the work as things stand."""

    reason: Reason  #: The one reason that all meshes gave (or the pinned one), else NO_MESH_FITS.
    detail: str  #: What each mesh said, in words.
    verdicts: tuple[Verdict, ...]  #: One for each mesh, by id.


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """A mesh that accepts a kind of work."""

    view: MeshView
    verdict: Verdict  #: As if the inputs were there.
    pool: PoolRecord
    load: int  #: Work before this one, in millionths of the mesh.
    run_ms: int  #: How long a stage runs there, about.


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What every mesh says to a kind of work, wherever its inputs are."""

    demand: Demand
    verdicts: tuple[Verdict, ...]  #: One for each mesh, by id.
    accepting: tuple[Acceptance, ...]  #: By id.
    rules: CostRules


class _Fit(NamedTuple):
    """A mesh that accepts, with what it is compared by, in this order: the least is the best.

    A tuple, because there is one for each mesh and each piece of work, and tuples are made and compared at once.
    """

    cost_ms: int  #: How long until the work could begin, about.
    far: int  #: Bytes of the inputs that are there already, negated.
    load: int  #: Work before this one, in millionths of the mesh.
    full: int  #: Slots that could be granted there now, negated.
    mesh: MeshId  #: No two are alike, so nothing below is ever compared.
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


def survey(demand: Demand, snapshot: Snapshot, rules: CostRules = COST_RULES) -> Survey:
    """Ask every mesh; `demand.near` is not looked at. Pure."""
    views = sorted(snapshot.meshes, key=lambda view: view.record.mesh)
    typical_ms = typical_run_ms((view.standing.pace for view in views), rules)
    verdicts, accepting = [], []
    quotas: _Quotas = {}
    for view in views:
        run_ms = view.standing.pace.run_ms if view.standing.pace is not None else typical_ms
        verdict, pool = _judge(demand, view, snapshot, quotas, run_ms, rules.queue_max)
        verdicts.append(verdict)
        if pool is not None:
            load = _load(demand.slot, view, NOTHING)
            accepting.append(Acceptance(view=view, verdict=verdict, pool=pool, load=load, run_ms=run_ms))
    return Survey(demand=demand, verdicts=tuple(verdicts), accepting=tuple(accepting), rules=rules)


def choose(asked: Survey, near: Mapping[MeshId, int], planned: Mapping[MeshId, ResourceSet] | None = None) -> Routed | Refused:
    """Pick the mesh for a piece of the work that was asked about. Pure.

    Args:
        near: Bytes of its inputs by the mesh that they lie in.
        planned: See `route`.
    """
    if not asked.accepting:
        return _refuse(asked.demand, asked.verdicts)
    fits = _fits(asked, near, planned or {})
    best, *others = nsmallest(2, fits)
    told = {fit.mesh: _told(fit) for fit in fits if fit.transfer_ms or fit.wait_ms != fit.accepted.verdict.wait_ms}
    verdicts = tuple([told.get(verdict.mesh, verdict) for verdict in asked.verdicts]) if told else asked.verdicts
    reason, detail = _why(best, others)
    pool = best.accepted.pool
    return Routed(mesh=best.mesh, pool=pool.pool, flavor=pool.flavor, reason=reason, detail=detail, verdicts=verdicts)


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
        fits.append(_Fit(waits_ms + moves_ms, -here, load, -verdict.room, mesh, waits_ms, moves_ms, accepted))
    return fits


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


def _judge(
    demand: Demand, view: MeshView, snapshot: Snapshot, quotas: _Quotas, run_ms: int, queue_max: int
) -> tuple[Verdict, PoolRecord | None]:
    """The mesh's verdict, and the pool that takes the work when the mesh accepts it."""
    refusal = _closed(demand, view, snapshot.at_ms, queue_max)
    if refusal is None:
        return _judge_pools(demand, view, snapshot, quotas, run_ms)
    reason, detail = refusal
    held_ms = view.unsteady_ms(snapshot.at_ms) if reason is Reason.MESH_UNSTEADY else 0
    return Verdict(mesh=view.record.mesh, reason=reason, detail=detail, wait_ms=held_ms), None


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


def _judge_pools(demand: Demand, view: MeshView, snapshot: Snapshot, quotas: _Quotas, run_ms: int) -> tuple[Verdict, PoolRecord | None]:
    """The verdict of the pool that suits best: one that could start the work, else one where it would wait."""
    mesh = view.record.mesh
    pools = sorted(view.record.pools, key=lambda pool: pool.pool)
    holding = [pool for pool in pools if demand.slot <= pool.capacity]
    if not holding:
        sizes = ", ".join(f"{pool.pool} {pool.capacity!r}" for pool in pools) or "none"
        return Verdict(
            mesh=mesh, reason=Reason.CAPACITY_TOO_SMALL, detail=f"needs {demand.slot!r}, more than any pool holds when empty ({sizes})"
        ), None
    judged = [(_judge_pool(demand, view, pool, snapshot, quotas, run_ms), pool) for pool in holding]
    accepting = [(verdict, pool) for verdict, pool in judged if verdict.accepts]
    if not accepting:
        return judged[0][0], None
    return min(accepting, key=lambda pair: (pair[0].reason is not None, -pair[0].room, pair[1].pool))


def _judge_pool(demand: Demand, view: MeshView, pool: PoolRecord, snapshot: Snapshot, quotas: _Quotas, run_ms: int) -> Verdict:
    """A pool that is large enough when empty: would the quota ever do, does it do now, is there room now?"""
    mesh, slot = view.record.mesh, demand.slot
    if pool.flavor not in quotas:
        quotas[pool.flavor] = _quota(demand, pool.flavor, snapshot)
    potential, available = quotas[pool.flavor]
    short = _short(slot, potential)
    if short is not None:
        words = f"{demand.tenant} can be granted at most {short} of flavor {pool.flavor}, even when nobody else uses any"
        return Verdict(mesh=mesh, reason=Reason.QUOTA_TOO_SMALL, detail=words)
    # A mesh may report more use than capacity after its nodes went away; that is no room, not an error.
    free = {name: max(0, pool.capacity[name] - pool.used[name]) for name in slot}
    reason, words = _wait(demand, pool, available, free)
    room = min([min(free[name], available[name]) // units for name, units in slot.items()], default=0)
    waits_ms = _expected_wait_ms(slot, view, room, run_ms, NOTHING)
    return Verdict(mesh=mesh, reason=reason, detail=words, pool=pool.pool, flavor=pool.flavor, room=room, wait_ms=waits_ms)


def _wait(demand: Demand, pool: PoolRecord, available: ResourceSet, free: Mapping[str, int]) -> tuple[Reason | None, str]:
    """Why the work would wait in the pool; no reason when it would not."""
    short = _short(demand.slot, available)
    if short is not None:
        words = f"would wait in pool {pool.pool}: the quota of {demand.tenant} is in use, {short} of flavor {pool.flavor} left"
        return Reason.QUOTA_EXHAUSTED, words
    short = _short(demand.slot, free)
    if short is not None:
        return Reason.CAPACITY_BUSY, f"would wait in pool {pool.pool}: it is full now, {short} free"
    return None, f"could start now in pool {pool.pool}"


def _quota(demand: Demand, flavor: FlavorName, snapshot: Snapshot) -> tuple[ResourceSet, ResourceSet]:
    """What the tenant could ever hold of the flavor, and what it would be granted now: only of what the slot asks for.

    A tenant that was taken out of the tree while its run goes on is granted nothing.
    """
    if demand.tenant not in snapshot.tree.tenants:
        return NOTHING, NOTHING
    tree, usage = snapshot.tree, snapshot.usage
    potential = {name: tree.potential(demand.tenant, (flavor, name)) for name in demand.slot}
    available = {name: max(0, tree.available(usage, demand.tenant, (flavor, name))) for name in demand.slot}
    return ResourceSet(potential), ResourceSet(available)


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
    words = best.accepted.verdict.detail
    if best.wait_ms:
        words = f"{words}; about {_seconds(best.wait_ms)} to wait"
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
