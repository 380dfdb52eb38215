"""What a mesh knows under one session: who waits and who has room, which lease pays for whom, what runs. Void when the session is lost.

The three books tell of the same stages, so whoever reads one beside another reads both here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from federation.child.balance import LeaseBalance, LeaseKey
from federation.child.making_way import Leaving
from federation.child.running_stage import RunningStage
from federation.child.wanting import Demand, wanted
from federation.leases import Pays
from federation.snapshot import MeshRecord
from mesh.admission import StageAdmission, WorkloadState
from mesh.giving_way import Occupant
from mesh.ids import PoolName, StageId
from mesh.pools import PoolSpec


@dataclass(slots=True)
class Books:
    """The books of one mesh.

    Args:
        record: Of the mesh; its pools are what admission has to give.
    """

    record: MeshRecord
    admission: StageAdmission = field(init=False)  #: Who waits, and who has room in which pool.
    balance: LeaseBalance = field(init=False)  #: Which lease pays for whom.
    running: dict[StageId, RunningStage] = field(default_factory=dict)  #: Claimed; in no other order than that of the claims.
    can_start: bool = True  #: What the mesh runs on is there.

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Nothing of what was known holds any more. Whoever has the earlier `admission` in hand sees that by its being another one."""
        pools = self.record.pools
        self.admission = StageAdmission(tuple(PoolSpec(pool=pool.pool, flavor=pool.flavor, capacity=pool.capacity) for pool in pools))
        self.balance = LeaseBalance()
        self.running.clear()

    def as_told(self) -> MeshRecord:
        """The mesh's record, with what its pools have in use, whether it may hold another lease, and how it stands with Ray."""
        pools = self.admission.ledger.pools
        used = tuple(replace(pool, used=pools[pool.pool].in_use) for pool in self.record.pools)
        return replace(
            self.record,
            pools=used,
            leases_full=self.balance.is_full,
            cluster_answers=self.can_start,
            waiting_for_ray=sum(stage.waits_for_ray for stage in self.running.values()),
        )

    def wants(self) -> tuple[Demand, ...]:
        """What could be used at once, as much as one heartbeat may tell."""
        return wanted(self.admission, self.balance)

    def pays(self) -> tuple[Pays, ...]:
        """What the ledger does not know yet of the leases."""
        return self.balance.pays(self.priority_of)

    def young(self, stages: Iterable[StageId], now_ms: int) -> dict[StageId, int]:
        """Of these stages those that have not run for their minimum run time, each with the moment when it will have; as `now_ms`."""
        of_age_ms = {}
        for stage in stages:
            running, workload = self.running.get(stage), self.admission.workloads.get(stage)
            if running is not None and workload is not None:
                of_age_ms[stage] = running.started_ms + workload.offer.yielding.min_run_ms
        return {stage: due_ms for stage, due_ms in of_age_ms.items() if due_ms > now_ms}

    def waits_since_ms(self, stage: StageId) -> int | None:
        """On the mesh's own clock; None for one that admission does not know."""
        workload = self.admission.workloads.get(stage)
        return workload.offer.since_ms if workload is not None else None

    def priority_of(self, stage: StageId) -> int:
        """0 for one that admission does not know."""
        workload = self.admission.workloads.get(stage)
        return workload.offer.priority if workload is not None else 0

    def is_waited_for(self, key: LeaseKey) -> bool:
        """Could a stage that does not run yet use the lease?"""
        tenant, _ = key
        known = self.admission.workloads.values()
        return any(one.offer.tenant == tenant and one.state is not WorkloadState.RUNNING for one in known)

    def gathering(self) -> dict[StageId, int]:
        """Stages for which others stop, and until when that is waited for."""
        return {stage: one.until_ms for stage, one in self.admission.workloads.items() if one.state is WorkloadState.GATHERING}

    def occupants(self) -> Iterable[Occupant]:
        """What holds room and may be asked to stop."""
        for stage, running in self.running.items():
            if not running.stops and self.admission.ledger.pools_of(stage):
                yield Occupant(
                    stage=stage,
                    tenant=self.admission.workloads[stage].offer.tenant,
                    priority=running.priority,
                    pool=self._pool_of(stage),
                    amounts=self.admission.ledger.held_by(stage),
                    started_ms=running.started_ms,
                    token=running.claim.token,
                )

    def leaving(self) -> Iterable[Leaving]:
        """What holds room, and has been asked to stop already."""
        for stage, running in self.running.items():
            if running.stops and self.admission.ledger.pools_of(stage):
                yield Leaving(stage=stage, pool=self._pool_of(stage), amounts=self.admission.ledger.held_by(stage))

    def _pool_of(self, stage: StageId) -> PoolName:
        return self.admission.ledger.pools_of(stage)[0]
