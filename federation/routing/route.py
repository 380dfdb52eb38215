"""Choice of the mesh for work: a snapshot in; a mesh, or a named reason, out.

Among the meshes that accept the work (`federation.routing.survey`), the one of the least cost in time wins: the wait there, and the
transfer of inputs that lie elsewhere (`federation.estimates` has the formula). So data keep work at their mesh only if moving them takes
longer than waiting beside them. At equal cost the mesh with most of the inputs wins; then the one with the least work before this,
relative to its size; then the one that could grant the most; then the one with the most room, since missing quota may come free anywhere,
but room only there.

Before time, the flavor is chosen by the tenant's settings (`federation.routing.flavor_choice`), among meshes where the work would start
at most `flavor_delay_ms` later than at the soonest. A reclaim of the tenant's own quota counts as no wait. If the work would wait for
every flavor, time alone decides.

The verdicts of the meshes do not depend on where the inputs are, and are most of the cost: `survey` computes them once for all work of a
kind, `choose` picks a mesh for each stage. `route` does both.

All values are integers, with ids as the last comparison, so the same snapshot gives the same result.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import nsmallest
from typing import NamedTuple

from federation.estimates import COST_RULES, CostRules, transfer_ms
from federation.quota.flavors import Mode
from federation.routing.flavor_choice import search, words_of
from federation.routing.mesh_filters import refusal_of_absent
from federation.routing.queued_work import load_before, wait_behind_ms
from federation.routing.routing_request import RoutingRequest
from federation.routing.survey import Acceptance, Survey, survey
from federation.routing.verdicts import MeshVerdict
from federation.snapshot import FederationSnapshot
from mesh.core.ids import FlavorName, MeshId, PoolName
from mesh.core.near_names import nearest
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """Result: the work goes to this mesh."""

    mesh: MeshId
    pool: PoolName
    flavor: FlavorName
    reason: Reason  #: ONLY_FEASIBLE_MESH, FLAVOR_ORDER, LOCALITY, MOST_HEADROOM, or SHORTEST_WAIT if the work cannot start now.
    detail: str  #: The reason in words.
    verdicts: tuple[MeshVerdict, ...]  #: One for each mesh, by id.
    flavor_why: str = ""  #: With FLAVOR_ORDER: why this flavor, in words.


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteRefused:
    """Result: no mesh accepts the work as things stand."""

    #: The common reason of all meshes (or of the pinned one). Of different ones: the first that may pass, else NO_MESH_FITS.
    reason: Reason
    sentences: tuple[str, ...]  #: The verdict of each mesh, in words.
    verdicts: tuple[MeshVerdict, ...]  #: One for each mesh, by id; also for absent meshes that might accept the work.

    @property
    def detail(self) -> str:
        """The sentences as one text."""
        return "; ".join(self.sentences)


class _Fit(NamedTuple):
    """A mesh that accepts, with its sort key: fields in the order of comparison, the least is the best.

    A tuple, since there is one for each mesh and stage, and tuples are fast to make and compare.
    """

    cost_ms: int  #: Estimated time until the work could start.
    neg_local_bytes: int  #: Bytes of the inputs that are there already, negated.
    load: int  #: Work before this one, in millionths of the mesh.
    neg_grantable: int  #: Slots that could start there now, negated.
    neg_free: int  #: Slots with room, perhaps without quota, negated.
    mesh: MeshId
    pool: PoolName  #: Unique within a mesh, so later fields are never compared.
    wait_ms: int
    transfer_ms: int
    accepted: Acceptance


def route(
    request: RoutingRequest,
    snapshot: FederationSnapshot,
    planned: Mapping[MeshId, ResourceSet] | None = None,
    rules: CostRules = COST_RULES,
) -> Routed | RouteRefused:
    """Choose a mesh for the request. Pure.

    Args:
        planned: Work that the caller has sent to meshes since the snapshot; it counts as work that comes first.
    """
    return choose(survey(request, snapshot, rules), request.near, planned)


def choose(
    asked: Survey, near: Mapping[MeshId, int], planned: Mapping[MeshId, ResourceSet] | None = None, *, alike: int = 1
) -> Routed | RouteRefused:
    """Choose the mesh for a stage of the surveyed work. Pure.

    Args:
        near: Bytes of its inputs by the mesh that stores them.
        planned: As in `route`.
        alike: Number of like stages that get this result. A flavor with room for all of them goes before one with room for some.
    """
    if not asked.accepting:
        return _refuse(asked.request, _with_absent(asked), asked.unheld)
    fits = _fits(asked, near, planned or {})
    best, *others = nsmallest(2, fits)
    passed = best
    if asked.has_choice:
        best = min(_of_one_flavor(asked, fits, alike))
        others = nsmallest(1, [fit for fit in fits if fit.mesh != best.mesh])
    updated = {fit.mesh: _changed_verdict(fit) for fit in fits if fit.accepted.is_first and _changes_verdict(fit)}
    if not best.accepted.is_first or _changes_verdict(best):
        updated[best.mesh] = _changed_verdict(best)
    verdicts = tuple([updated.get(verdict.mesh, verdict) for verdict in asked.verdicts]) if updated else asked.verdicts
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
            waits_ms = wait_behind_ms(
                asked.request.slot, accepted.view, verdict.grantable_slots, accepted.run_ms, ours, running=accepted.running
            )
            load = load_before(asked.request.slot, accepted.view, ours)
        moves_ms = transfer_ms(total - here, asked.rules) if here else all_far_ms
        grantable, free, pool = verdict.grantable_slots, verdict.free_slots, accepted.pool.pool
        fits.append(_Fit(waits_ms + moves_ms, -here, load, -grantable, -free, mesh, pool, waits_ms, moves_ms, accepted))
    return fits


def _of_one_flavor(asked: Survey, fits: list[_Fit], alike: int) -> list[_Fit]:
    """Return the fits near enough in time with the flavor that the tenant's search finds; all fits if the work would wait for any flavor.

    The search first tries meshes where all stages could start at once, as a quota round tries a workload whole before it shrinks it.
    """
    latest_ms = min([fit.cost_ms for fit in fits]) + asked.rules.flavor_delay_ms
    in_time = [fit for fit in fits if (fit.transfer_ms if fit.accepted.grade.mode is Mode.RECLAIM else fit.cost_ms) <= latest_ms]
    settings = asked.request.settings
    roomy = [fit for fit in in_time if fit.accepted.grade.mode is Mode.FIT and alike <= -fit.neg_grantable] if asked.request.slot else []
    found = search([fit.accepted.graded for fit in roomy], settings) if alike > 1 else None
    if found is None:
        found = search([fit.accepted.graded for fit in in_time], settings)
    return [fit for fit in in_time if fit.accepted.pool.flavor == found.flavor] if found is not None else fits


def _changes_verdict(fit: _Fit) -> bool:
    """Return whether this stage's inputs, or planned work, change the mesh's verdict."""
    return bool(fit.transfer_ms) or fit.wait_ms != fit.accepted.verdict.wait_ms


def _changed_verdict(fit: _Fit) -> MeshVerdict:
    """Return the verdict, changed by this stage's inputs and planned work."""
    kept = fit.accepted.verdict
    return MeshVerdict(
        mesh=kept.mesh,
        reason=kept.reason,
        detail=kept.detail,
        pool=kept.pool,
        flavor=kept.flavor,
        grantable_slots=kept.grantable_slots,
        free_slots=kept.free_slots,
        wait_ms=fit.wait_ms,
        transfer_ms=fit.transfer_ms,
    )


