"""Order among pending stages: in the queue of a mesh, in the queue of a tenant, and for tenants whose stages start in order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from federation.explaining.flavor_reach import FlavorReach
from federation.explaining.pending_stages import PendingStage
from federation.explaining.queue_positions import Flavors, QueuePositions, may_meet
from federation.quota.policies import TenantPolicies
from mesh.core.ids import MeshId, TenantPath
from mesh.core.reasons import Reason
from mesh.stages.stage_settings import DEFAULT_SETTINGS, StageSettings
from mesh.stages.waiting_kinds import LACK_OF_ROOM

#: Reasons that bind a stage to its own mesh, so that it blocks no stage of another mesh.
_MESH_LACKS = LACK_OF_ROOM | {Reason.LEASES_AT_LIMIT, Reason.PREEMPTION_LIMIT}


class Precedence:
    """Order among the waiting stages of all meshes.

    Args:
        all_pending: Waiting stages by id; of each mesh the next one first.
        reported: The mesh's reason for each of them.
        settings: Settings of the meshes.
        now_ms: On the store's clock.
    """

    def __init__(
        self,
        all_pending: Mapping[str, PendingStage],
        reported: Mapping[str, Reason],
        reach: FlavorReach,
        tenant_policies: TenantPolicies,
        settings: Mapping[MeshId, StageSettings],
        now_ms: int,
    ) -> None:
        self._pending = all_pending
        self._reported = reported
        self._reach = reach
        self._tenant_policies = tenant_policies
        self._settings = settings
        self._now_ms = now_ms
        self._in_order: dict[TenantPath, bool] = {}
        self._waiting_at: defaultdict[tuple[MeshId, TenantPath], list[PendingStage]] = defaultdict(list)
        for pending in all_pending.values():
            self._waiting_at[pending.mesh, pending.tenant].append(pending)
        self._like = self._by_likeness()
        self._positions: defaultdict[MeshId, QueuePositions] = defaultdict(QueuePositions)
        #: For each stage the number of stages before it in the queue of its mesh that compete with it.
        self.places: Mapping[str, int] = {pending.stage: self._take_place(pending) for pending in all_pending.values()}

    def place_behind(self, pending: PendingStage, before: Iterable[PendingStage]) -> int:
        """Return the place of a stage behind all that wait.

        Args:
            before: Stages that would come before it, and wait nowhere yet.
        """
        return self._behind_all(pending) + sum(other.mesh == pending.mesh and self._may_precede(other, pending) for other in before)

    def ahead(self, pending: PendingStage, first: Iterable[str], before: Iterable[PendingStage]) -> int:
        """Return how many stages before it in its tenant's queue compete with it.

        Args:
            first: Their names.
            before: Those among them that wait nowhere yet.
        """
        unsent = {one.stage: one for one in before}
        alike = Counter(self._like.get(name, name) for name in first)
        return sum(count for name, count in alike.items() if self._may_precede(unsent.get(name) or self._pending[name], pending))

    def line_before(self, pending: PendingStage, before: Iterable[PendingStage] = ()) -> tuple[PendingStage, ...]:
        """Return the stages that start before it on its mesh if its tenant's stages start in order, as in `mesh.stages.admission_order`.

        Args:
            before: Further stages, beside those that wait.
        """
        if not self._starts_in_order(pending.tenant):
            return ()
        where, turn = (pending.mesh, pending.tenant), self._turn_of(pending)
        others = (*self._waiting_at.get(where, ()), *(one for one in before if (one.mesh, one.tenant) == where))
        return tuple(one for one in others if one.stage != pending.stage and self._turn_of(one) < turn)

    def own_before(self, pending: PendingStage) -> list[PendingStage]:
        """Return the stages of the same tenant that preempt before it on its mesh, the next one first; without those that need no room."""
        others = (one for one in self._waiting_at.get((pending.mesh, pending.tenant), ()) if one.slot)
        order = {one.stage: (-one.priority, one.created_ms, one.arrival) for one in (pending, *others)}
        return sorted((self._pending[name] for name in order if order[name] < order[pending.stage]), key=lambda one: order[one.stage])

    def _take_place(self, pending: PendingStage) -> int:
        """Return the stage's place in the queue of its mesh, and add the stage to that queue."""
        place = self._behind_all(pending)
        self._positions[pending.mesh].add(self._reach.of(pending), pending.tenant)
        return place

    def _behind_all(self, pending: PendingStage) -> int:
        return self._positions[pending.mesh].before(self._reach.of(pending), pending.tenant, in_order=self._starts_in_order(pending.tenant))

    def _starts_in_order(self, tenant: TenantPath) -> bool:
        known = self._in_order.get(tenant)
        if known is None:
            self._in_order[tenant] = known = self._tenant_policies.preemption(tenant).in_order
        return known

    def _by_likeness(self) -> dict[str, str]:
        """Map each stage to a representative that competes with the same others, so that a long queue costs few checks."""
        first: dict[tuple[MeshId, TenantPath, Flavors, bool], str] = {}
        return {
            name: first.setdefault((one.mesh, one.tenant, self._reach.of(one), self._reported[name] in _MESH_LACKS), name)
            for name, one in self._pending.items()
        }

    def _may_precede(self, other: PendingStage, pending: PendingStage) -> bool:
        """Return whether the first stage, which comes before the second, may delay it.

        It may if both could take some flavor, unless the first only waits for something that another mesh lacks; or by the order of their
        tenant.
        """
        if other.mesh == pending.mesh and other.tenant == pending.tenant and self._starts_in_order(pending.tenant):
            return True
        elsewhere = other.mesh != pending.mesh and self._reported.get(other.stage) in _MESH_LACKS
        return not elsewhere and may_meet(self._reach.of(other), self._reach.of(pending))

    def _turn_of(self, pending: PendingStage) -> tuple[bool, int, int]:
        """Return the sort key of the start: preemptors that wait for their victims first, then the most urgent, as its mesh counts."""
        rules = self._settings.get(pending.mesh, DEFAULT_SETTINGS).queue_of(pending.tenant)
        key = rules.key(pending.priority, self._now_ms if pending.queued_ms is None else pending.queued_ms)
        return self._reported.get(pending.stage) is not Reason.WAITING_FOR_VICTIMS, key, pending.arrival
