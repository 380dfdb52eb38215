"""Two child meshes on one store in memory, a planner once a second, and a manual clock."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from child_bed import pool

from federation.child.child_mesh import ChildMesh
from federation.planning.planner_loop import PlannerLoop
from federation.quota.policies import QueueSettings, Rules, TenantPolicies
from federation.snapshot import MeshRecord, PoolRecord
from federation.store.memory.policies import MemoryTenantPolicies
from federation.store.memory.store import MemoryStore
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.clock import ManualClock
from mesh.core.resources import ResourceSet
from mesh.preemption.stage_preemption import NO_LIMITS, PreemptionLimits, PreemptionPolicy
from mesh.stages.simulated_host import SimulatedHost
from mesh.stages.spec import StageSpec, TaskSpec
from mesh.stages.stage_settings import StageSettings

TTL_MS, GRACE_MS, HEARTBEAT_MS, PLAN_MS, STEP_MS = 10_000, 3_000, 2_000, 1_000, 100
FOR_EVER_MS = 10**9
AT_ONCE = Rules(min_run_ms=0)


class Child:
    """One child mesh."""

    def __init__(self, world: TwoChildren, mesh: str, pool: PoolRecord, limits: PreemptionLimits) -> None:
        self._world, self._mesh = world, mesh
        self._reports: list[object] = []
        self._host = SimulatedHost(self._reports.append, world.clock, lambda _task: (world.duration_ms, False))
        self._cursor, _ = world.store.notifications(mesh, "", 0)
        self.child = ChildMesh(
            record=MeshRecord(mesh=mesh, labels={}, pools=(pool,), cluster=mesh, settings=StageSettings(preemption=limits)),
            ledger=world.store,
            queue=world.store,
            blobs=world.store,
            host=self._host,
            clock=world.clock,
            heartbeat_ms=HEARTBEAT_MS,
        )

    def work(self) -> None:
        """Run the child's loop once."""
        if self.child.due_in_ms() == 0:
            self.child.heartbeat()
        self._cursor, notifications = self._world.store.notifications(self._mesh, self._cursor, 0)
        self.child.take_notifications(notifications)
        for _ in range(3):
            self._host.advance()
            while self._reports:
                self.child.take_report(self._reports.pop(0))

    def runs(self, of: str = "") -> set[str]:
        """Return the running stages with this prefix."""
        return {stage for stage in self._host.stages if stage.startswith(of)}


class TwoChildren:
    """`east` and `west` with this many CPUs each; tenants below one root with their own quota."""

    def __init__(self, cpus, quotas, rules=AT_ONCE, settings=(), duration_ms=FOR_EVER_MS, limits=NO_LIMITS, groups=None) -> None:
        self.clock = ManualClock(1_000_000)
        self.duration_ms = duration_ms
        self.store = MemoryStore(clock=self.clock, ttl_ms=TTL_MS, grace_ms=GRACE_MS)
        teams = [
            Tenant(path=f"acme/{name}", parent="acme", quotas={("standard", "cpu"): Quota(nominal=own * 10_000)})
            for name, own in quotas.items()
        ]
        self.store.configure(TenantTree([Tenant(path="acme", parent=None), *teams]))
        self.tenant_policies = MemoryTenantPolicies()
        named: dict[str, QueueSettings] = {f"acme/{name}": known for name, known in dict(settings).items()}
        self.tenant_policies.publish(TenantPolicies(rules=rules, settings=named))
        self.min_run_ms = rules.min_run_ms
        self._planner = PlannerLoop(self.store, "p", leader_ttl_ms=5_000, tenant_policies=self.tenant_policies)
        self._plan_in_ms = 0
        room = replace(pool("g", cpus), groups=groups)
        self.east, self.west = Child(self, "east", room, limits), Child(self, "west", room, limits)
        self.go(2_500)

    def submit(self, mesh, tenant, names: Iterable[str], slot=1, priority=0, width=1, tasks=1, takes=False, gang=None) -> None:
        """Submit equal stages."""
        amounts, rules = ResourceSet.of({"cpu": slot}), PreemptionPolicy(takes=takes, min_run_ms=self.min_run_ms)
        for name in names:
            about = {"attempt": 1, "function": "call:m:f", "inputs": (), "resources": amounts, "gang": gang}
            made = tuple(TaskSpec(node=f"t{number}", **about) for number in range(tasks))
            about = {"width": width, "priority": priority, "preemption": rules}
            self.store.submit(mesh, StageSpec(stage=name, run="r", tenant=f"acme/{tenant}", tasks=made, slot=amounts, **about))

    def go(self, by_ms: int, *, plans: bool = True) -> None:
        """Let time pass; children, the sweep and (if `plans`) the planner do what is due."""
        for _ in range(by_ms // STEP_MS):
            self.clock.advance(STEP_MS)
            self.east.work()
            self.west.work()
            self._plan_in_ms -= STEP_MS
            if plans and self._plan_in_ms <= 0:
                self.store.sweep()
                self._planner.tick()
                self._plan_in_ms = PLAN_MS

    def demands(self) -> list[tuple[str, int, int, int]]:
        """Return the ledger's demands: tenant, CPUs of a slot, slots, priority."""
        return [(one.tenant, one.slot["cpu"] // 10_000, one.slots, one.priority) for one in self.store.snapshot().demands]


def stages(of: str, count: int) -> list[str]:
    """Return stage names."""
    return [f"{of}{number}" for number in range(count)]
