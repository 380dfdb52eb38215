"""The planner loop on a ledger in memory: borrowed quota moves to its owner's mesh."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import pytest
from structlog.testing import capture_logs

from federation.errors import QuotaExceeded
from federation.leases import ROWS_MAX, Granted, HeartbeatReport, Lease, LeaseAck, LedgerResponse, QuotaDemand, Session, TargetUpdate
from federation.manual_mesh import ManualMesh
from federation.planning.planner_loop import PlannerLoop
from federation.quota.policies import OnQuotaReduction, QueueSettings, Rules, Stop, TenantPolicies
from federation.quota.tenant_policies import TenantStop
from federation.snapshot import MeshRecord, PoolRecord
from federation.store.memory.policies import MemoryTenantPolicies
from federation.store.memory.store import MemoryStore
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.clock import ManualClock
from mesh.core.ids import FlavorName, MeshId, PoolName, RunId, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import NOTHING, ResourceSet
from mesh.stages.spec import StageSpec

A100 = FlavorName("a100")
ACME, VISION, BATCH = TenantPath("acme"), TenantPath("acme/vision"), TenantPath("acme/batch")
GPU = ResourceSet.of({"gpu": 1})
TTL_MS, GRACE_MS, LEADER_TTL_MS = 30_000, 10_000, 5_000
AT_ONCE = MemoryTenantPolicies()
AT_ONCE.publish(TenantPolicies(rules=Rules(min_run_ms=0)))
TREE = TenantTree(
    [
        Tenant(path=ACME, parent=None, quotas={(A100, "gpu"): Quota()}),
        Tenant(path=VISION, parent=ACME, quotas={(A100, "gpu"): Quota(nominal=GPU["gpu"] * 4)}),
        Tenant(path=BATCH, parent=ACME),
    ]
)


@dataclass
class Mesh:
    """Mesh that sends given demands and keeps the answers."""

    store: MemoryStore
    name: MeshId
    session: Session = field(init=False)
    leases: dict[TenantPath, Lease] = field(default_factory=dict)
    heartbeats: int = 0
    gpus: int = 8

    def __post_init__(self) -> None:
        pool = PoolRecord(pool=PoolName("p"), flavor=A100, capacity=GPU.times(self.gpus))
        self.record = MeshRecord(mesh=self.name, labels={}, pools=(pool,), cluster="c")
        self.session = self.store.join(self.record)

    def hear(self, response: LedgerResponse) -> None:
        self.leases.update({lease.tenant: lease for lease in response.leases})

    def heartbeat(self, *demands: QuotaDemand, acks: tuple[LeaseAck, ...] = ()) -> None:
        self.heartbeats += 1
        self.hear(self.store.heartbeat(self.session, self.record, HeartbeatReport(number=self.heartbeats, acks=acks, demands=demands)))

    def demand(self, tenant: TenantPath, slots: int, priority: int = 0) -> QuotaDemand:
        lease = self.leases.get(tenant)
        return QuotaDemand(tenant=tenant, flavor=A100, slot=GPU, slots=slots, priority=priority, version=lease.version if lease else 0)

    def acquire(self, tenant: TenantPath, slots: int, priority: int = 0) -> object:
        acquired = self.store.acquire(self.session, (self.demand(tenant, slots, priority),))
        self.hear(acquired.response)
        return acquired.answers[0]

    def held(self, tenant: TenantPath) -> int:
        return self.leases[tenant].held["gpu"] // GPU["gpu"] if tenant in self.leases else 0

    def obey(self) -> tuple[LeaseAck, ...]:
        """Acknowledge every target."""
        return tuple(
            LeaseAck(tenant=lease.tenant, flavor=A100, version=lease.version, amounts=lease.target) for lease in self.leases.values()
        )


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_000_000)


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    store = MemoryStore(clock=clock, ttl_ms=TTL_MS, grace_ms=GRACE_MS)
    store.configure(TREE)
    return store


@pytest.fixture
def planner_loop(store: MemoryStore) -> PlannerLoop:
    return PlannerLoop(store, "root-1", leader_ttl_ms=LEADER_TTL_MS, tenant_policies=AT_ONCE)


@pytest.mark.parametrize(
    ("own", "wait_ms"),
    [({}, 20_000), ({BATCH: QueueSettings(min_run_ms=90_000)}, 90_000)],
    ids=["the federation's minimum run time", "the tenant's own"],
)
def test_reclaimed_lease_keeps_its_minimum_run_time(store, clock, own, wait_ms):
    tenant_policies = MemoryTenantPolicies()
    tenant_policies.publish(TenantPolicies(rules=Rules(min_run_ms=20_000), settings=own))
    planner_loop = PlannerLoop(store, "root-1", leader_ttl_ms=LEADER_TTL_MS, tenant_policies=tenant_policies)
    east, west = Mesh(store, MeshId("east")), Mesh(store, MeshId("west"))
    east.acquire(BATCH, 4)
    for _ in range(10):  # The lease is old by now, whatever it pays for.
        clock.advance(10_000)
        east.heartbeat()
        west.heartbeat(west.demand(VISION, 1))
    planner_loop.tick()
    east.heartbeat()
    assert east.leases[BATCH].target["gpu"] == 3 * GPU["gpu"]
    assert east.leases[BATCH].shrink_ms == 2 * TTL_MS + wait_ms


def test_drained_tenant_returns_a_deferred_reclaim_at_once(store, clock):
    tenant_policies, long = MemoryTenantPolicies(), Rules(min_run_ms=90_000)
    tenant_policies.publish(TenantPolicies(rules=long))
    planner_loop = PlannerLoop(store, "root-1", leader_ttl_ms=LEADER_TTL_MS, tenant_policies=tenant_policies)
    east, west = Mesh(store, MeshId("east")), Mesh(store, MeshId("west"))
    east.acquire(BATCH, 4)
    for _ in range(10):
        clock.advance(10_000)
        east.heartbeat()
        west.heartbeat(west.demand(VISION, 4))
    planner_loop.tick()
    east.heartbeat()
    assert (east.leases[BATCH].target["gpu"], east.leases[BATCH].shrink_ms) == (0, 2 * TTL_MS + 90_000)
    tenant_policies.publish(TenantPolicies(rules=long, settings={BATCH: QueueSettings(stop=Stop.DRAIN)}))
    planner_loop.tick()
    east.heartbeat()
    assert (east.leases[BATCH].target["gpu"], east.leases[BATCH].shrink_ms) == (0, TTL_MS)


def test_voluntary_cut_has_no_delay(store, clock):
    tenant_policies = MemoryTenantPolicies()
    tenant_policies.publish(
        TenantPolicies(rules=Rules(min_run_ms=20_000), settings={BATCH: QueueSettings(on_quota_reduction=OnQuotaReduction.EVICT)})
    )
    planner_loop = PlannerLoop(store, "root-1", leader_ttl_ms=LEADER_TTL_MS, tenant_policies=tenant_policies)
    east, west = Mesh(store, MeshId("east")), Mesh(store, MeshId("west"))
    east.acquire(BATCH, 4)
    west.heartbeat(west.demand(VISION, 1))
    less = Tenant(path=BATCH, parent=ACME, quotas={(A100, "gpu"): Quota(nominal=0, borrowing_limit=GPU["gpu"])})
    store.configure(TenantTree([TREE.tenant(ACME), TREE.tenant(VISION), less]))
    planner_loop.tick()
    east.heartbeat()
    assert (east.leases[BATCH].target["gpu"], east.leases[BATCH].shrink_ms) == (GPU["gpu"], TTL_MS)


def test_loan_on_one_mesh_is_reclaimed_for_its_owner_on_another(store: MemoryStore, planner_loop: PlannerLoop):
    east, west = Mesh(store, MeshId("east")), Mesh(store, MeshId("west"))
    assert east.acquire(BATCH, 4) == Granted(slots=4)
    assert west.acquire(VISION, 3).reason is Reason.QUOTA_EXHAUSTED

    answer = planner_loop.tick()
    assert answer is not None
    assert [(target.mesh, target.tenant) for target in answer.lowered] == [("east", BATCH)]

    east.heartbeat()
    assert (east.held(BATCH), east.leases[BATCH].target["gpu"]) == (4, GPU["gpu"])
    west.heartbeat(west.demand(VISION, 3))
    assert west.held(VISION) == 0  # Quota is free only after the borrower's release.
    east.heartbeat(acks=east.obey())
    west.heartbeat(west.demand(VISION, 3))
    assert (east.held(BATCH), west.held(VISION)) == (1, 3)
    assert planner_loop.tick() is None or not planner_loop.tick().lowered  # No work is left.


def test_target_of_an_ended_session_passes_to_the_next(store: MemoryStore, planner_loop: PlannerLoop):
    east, west = Mesh(store, MeshId("east")), Mesh(store, MeshId("west"))
    east.acquire(BATCH, 4)
    west.acquire(VISION, 3)
    planner_loop.tick()
    again = Mesh(store, MeshId("west"))
    again.acquire(VISION, 3)
    with capture_logs() as logs:
        planner_loop.tick()
    east.heartbeat()
    east.heartbeat(acks=east.obey())
    again.heartbeat()
    assert (again.held(VISION), logs) == (3, [])


def test_vanished_tenant_with_a_target_stops_no_plan(store: MemoryStore, planner_loop: PlannerLoop):
    east, west = Mesh(store, MeshId("east")), Mesh(store, MeshId("west"))
    east.acquire(BATCH, 4)
    west.acquire(VISION, 3)
    planner_loop.tick()
    more = Tenant(path=TenantPath("acme/more"), parent=ACME, quotas=TREE.tenants[VISION].quotas)
    store.configure(TenantTree([TREE.tenants[ACME], TREE.tenants[BATCH], more]))
    west.acquire(more.path, 1)
    assert planner_loop.tick() is not None


def test_quota_freed_for_its_owner_goes_to_no_other(store: MemoryStore, planner_loop: PlannerLoop):
    east, west, north = (Mesh(store, MeshId(name)) for name in ("east", "west", "north"))
    east.acquire(BATCH, 4)
    west.acquire(VISION, 4)
    planner_loop.tick()
    east.heartbeat()
    east.heartbeat(acks=east.obey())
    assert north.acquire(BATCH, 4).reason is Reason.QUOTA_EXHAUSTED
    west.heartbeat(west.demand(VISION, 4))
    assert (west.held(VISION), north.held(BATCH)) == (4, 0)


def test_one_root_plans_at_a_time_and_another_takes_over(store: MemoryStore, planner_loop: PlannerLoop, clock: ManualClock):
    east, west = Mesh(store, MeshId("east")), Mesh(store, MeshId("west"))
    east.acquire(BATCH, 4)
    west.acquire(VISION, 1)
    other = PlannerLoop(store, "root-2", leader_ttl_ms=LEADER_TTL_MS, tenant_policies=AT_ONCE)
    assert planner_loop.tick() is not None
    assert other.tick() is None
    for _ in range(1 + LEADER_TTL_MS // 1_000):
        clock.advance(1_000)
        store.sweep()
    assert other.tick() is not None


def test_the_leases_of_a_silent_mesh_are_asked_for_nothing(store: MemoryStore, planner_loop: PlannerLoop, clock: ManualClock):
    east = Mesh(store, MeshId("east"))
    east.acquire(BATCH, 4)
    east.store.join(east.record)  # Another session of the mesh: the first one expires by itself.
    west = Mesh(store, MeshId("west"))
    west.acquire(VISION, 1)
    answer = planner_loop.tick()
    assert answer is not None
    assert answer.lowered == ()
    assert [unmet.reason for unmet in answer.unmet] == [Reason.QUOTA_EXHAUSTED]


def test_planner_drops_its_plan_for_a_replaced_tree(store: MemoryStore, planner_loop: PlannerLoop):
    east, west = Mesh(store, MeshId("east")), Mesh(store, MeshId("west"))
    east.acquire(BATCH, 4)
    west.acquire(VISION, 1)
    apply = store.plan_apply

    def meanwhile(*arguments: object) -> int:
        store.configure(TREE)
        return apply(*arguments)  # type: ignore[arg-type]

    store.plan_apply = meanwhile  # type: ignore[method-assign]
    planner_loop.tick()
    east.heartbeat()
    assert east.leases[BATCH].target["gpu"] == 4 * GPU["gpu"]


class Remembering:
    """Planner loop with a half-life of a minute, and two tenants that compete for one unowned slot."""

    def __init__(self, clock: ManualClock) -> None:
        self.store = MemoryStore(clock=clock, ttl_ms=10**7, grace_ms=GRACE_MS)
        tenants = (Tenant(path=path, parent=ACME) for path in (VISION, BATCH))
        self.store.configure(TenantTree([Tenant(path=ACME, parent=None, quotas={(A100, "gpu"): Quota(nominal=GPU["gpu"])}), *tenants]))
        self.tenant_policies = MemoryTenantPolicies()
        self.publish(Rules(history_half_life_ms=60_000))
        self.mesh, self.clock = ManualMesh(self.store, Mesh(self.store, MeshId("east")).record), clock
        self.planner_loop = self.new_planner()

    def publish(self, rules: Rules) -> None:
        self.tenant_policies.publish(TenantPolicies(rules=rules))

    def new_planner(self) -> PlannerLoop:
        return PlannerLoop(self.store, "root-1", leader_ttl_ms=LEADER_TTL_MS, tenant_policies=self.tenant_policies)

    def holds(self, tenant: TenantPath, for_ms: int) -> None:
        self.mesh.acquire(tenant, A100, GPU)
        self.clock.advance(for_ms)
        self.planner_loop.tick()
        self.mesh.release(tenant, A100)

    def next_one(self) -> list[TenantPath]:
        """Return the recipient of the slot when both want it, BATCH the longest."""
        self.mesh.acquire(ACME, A100, GPU)  # Until they have asked.
        for tenant in (BATCH, VISION):
            self.clock.advance(1)
            self.mesh.acquire(tenant, A100, GPU)
        self.mesh.release(ACME, A100)
        answer = self.planner_loop.tick()
        return [target.tenant for target in answer.raised] if answer else []


@pytest.fixture
def remembering(clock: ManualClock) -> Remembering:
    return Remembering(clock)


def test_tenant_with_less_past_use_is_next(remembering: Remembering):
    remembering.planner_loop.tick()
    remembering.holds(BATCH, 60_000)
    assert remembering.next_one() == [VISION]


def test_without_a_half_life_who_has_waited_longest_is_next(remembering: Remembering):
    remembering.planner_loop.tick()
    remembering.holds(BATCH, 60_000)
    remembering.publish(Rules())
    assert remembering.next_one() == [BATCH]


def test_a_new_planner_begins_without_a_past(remembering: Remembering):
    remembering.planner_loop.tick()
    remembering.holds(BATCH, 60_000)
    remembering.planner_loop = remembering.new_planner()
    assert remembering.next_one() == [BATCH]


def test_idle_time_counts_as_no_use(remembering: Remembering):
    remembering.planner_loop.tick()
    remembering.holds(VISION, 60_000)
    remembering.clock.advance(60_000)
    remembering.planner_loop.tick()
    remembering.holds(BATCH, 1_000)
    assert remembering.next_one() == [BATCH]


def test_late_round_counts_the_whole_time_since_the_last(remembering: Remembering):
    remembering.planner_loop.tick()
    remembering.holds(VISION, 10_000)
    remembering.holds(BATCH, 600_000)
    assert remembering.next_one() == [VISION]


def test_past_use_survives_a_new_tree(remembering: Remembering):
    remembering.planner_loop.tick()
    remembering.holds(BATCH, 60_000)
    tree = remembering.store.snapshot().tree
    remembering.store.configure(TenantTree([Tenant(path=TenantPath("above"), parent=None), *tree.tenants.values()]))
    assert remembering.next_one() == [VISION]


class TightStore(MemoryStore):
    """Store that refuses targets of one tenant."""

    refuses = TenantPath("acme/t3")

    def plan_apply(self, planner: int, version: int, target_updates: tuple[TargetUpdate, ...]) -> int:
        if any(target_update.tenant == self.refuses for target_update in target_updates):
            raise QuotaExceeded(f"the targets exceed a limit at {self.refuses}")
        return super().plan_apply(planner, version, target_updates)


def test_refused_target_is_named_and_blocks_no_other(clock: ManualClock):
    store = TightStore(clock=clock, ttl_ms=TTL_MS, grace_ms=GRACE_MS)
    teams = [TenantPath(f"acme/t{number}") for number in range(2 * ROWS_MAX)]
    own = {(A100, "gpu"): Quota(nominal=GPU["gpu"])}
    store.configure(TenantTree([TREE.tenants[ACME], *(Tenant(path=path, parent=ACME, quotas=own) for path in teams)]))
    east = Mesh(store, MeshId("east"), gpus=len(teams))
    east.heartbeat(*(east.demand(path, 1) for path in teams))
    with capture_logs() as logs:
        PlannerLoop(store, "root-1", leader_ttl_ms=LEADER_TTL_MS, tenant_policies=AT_ONCE).tick()
    east.heartbeat()
    assert {path for path in teams if east.held(path)} == {*teams} - {store.refuses}
    assert [(line["log_level"], line["tenant"]) for line in logs] == [("warning", store.refuses)]


def test_tenant_drained_during_a_term_returns_its_quota(store: MemoryStore):
    tenant_policies = MemoryTenantPolicies()
    planner_loop = PlannerLoop(store, "root-1", leader_ttl_ms=LEADER_TTL_MS, tenant_policies=tenant_policies)
    east = Mesh(store, MeshId("east"))
    east.acquire(BATCH, 2)
    east.acquire(VISION, 1)
    answer = planner_loop.tick()
    assert answer is not None
    assert answer.lowered == ()
    tenant_policies.stop(BATCH, TenantStop(stop=Stop.DRAIN))
    answer = planner_loop.tick()
    assert answer is not None
    assert [(target.tenant, target.reason) for target in answer.lowered] == [(BATCH, Reason.TENANT_DRAINED)]
    east.heartbeat()
    east.heartbeat(acks=east.obey())
    assert [lease.tenant for lease in store.snapshot().leases] == [VISION]


def test_new_weights_count_from_the_next_plan(store: MemoryStore):
    tenant_policies = MemoryTenantPolicies()
    planner_loop = PlannerLoop(store, "root-1", leader_ttl_ms=LEADER_TTL_MS, tenant_policies=tenant_policies)
    more = Tenant(path=TenantPath("acme/more"), parent=ACME)
    store.configure(TenantTree([*TREE.tenants.values(), more]))
    east, west = Mesh(store, MeshId("east")), Mesh(store, MeshId("west"))
    tenant_policies.publish(TenantPolicies(weights={BATCH: Fraction(3)}))
    east.heartbeat(east.demand(BATCH, 4))
    west.heartbeat(west.demand(more.path, 4))
    answer = planner_loop.tick()
    assert answer is not None
    assert {target.tenant: target.amounts["gpu"] // GPU["gpu"] for target in answer.raised} == {BATCH: 3, more.path: 1}


def company(clock: ManualClock, quota: ResourceSet) -> MemoryStore:
    """Two tenants with this much quota each, which they lend to each other."""
    quotas = {(A100, name): Quota(nominal=units) for name, units in quota.items()}
    store = MemoryStore(clock=clock, ttl_ms=TTL_MS, grace_ms=GRACE_MS)
    store.configure(TenantTree([TREE.tenants[ACME], *(Tenant(path=path, parent=ACME, quotas=quotas) for path in (VISION, BATCH))]))
    return store


def hand(store: MemoryStore, name: str, capacity: ResourceSet, used: ResourceSet = NOTHING) -> ManualMesh:
    pool = PoolRecord(pool=PoolName("p"), flavor=A100, capacity=capacity, used=used)
    return ManualMesh(store, MeshRecord(mesh=MeshId(name), labels={}, pools=(pool,), cluster=name))


@pytest.mark.parametrize("slot", [GPU, ResourceSet.of({"cpu": 1, "memory": 4}), ResourceSet.of({"cpu": 8, "gpu": 1})], ids=str)
def test_slot_of_several_resources_comes_from_one_borrower(clock: ManualClock, slot: ResourceSet):
    store = company(clock, slot.times(4))
    east, west = hand(store, "east", slot.times(8)), hand(store, "west", slot.times(8))
    assert east.acquire(BATCH, A100, slot, 8) == Granted(slots=8)
    west.acquire(VISION, A100, slot, 1)
    answer = PlannerLoop(store, "root-1", leader_ttl_ms=LEADER_TTL_MS, tenant_policies=AT_ONCE).tick()
    assert answer is not None
    assert [(target.tenant, ResourceSet(target.amounts)) for target in answer.lowered] == [(BATCH, slot.times(7))]
    assert [(target.tenant, ResourceSet(target.amounts)) for target in answer.raised] == [(VISION, slot)]


def occupy(store: MemoryStore, mesh: ManualMesh, tenant: TenantPath, gpus: int) -> None:
    """Run as many stages of one GPU."""
    mesh.acquire(tenant, A100, GPU, gpus)
    for number in range(gpus):
        stage = StageId(f"{tenant}:{number}")
        store.submit(mesh.record.mesh, StageSpec(stage=stage, run=RunId("r"), tenant=tenant, tasks=(), slot=GPU, width=1))
        assert store.claim(mesh.session, stage, mesh.lease(tenant, A100)) is not None


@pytest.mark.parametrize("held", [5, 7, 8])
def test_big_slot_is_completed_on_a_mesh_with_a_part_free(clock: ManualClock, held: int):
    store = company(clock, GPU.times(4))
    east = hand(store, "east", GPU.times(8), used=GPU.times(held))
    occupy(store, east, BATCH, held)
    east.acquire(VISION, A100, GPU.times(4), 1)
    planner_loop = PlannerLoop(store, "root-1", leader_ttl_ms=LEADER_TTL_MS, tenant_policies=AT_ONCE)
    answer = planner_loop.tick()
    assert answer is not None
    assert {target.tenant: ResourceSet(target.amounts) for target in (*answer.lowered, *answer.raised)} == {
        BATCH: GPU.times(4),
        VISION: GPU.times(4),
    }
    assert planner_loop.tick().lowered == ()  # A pending increase is requested once.


def test_promised_capacity_is_not_promised_again(clock: ManualClock):
    store = company(clock, GPU.times(5))
    other = TenantPath("acme/other")
    store.configure(TenantTree([*store.snapshot().tree.tenants.values(), Tenant(path=other, parent=ACME)]))
    east = hand(store, "east", GPU.times(9), used=GPU.times(7))
    occupy(store, east, other, 7)
    east.acquire(VISION, A100, GPU.times(4), 1)
    planner_loop = PlannerLoop(store, "root-1", leader_ttl_ms=LEADER_TTL_MS, tenant_policies=AT_ONCE)
    assert [ResourceSet(target.amounts) for target in planner_loop.tick().lowered] == [GPU.times(5)]
    east.acquire(BATCH, A100, GPU.times(4), 1)
    assert [ResourceSet(target.amounts) for target in planner_loop.tick().lowered] == [GPU.times(1)]


def test_given_snapshot_serves_only_a_planner_still_elected(store: MemoryStore, clock: ManualClock):
    """Another root may have planned since, and the snapshot would be older than its plan."""
    east, west = Mesh(store, MeshId("east")), Mesh(store, MeshId("west"))
    east.acquire(BATCH, 4)
    west.acquire(VISION, 3)
    before_all = store.snapshot()
    ours, other = (PlannerLoop(store, name, leader_ttl_ms=LEADER_TTL_MS, tenant_policies=AT_ONCE) for name in ("root-1", "root-2"))
    assert other.tick() is not None
    clock.advance(LEADER_TTL_MS // 2 + 1)
    store.sweep()
    clock.advance(LEADER_TTL_MS // 2 + 1)
    taken = ours.tick(before_all)
    assert taken is None or not (taken.lowered or taken.raised)  # It has seen that the other's plan is under way.
    held = ours.tick(before_all)
    assert held is not None
    assert held.lowered
