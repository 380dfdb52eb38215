"""Preview of a preemption by a mesh for a stage of the same tenant, as far as the root can tell.

The choice is the mesh's own, `mesh.preemption.stage_preemption`, on the root's records of running stages, pools and leases. The root
does not know a stage's pool: it assumes the first that could hold the stage, so with several pools of one flavor the result is a guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from federation.child.lease_accounting import sum_of
from federation.explaining.pending_stages import PendingStage
from federation.snapshot import MeshView, PoolRecord
from mesh.core.ids import FlavorName, MeshId, StageId, TenantPath
from mesh.core.resources import NOTHING, ResourceSet
from mesh.preemption.stage_preemption import Occupant, PreemptionPolicy, harm_of, preemptor_of, select_victims, short_of


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedStage:
    """Stage that a mesh has started, as the run's records have it: they name no pool."""

    stage: StageId
    tenant: TenantPath
    mesh: MeshId
    slot: ResourceSet
    slots: int
    priority: int
    started_ms: int  #: Since the epoch.
    created_ms: int = 0  #: See `StageSpec.created_ms`.
    saved_ms: int | None = None  #: When a node of it last saved a checkpoint, since the epoch; None: none has since its start.


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewedPreemption:
    """Stages that would stop, and the amounts that they would free."""

    flavor: FlavorName
    stages: tuple[StageId, ...]
    amounts: ResourceSet


def preview_preemption(
    pending: PendingStage,
    view: MeshView,
    held: Mapping[FlavorName, ResourceSet],
    running: Iterable[StartedStage],
    *,
    is_quota_free: bool,
    rules: PreemptionPolicy,
    now_ms: int,
) -> PreviewedPreemption | None:
    """Return the stages that the mesh would preempt so that the stage has room; None: it has, or all candidates free too little.

    Args:
        pending: The waiting stage; one slot of it counts.
        view: Its mesh.
        held: Amounts that its tenant's leases hold there.
        running: Stages that its tenant runs there.
        is_quota_free: Its lease would grow by all that is missing.
        now_ms: Since the epoch.
    """
    if not rules.takes:
        return None
    pools = [pool for pool in view.record.pools if pending.slot <= pool.capacity]
    occupants = [occupant for one in running if (occupant := _occupant(one, view.record.pools)) is not None]
    flavors = {pool.pool: pool.flavor for pool in view.record.pools}
    chosen: list[tuple[Occupant, ...]] = []
    for pool in pools:
        alike = [occupant for occupant in occupants if flavors[occupant.pool] == pool.flavor]
        spent = sum_of(occupant.amounts for occupant in alike)
        room = short_of(pending.slot, {name: pool.free(name, pending.priority, is_gang=pending.is_gang) for name in pending.slot})
        lease = held.get(pool.flavor, NOTHING)
        quota = {} if is_quota_free else short_of(pending.slot, {name: lease[name] - spent[name] for name in pending.slot})
        if not room:
            return None  # Missing quota alone is the planner's to reclaim.
        newer_than_ms = rules.newer_than_ms(pending.created_ms)
        preemptor = preemptor_of(StageId(pending.stage), pending.tenant, pending.priority, pool.pool, newer_than_ms)
        limits = view.record.settings.preemption
        victims = select_victims(preemptor, alike, room=room, quota=quota, min_run_ms=rules.min_run_ms, now_ms=now_ms, limits=limits)
        chosen += [victims] if victims else []
    best = min(chosen, key=lambda victims: harm_of(victims, now_ms), default=None)
    if best is None:
        return None
    stages = tuple(victim.stage for victim in best)
    return PreviewedPreemption(flavor=flavors[best[0].pool], stages=stages, amounts=sum_of(victim.amounts for victim in best))


def _occupant(one: StartedStage, pools: Sequence[PoolRecord]) -> Occupant | None:
    amounts = one.slot.times(one.slots)
    pool = next((pool.pool for pool in pools if amounts <= pool.capacity), None)
    if pool is None:
        return None
    return Occupant(
        stage=one.stage,
        tenant=one.tenant,
        priority=one.priority,
        pool=pool,
        amounts=amounts,
        started_ms=one.started_ms,
        created_ms=one.created_ms,
        saved_ms=one.saved_ms,
    )