def _why(best: _Fit, others: list[_Fit]) -> tuple[Reason, str]:
    """Return the first comparison that set the best apart from the second, as a reason and in words."""
    words, most = _words(best), Reason.MOST_HEADROOM if best.accepted.verdict.reason is None else Reason.SHORTEST_WAIT
    if not others:
        return Reason.ONLY_FEASIBLE_MESH, words
    second = others[0]
    if best.cost_ms < second.cost_ms and best.wait_ms < second.wait_ms:
        return most, f"{words}; elsewhere it would wait about {_seconds(second.wait_ms)}"
    if best.cost_ms < second.cost_ms or best.neg_local_bytes < second.neg_local_bytes:
        return Reason.LOCALITY, f"{words}; most of its inputs are there"
    if best.load < second.load:
        return most, f"{words}; less work is queued before it than elsewhere"
    if best.neg_grantable == second.neg_grantable and best.neg_free < second.neg_free:
        return most, f"{words}; there is more room than elsewhere"
    return most, words


def _words(best: _Fit) -> str:
    words = best.accepted.verdict.detail
    return f"{words}; about {_seconds(best.wait_ms)} to wait" if best.wait_ms else words


def _seconds(span_ms: int) -> str:
    return f"{-(-span_ms // 100) / 10:g} s"


def _with_absent(asked: Survey) -> tuple[MeshVerdict, ...]:
    """Return the verdicts, with one for each absent mesh that might accept the work, since someone may be waiting for that mesh."""
    away = ((mesh.record.mesh, refusal_of_absent(asked.request, mesh)) for mesh in asked.absent)
    unreachable = [MeshVerdict(mesh=mesh, reason=refusal[0], detail=refusal[1]) for mesh, refusal in away if refusal is not None]
    return tuple(sorted((*asked.verdicts, *unreachable), key=lambda verdict: verdict.mesh)) if unreachable else asked.verdicts


def _refuse(request: RoutingRequest, verdicts: tuple[MeshVerdict, ...], unheld: str) -> RouteRefused:
    asked = [verdict for verdict in verdicts if request.mesh in (None, verdict.mesh)]
    if not asked:
        if request.mesh is not None and verdicts:
            words = f"{request.mesh}: no mesh of this name has joined{nearest(request.mesh, (verdict.mesh for verdict in verdicts))}"
            return RouteRefused(reason=Reason.MESH_UNKNOWN, sentences=(words,), verdicts=verdicts)
        return RouteRefused(reason=Reason.MESH_UNREACHABLE, sentences=("no mesh has joined",), verdicts=verdicts)
    reasons = {verdict.reason for verdict in asked}
    passing = next((verdict.reason for verdict in asked if verdict.could_accept), None)
    common = reasons.pop() if len(reasons) == 1 else passing
    return RouteRefused(
        reason=common or Reason.NO_MESH_FITS,
        sentences=(*([unheld] if unheld else ()), *(f"{verdict.mesh}: {verdict.detail}" for verdict in asked)),
        verdicts=verdicts,
    )
