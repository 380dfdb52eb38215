"""Which mesh gets a piece of work: a snapshot in; a mesh, or a named reason, out.

Of the meshes that accept it (`federation.routing.survey`), the one that costs the least time is taken: waiting there, and bringing the
inputs there that lie elsewhere (`federation.estimates` has the formula). Data so hold work at their mesh when moving them takes longer than
waiting beside them, and not else. At the same cost it is the one where most of the inputs lie; then the one with the least
work before it, measured against its size; then the one that could grant the most; then the one with the most room, since quota that is
missing may come free anywhere, and room only there.

Before time, the flavor is chosen, as the work's tenant asks (`federation.routing.flavor_choice`): among meshes at which the work would
begin at most `flavor_delay_ms` later than at the soonest one. Where others give back what is its own, their giving way counts as no wait.
Where it would wait for every flavor, time alone decides.

What the meshes say does not depend on where the inputs are, and is most of the work: `survey` asks them once for all work of
a kind, `choose` picks a mesh for each piece. `route` is both.

All in integers and by id at the end, so the same snapshot gives the same answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import nsmallest
from typing import NamedTuple

from federation.estimates import COST_RULES, CostRules, transfer_ms
from federation.quota.flavors import Mode
from federation.routing.demand import Demand
from federation.routing.flavor_choice import search, words_of
from federation.routing.openness import words_of_absence
from federation.routing.survey import Acceptance, Survey, survey
from federation.routing.verdicts import Verdict
from federation.routing.work_before import load_before, wait_behind_ms
from federation.snapshot import Snapshot
from mesh.ids import FlavorName, MeshId, PoolName
from mesh.reasons import Reason
from mesh.resources import ResourceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """The work goes to this mesh."""

    mesh: MeshId
    pool: PoolName
    flavor: FlavorName
    reason: Reason  #: ONLY_FIT, FLAVOR_ORDER, LOCALITY, MOST_HEADROOM, or SHORTEST_WAIT where it cannot start now.
    detail: str  #: In words.
    verdicts: tuple[Verdict, ...]  #: One for each mesh, by id.
    flavor_why: str = ""  #: With FLAVOR_ORDER: what spoke for the flavor, in words.


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """No mesh accepts the work as things stand."""

    reason: Reason  #: The one reason that all meshes gave (or the pinned one), else NO_MESH_FITS.
    detail: str  #: What each mesh said, in words.
    verdicts: tuple[Verdict, ...]  #: One for each mesh, by id; also for those that are not there and might take it.


class _Fit(NamedTuple):
    """A mesh that accepts, with what it is compared by, in this order: the least is the best.

    A tuple, because there is one for each mesh and each piece of work, and tuples are made and compared at once.
    """

    cost_ms: int  #: How long until the work could begin, about.
    far: int  #: Bytes of the inputs that are there already, negated.
    load: int  #: Work before this one, in millionths of the mesh.
    full: int  #: Slots that could be granted there now, negated.
    idle: int  #: Slots that there is room for, though perhaps no quota, negated.
    mesh: MeshId
    pool: PoolName  #: No two of a mesh are alike, so nothing below is ever compared.
    wait_ms: int
    transfer_ms: int
    accepted: Acceptance


def route(
    demand: Demand, snapshot: Snapshot, planned: Mapping[MeshId, ResourceSet] | None = None, rules: CostRules = COST_RULES
) -> Routed | Refused:
    """Choose a mesh for the demand.

    Pure: the same arguments give the same answer.

    Args:
        planned: What the caller has sent to meshes since the snapshot was taken; counts as work that comes first.
    """
    return choose(survey(demand, snapshot, rules), demand.near, planned)


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
        return _refuse(asked.demand, _with_absent(asked), asked.unheld)
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
            waits_ms = wait_behind_ms(asked.demand.slot, accepted.view, verdict.room, accepted.run_ms, ours, running=accepted.running)
            load = load_before(asked.demand.slot, accepted.view, ours)
        moves_ms = transfer_ms(total - here, asked.rules) if here else all_far_ms
        room, idle, pool = -verdict.room, -verdict.idle, accepted.pool.pool
        fits.append(_Fit(waits_ms + moves_ms, -here, load, room, idle, mesh, pool, waits_ms, moves_ms, accepted))
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
        idle=kept.idle,
        wait_ms=fit.wait_ms,
        transfer_ms=fit.transfer_ms,
    )


def _why(best: _Fit, others: list[_Fit]) -> tuple[Reason, str]:
    """The first comparison that set the best apart from the second, as a reason and in words."""
    words, most = _words(best), Reason.MOST_HEADROOM if best.accepted.verdict.reason is None else Reason.SHORTEST_WAIT
    if not others:
        return Reason.ONLY_FIT, words
    second = others[0]
    if best.cost_ms < second.cost_ms and best.wait_ms < second.wait_ms:
        return most, f"{words}; elsewhere it would wait about {_seconds(second.wait_ms)}"
    if best.cost_ms < second.cost_ms or best.far < second.far:
        return Reason.LOCALITY, f"{words}; most of its inputs are there"
    if best.load < second.load:
        return most, f"{words}; less work is before it than elsewhere"
    if best.full == second.full and best.idle < second.idle:
        return most, f"{words}; there is more room than elsewhere"
    return most, words


def _words(best: _Fit) -> str:
    words = best.accepted.verdict.detail
    return f"{words}; about {_seconds(best.wait_ms)} to wait" if best.wait_ms else words


def _seconds(span_ms: int) -> str:
    return f"{-(-span_ms // 100) / 10:g} s"


def _with_absent(asked: Survey) -> tuple[Verdict, ...]:
    """The verdicts, with one for each mesh that is not there and might take the work: it is what somebody may be waiting for."""
    away = ((mesh.record.mesh, words_of_absence(asked.demand, mesh)) for mesh in asked.absent)
    told = [Verdict(mesh=mesh, reason=Reason.MESH_UNREACHABLE, detail=words) for mesh, words in away if words is not None]
    return tuple(sorted((*asked.verdicts, *told), key=lambda verdict: verdict.mesh)) if told else asked.verdicts


def _refuse(demand: Demand, verdicts: tuple[Verdict, ...], unheld: str) -> Refused:
    asked = [verdict for verdict in verdicts if demand.mesh in (None, verdict.mesh)]
    if not asked:
        if demand.mesh is not None:
            return Refused(reason=Reason.MESH_UNREACHABLE, detail=f"{demand.mesh}: no mesh of this name has joined", verdicts=verdicts)
        return Refused(reason=Reason.NO_MESH_FITS, detail="no mesh has joined", verdicts=verdicts)
    reasons = {verdict.reason for verdict in asked}
    common = reasons.pop() if len(reasons) == 1 else None
    return Refused(
        reason=common or Reason.NO_MESH_FITS,
        detail="; ".join((*([unheld] if unheld else ()), *(f"{verdict.mesh}: {verdict.detail}" for verdict in asked))),
        verdicts=verdicts,
    )
