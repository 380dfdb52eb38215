"""A plan that changes nothing, and until when it holds.

Most seconds bring no news: nobody can be served, or nobody waits. A plan follows from the snapshot, the rules and the time. Time counts at
a few known moments only: when work or a lease has run for its minimum time, when a demand has waited for its `max_wait`, and when a mesh
has had its time to make room itself. So a plan without targets holds until the next of them, unless something else changes. Past use
changes at every moment: with it no plan is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from operator import attrgetter

from federation.planning.planner_inputs import granted_ms
from federation.planning.values import Plan
from federation.planning.victim_search import MESH_TRIES_MS
from federation.quota.policies import TenantPolicies
from federation.quota.tenant_policies import PoliciesInForce
from federation.snapshot import DemandView, FederationSnapshot, MeshRecord

#: Meshes and the root read the age of a demand at different moments; ms.
AGE_SLACK_MS = 1_000

_BESIDE_AGE = attrgetter(*(each.name for each in fields(DemandView) if each.name != "waiting_ms"))


@dataclass(frozen=True, slots=True)
class SettledPlan:
    """Plan without targets, with what it was made from."""

    plan: Plan
    _snapshot: FederationSnapshot
    _in_force: PoliciesInForce
    _demands: list[tuple[object, ...]]
    _meshes: tuple[tuple[MeshRecord, bool], ...]
    _until_ms: int | None  #: On the snapshot's clock; None: for ever.

    @classmethod
    def of(cls, plan: Plan, snapshot: FederationSnapshot, in_force: PoliciesInForce) -> SettledPlan | None:
        """Return the plan, if it changes nothing and can be kept; else None."""
        if plan.lowered or plan.raised or in_force.filed.rules.history_half_life_ms:
            return None
        moments = (moment for moment in _moments(snapshot, in_force.filed) if moment > snapshot.at_ms)
        return cls(plan, snapshot, in_force, _without_age(snapshot), _as_planned(snapshot), min(moments, default=None))

    def holds(self, snapshot: FederationSnapshot, in_force: PoliciesInForce) -> bool:
        """Return whether a plan for this snapshot would be the same."""
        before = self._snapshot
        return (
            before.at_ms <= snapshot.at_ms
            and (self._until_ms is None or snapshot.at_ms < self._until_ms)
            and in_force is self._in_force
            and snapshot.leases == before.leases
            and snapshot.running == before.running
            and _as_planned(snapshot) == self._meshes
            and _without_age(snapshot) == self._demands
            and all(map(_is_as_old, _since_ms(snapshot), _since_ms(before)))
            and (snapshot.tree is before.tree or (snapshot.tree.covers(before.tree) and before.tree.covers(snapshot.tree)))
        )


def _moments(snapshot: FederationSnapshot, tenant_policies: TenantPolicies) -> Iterator[int]:
    """Yield the moments at which time alone may change a plan."""
    min_run_of, settings = tenant_policies.min_run_of, tenant_policies.settings
    for lease in snapshot.leases:
        yield granted_ms(lease) + min_run_of(lease.tenant)
    for view in snapshot.running:
        yield view.since_ms + min_run_of(view.tenant)
    for demand in snapshot.demands:
        since_ms, known = snapshot.at_ms - demand.waiting_ms, settings.get(demand.tenant)
        yield since_ms + MESH_TRIES_MS
        if known is not None and known.max_wait_ms is not None:
            yield since_ms + known.max_wait_ms


def _without_age(snapshot: FederationSnapshot) -> list[tuple[object, ...]]:
    return list(map(_BESIDE_AGE, snapshot.demands))


def _since_ms(snapshot: FederationSnapshot) -> list[int]:
    return [snapshot.at_ms - demand.waiting_ms for demand in snapshot.demands]


def _is_as_old(since_ms: int, planned_ms: int) -> bool:
    """Return whether a demand waits no longer than the one that was planned with. A younger one changes nothing before its time."""
    return since_ms >= planned_ms - AGE_SLACK_MS


def _as_planned(snapshot: FederationSnapshot) -> tuple[tuple[MeshRecord, bool], ...]:
    """Return what a plan reads of the meshes."""
    return tuple((view.record, view.can_start) for view in snapshot.meshes)
