"""A federation as it is deployed, in one thread and virtual time: a ledger, child meshes and a planner, all of production.

Only the hosts are simulated. A stage never ends by itself and never fails; a stage that is asked to stop stops at once, or when
`let_stop` is called. So the caller sees the state in which victims still hold their quota, and the state after that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from federation.child.child_mesh import ChildMesh
from federation.conformance.case_stores import CaseStore
from federation.dispatch import CONTESTED, STAGE_MESSAGES
from federation.planning.planner_loop import PlannerLoop
from federation.quota.policies import TenantPolicies
from federation.routing.route import Routed, route
from federation.routing.routing_request import RoutingRequest
from federation.snapshot import FederationSnapshot, MeshRecord
from mesh.conformance.fields import CaseError
from mesh.core.clock import Clock
from mesh.core.ids import MeshId, NodeId, RunId, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.wire import decode
from mesh.stages.hosting import ANYWHERE, Delivered, HostReport, Places
from mesh.stages.messages import StageLost, StageWaiting
from mesh.stages.simulated_host import SimulatedHost
from mesh.stages.spec import StageSpec, TaskSpec

HEARTBEAT_MS = 500
#: A planner plans on every second step, and when quota is contested.
STEPS_PER_TICK = 2
#: After so many steps without a change, nothing changes any more: three heartbeats and three plans have seen the same.
QUIET_STEPS = 6
STEPS_MAX = 1_000
#: Run time of a stage: longer than any case.
ENDLESS_MS = 10**12
_LEADER_TTL_MS = 3_600_000


class CaseHost(SimulatedHost):
    """Host whose stages run on until they are asked to stop, and stop when `stops` is set."""

    def __init__(self, clock: Clock, mesh: MeshId) -> None:
        super().__init__(lambda _report: None, clock, lambda _task: (ENDLESS_MS, False), mesh)
        self.stops = True
        self.slots: dict[StageId, int] = {}  #: Slots of each stage that was started.
        self.asked: dict[StageId, None] = {}  #: Stages that were asked to stop, in order.

    def start(
        self,
        spec: StageSpec,
        slots: int,
        token: int,
        blobs: dict[str, bytes],
        inputs: dict[NodeId, Delivered],
        note: bytes = b"",
        places: Places = ANYWHERE,
    ) -> int:
        self.slots[spec.stage] = slots
        return super().start(spec, slots, token, blobs, inputs, note, places)

    def cancel(self, stage: StageId) -> None:
        self.asked.setdefault(stage)
        if self.stops:
            super().cancel(stage)

    def let_stop(self) -> None:
        """Stop the stages that were asked to, now and from now on."""
        self.stops = True
        for stage in self.asked:
            super().cancel(stage)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseStage:
    """A stage that the federation is to run."""

    stage: StageId
    tenant: TenantPath
    slot: ResourceSet
    width: int = 1
    priority: int = 0
    created_ms: int = 0
    mesh: MeshId | None = None  #: None: routing chooses the mesh.


@dataclass(slots=True)
class _Mesh:
    child: ChildMesh
    host: CaseHost
    cursor: str
    reports: list[HostReport] = field(default_factory=list)


class DeployedFederation:
    """One federation, from its first session on.

    Args:
        records: The meshes.
        tenant_policies: Rules, weights and settings, as a root's file would publish them.
    """

    def __init__(self, store: CaseStore, records: Iterable[MeshRecord], tenant_policies: TenantPolicies) -> None:
        self._store = store
        self._policies = tenant_policies
        store.tenant_policies.publish(tenant_policies)
        self._planner = PlannerLoop(store.ledger, "root", leader_ttl_ms=_LEADER_TTL_MS, tenant_policies=store.tenant_policies)
        self._records = tuple(records)
        self._meshes: dict[MeshId, _Mesh] = {}
        self._unplaced: list[CaseStage] = []
        self._steps = 0
        self.lost: dict[StageId, Reason] = {}  #: Stages that the federation stopped, each with the reason.
        self.waits: dict[StageId, Reason] = {}  #: The last reported reason of each stage that has waited.

    # ---- the parts

    def join(self) -> None:
        """Let the meshes join the ledger, which has to have a tree."""
        for record in self._records:
            host = CaseHost(self._store.clock, record.mesh)
            cursor, _ = self._store.queue.notifications(record.mesh, "", 0)
            store = self._store
            child = ChildMesh(
                record=record,
                ledger=store.ledger,
                queue=store.queue,
                blobs=store.blobs,
                host=host,
                clock=store.clock,
                heartbeat_ms=HEARTBEAT_MS,
            )
            self._meshes[record.mesh] = mesh = _Mesh(child, host, cursor)
            host.listen(mesh.reports.append)
            child.heartbeat()

    def snapshot(self) -> FederationSnapshot:
        """Return the ledger's own snapshot."""
        return self._store.ledger.snapshot()

    # ---- work

    def submit(self, *stages: CaseStage) -> None:
        """Submit the stages at once. Stages without a mesh are routed on one snapshot, as a root routes them."""
        self._unplaced.extend(stages)
        self._place()

    def _place(self) -> None:
        snapshot = self.snapshot() if any(stage.mesh is None for stage in self._unplaced) else None
        left: list[CaseStage] = []
        for stage in self._unplaced:
            mesh = stage.mesh if snapshot is None or stage.mesh is not None else self._route(stage, snapshot)
            if mesh is None:
                left.append(stage)
            else:
                self._store.queue.submit(mesh, self._spec(stage))
        self._unplaced = left

    def _route(self, stage: CaseStage, snapshot: FederationSnapshot) -> MeshId | None:
        request = RoutingRequest(tenant=stage.tenant, slot=stage.slot, settings=self._policies.settings_of(stage.tenant))
        routed = route(request, snapshot)
        if isinstance(routed, Routed):
            return routed.mesh
        self.waits[stage.stage] = routed.reason
        return None

    def _spec(self, stage: CaseStage) -> StageSpec:
        return StageSpec(
            stage=stage.stage,
            run=RunId(stage.stage),
            tenant=stage.tenant,
            tasks=(TaskSpec(node=NodeId("task"), attempt=1, function="call:case:task", resources=stage.slot),),
            slot=stage.slot,
            width=stage.width,
            priority=stage.priority,
            created_ms=stage.created_ms,
            preemption=self._policies.preemption(stage.tenant),
        )

    def cancel(self, stage: StageId) -> None:
        """Cancel a stage for its user."""
        self._store.queue.cancel(stage)

    def slots_of(self, stage: StageId) -> int:
        """Return the slots with which the stage was started; 0 if it was not."""
        return max((mesh.host.slots.get(stage, 0) for mesh in self._meshes.values()), default=0)

    def mesh_of(self, stage: StageId) -> MeshId | None:
        """Return the mesh on which the stage was started."""
        return next((name for name, mesh in self._meshes.items() if stage in mesh.host.slots), None)

    def asked_to_stop(self) -> set[StageId]:
        """Return the stages that were asked to stop."""
        return {stage for mesh in self._meshes.values() for stage in mesh.host.asked}

    def hold_stops(self) -> None:
        """Keep stages that are asked to stop from now on running until `let_stop`."""
        for mesh in self._meshes.values():
            mesh.host.stops = False

    def let_stop(self) -> None:
        """Let all stages stop that were asked to."""
        for mesh in self._meshes.values():
            mesh.host.let_stop()

    # ---- time

    def advance(self, by_ms: int) -> None:
        """Let time pass at once; no session expires."""
        self._store.advance(by_ms)

    def run(self, until: Callable[[], bool] = lambda: False, *, with_plans: bool = True) -> None:
        """Run until nothing changes, or until the condition holds.

        Raises:
            CaseError: The federation does not come to rest.
        """
        before, quiet = self._state(), 0
        for _ in range(STEPS_MAX):
            if until():
                return
            self._step(with_plans=with_plans)
            after = self._state()
            before, quiet = after, quiet + 1 if after == before else 0
            if quiet >= QUIET_STEPS:
                return
        raise CaseError(f"the federation does not come to rest within {STEPS_MAX} steps")

    def _step(self, *, with_plans: bool) -> None:
        self._steps += 1
        for mesh, hosted in self._meshes.items():
            hosted.host.advance()
            while hosted.reports:
                hosted.child.take_report(hosted.reports.pop(0))
            hosted.cursor, notifications = self._store.queue.notifications(mesh, hosted.cursor, 0)
            hosted.child.take_notifications(notifications)
            if hosted.child.due_in_ms() == 0:
                hosted.child.heartbeat()
        has_contest = self._read_inbox()
        is_tick = self._steps % STEPS_PER_TICK == 0
        if with_plans and (is_tick or has_contest):
            self._planner.tick()
        if with_plans and is_tick:
            self._place()
        self._store.advance(HEARTBEAT_MS)

    def _read_inbox(self) -> bool:
        """Read all messages of the meshes; return whether quota is contested."""
        entries = self._store.queue.inbox(0)
        self._store.queue.acknowledge(tuple(entry.entry for entry in entries))
        for entry in entries:
            for message in decode(STAGE_MESSAGES, entry.body) if entry.kind != CONTESTED else ():
                if isinstance(message, StageWaiting):
                    self.waits[message.stage] = message.reason
                elif isinstance(message, StageLost):
                    self.lost[message.stage] = message.reason
        return any(entry.kind == CONTESTED for entry in entries)

    def _state(self) -> object:
        """Return all that the parts have decided so far."""
        snapshot = self.snapshot()
        return (
            [(lease.mesh, lease.tenant, lease.flavor, lease.amounts, lease.target, lease.priority) for lease in snapshot.leases],
            [(demand.mesh, demand.tenant, demand.flavor, demand.slot, demand.slots, demand.priority) for demand in snapshot.demands],
            [(dict(mesh.host.slots), tuple(mesh.host.asked)) for mesh in self._meshes.values()],
            dict(self.waits),
            dict(self.lost),
        )
