"""State of a mesh under one session: admission, lease accounting and running stages. Losing the session voids all three.

The three describe the same stages, so code that needs more than one of them reads them here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from federation.child.lease_accounting import LeaseAccounting, LeaseKey
from federation.child.quota_demand import OpenDemand, wanted
from federation.child.running_stage import RunningStage
from federation.child.stage_plugins import StagePlugins
from federation.leases import LeaseUse
from federation.snapshot import MeshRecord, PoolRecord, resources_of
from mesh.core.ids import StageId
from mesh.core.node_sizes import NodeSize, sizes_of
from mesh.core.pools import PoolSpec
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.seen_nodes import NodeSeen
from mesh.preemption.stage_preemption import Occupant
from mesh.stages.admission import StageAdmission
from mesh.stages.admission_events import NodesSeen, SettingsChanged
from mesh.stages.messages import NodeFailed, StageMessage
from mesh.stages.stage_settings import StageSettings
from mesh.stages.workloads import WorkloadState


@dataclass(slots=True)
class ChildState:
    """State of one mesh.

    Args:
        record: Record of the mesh; admission hands out the capacity of its pools.
        plugins: Plugins of the mesh; they outlive the session.
    """

    record: MeshRecord
    plugins: StagePlugins = field(default_factory=StagePlugins)
    admission: StageAdmission = field(init=False)  #: Queued stages, and stages with room in a pool.
    accounting: LeaseAccounting = field(init=False)  #: Which lease pays for which stage.
    running: dict[StageId, RunningStage] = field(default_factory=dict)  #: Claimed stages, in the order of the claims.
    can_start: bool = True  #: The Ray cluster of the mesh responds.
    outside_group: int = 0  #: Nodes that failed with OUTSIDE_GROUP since this process began.
    _nodes: tuple[NodeSeen, ...] = ()  #: As last listed.
    _sizes: tuple[NodeSize, ...] = ()  #: Sizes of the nodes, as reported.

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget everything. `admission` is a new object, so a caller that kept the old one can see the change."""
        self.admission = StageAdmission(
            tuple(map(_spec_of, self.record.pools)), settings=self.record.settings, catalogue=self.plugins.catalogue
        )
        self.admission.handle(NodesSeen(nodes=self._nodes))
        self.accounting = LeaseAccounting()
        self.running.clear()

    def change_settings(self, settings: StageSettings) -> SettingsChanged | None:
        """Follow these settings from now on. Return the event for admission; None: they are in force already."""
        if settings == self.record.settings:
            return None
        self.record = replace(self.record, settings=settings)
        return SettingsChanged(settings=settings)

    def note_nodes(self, nodes: tuple[NodeSeen, ...]) -> None:
        """Record a look at the nodes, and report their sizes from now on, as far as a pool of the mesh has the resources."""
        if [node.total for node in nodes] != [node.total for node in self._nodes]:
            named = resources_of((self.record,))
            self._sizes = sizes_of(ResourceSet({name: node.total[name] for name in named}) for node in nodes)
        self._nodes = nodes

    def count_outside(self, messages: Iterable[StageMessage]) -> None:
        """Count the nodes that failed since their code held resources outside its stage's placement group."""
        failures = (message.failure for message in messages if isinstance(message, NodeFailed))
        self.outside_group += sum(failure.reason is Reason.OUTSIDE_GROUP for failure in failures)

    def nodes_seen(self) -> NodesSeen:
        """Return the event that the nodes were looked at."""
        return NodesSeen(nodes=self._nodes)

    def as_reported(self) -> MeshRecord:
        """Return the mesh's record with what changes: its nodes, the pools' use, its lease limit, the state of Ray and of its plugins."""
        pools = self.admission.ledger.pools
        reserved = self.admission.reserved
        used = tuple(
            replace(
                pool,
                used=pools[pool.pool].in_use,
                reserved_idle=reserved.idle_amounts(pool.pool),
                set_aside=self.admission.set_aside(pool.pool),
                group_counts=reserved.counts(pool.pool),
            )
            for pool in self.record.pools
        )
        return replace(
            self.record,
            pools=used,
            leases_full=self.accounting.is_full,
            plugins=self.plugins.records,
            cluster_answers=self.can_start,
            nodes=self._sizes,
            outside_group=self.outside_group,
            waiting_for_ray=sum(stage.waits_for_ray for stage in self.running.values()),
        )

    def demands(self) -> tuple[OpenDemand, ...]:
        """Return the quota demand, at most as much as one heartbeat may carry."""
        return wanted(self.admission, self.accounting)

    def lease_uses(self) -> tuple[LeaseUse, ...]:
        """Return the lease priorities that differ from those in the ledger."""
        return self.accounting.lease_uses(self.priority_of)

    def young(self, stages: Iterable[StageId], now_ms: int) -> dict[StageId, int]:
        """Return the stages that are within their minimum run time, each with the moment (clock of `now_ms`) at which it ends."""
        of_age_ms = {}
        for stage in stages:
            running, workload = self.running.get(stage), self.admission.workloads.get(stage)
            if running is not None and workload is not None:
                of_age_ms[stage] = running.started_ms + workload.offer.preemption.min_run_ms
        return {stage: due_ms for stage, due_ms in of_age_ms.items() if due_ms > now_ms}

    def waits_since_ms(self, stage: StageId) -> int | None:
        """Return when the stage began to wait, on the mesh's own clock; None if admission does not know the stage."""
        workload = self.admission.workloads.get(stage)
        return workload.offer.since_ms if workload is not None else None

    def priority_of(self, stage: StageId) -> int:
        """Return the stage's priority; 0 if admission does not know the stage."""
        workload = self.admission.workloads.get(stage)
        return workload.offer.priority if workload is not None else 0

    def is_waited_for(self, key: LeaseKey) -> bool:
        """Return whether a stage that is not running could use the lease."""
        tenant, _ = key
        known = self.admission.workloads.values()
        return any(one.offer.tenant == tenant and one.state is not WorkloadState.RUNNING for one in known)

    def gathering(self) -> dict[StageId, int]:
        """Return the stages with freed room held for them, each with the moment at which the hold ends."""
        return {stage: one.until_ms for stage, one in self.admission.workloads.items() if one.state is WorkloadState.GATHERING}

    def occupants(self) -> Iterable[Occupant]:
        """Yield the stages that hold room and may be preempted."""
        return (self._occupant(running) for running in self._with_room() if not running.stops)

    def leaving(self) -> Iterable[Occupant]:
        """Yield the stages that hold room and are already stopping."""
        return (self._occupant(running) for running in self._with_room() if running.stops)

    def _with_room(self) -> Iterable[RunningStage]:
        return (running for stage, running in self.running.items() if self.admission.ledger.pools_of(stage))

    def _occupant(self, running: RunningStage) -> Occupant:
        stage, ledger = running.claim.stage, self.admission.ledger
        offer = self.admission.workloads[stage].offer
        return Occupant(
            stage=stage,
            tenant=offer.tenant,
            priority=running.priority,
            pool=ledger.pools_of(stage)[0],
            amounts=ledger.held_by(stage),
            started_ms=running.started_ms,
            token=running.claim.token,
            created_ms=offer.created_ms,
            saved_ms=running.saved_ms,
        )


def _spec_of(pool: PoolRecord) -> PoolSpec:
    return PoolSpec(
        pool=pool.pool,
        flavor=pool.flavor,
        capacity=pool.capacity,
        selector=pool.node_labels,
        policy=pool.policy,
        groups=pool.groups,
    )
