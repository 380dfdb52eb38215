"""Simulation of tenants that borrow from each other over several meshes, with the real planner.

Quota holds at every step, claims are served, and preempted work ends later with the right values.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from dag.run.runs import RunRecord
from dag.run.states import RunState
from dag.spec.spec import digest, parse
from federation.dispatch import QueuedStage
from federation.quota.policies import Rules, TenantPolicies
from federation.snapshot import FederationSnapshot, MeshRecord, PoolRecord
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.ids import FlavorName, MeshId, NodeId, PoolName, RunId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.stages.admission_invariants import violations
from mesh.stages.simulated_host import value_of
from mesh.stages.spec import TaskSpec
from simulator.world import GRACE_MS, HEARTBEAT_MS, LEASE_TTL_MS, Faults, World

CPU = (FlavorName("standard"), "cpu")
OWNER, GUEST, OTHER = TenantPath("shared/owner"), TenantPath("shared/guest"), TenantPath("shared/other")
STEPS_MAX = 8_000
#: Grace for tasks of 0.8 s at most, so some end by themselves in time.
MIN_RUN_MS = 600


def tree() -> TenantTree:
    """Return a tree of four CPUs: three of the owner, one of another tenant; the guest has none, and borrows."""
    shared = TenantPath("shared")

    def tenant(path: TenantPath, cpus: int, limit: int | None = None) -> Tenant:
        quota = Quota(nominal=cpus * 10_000, borrowing_limit=None if limit is None else limit * 10_000)
        return Tenant(path=path, parent=shared, quotas={CPU: quota}, functions=("*",))

    return TenantTree((Tenant(path=shared, parent=None), tenant(OWNER, 3), tenant(GUEST, 0), tenant(OTHER, 1, limit=1)))


def mesh(name: str, cpus: int = 2) -> MeshRecord:
    pool = PoolRecord(pool=PoolName("general"), flavor=FlavorName("standard"), capacity=ResourceSet.of({"cpu": cpus}))
    return MeshRecord(mesh=MeshId(name), labels={"zone": name}, pools=(pool,), cluster=f"cluster-{name}")


def world(seed: int, faults: Faults | None = None) -> World:
    made = World(seed, tree(), (mesh("east"), mesh("west")), faults or Faults())
    made.tenant_policies.publish(TenantPolicies(rules=Rules(min_run_ms=0)))
    return made


def fan(name: str, tenant: TenantPath, tasks: int, *zones: str) -> dict[str, object]:
    """Return independent tasks in alternating zones, and one that needs all of them."""
    nodes: dict[str, object] = {}
    for number in range(tasks):
        labels = {"labels": {"zone": zones[number % len(zones)]}} if zones else {}
        nodes[f"{name}{number}"] = {"call": "work:do", "args": [], "options": {"num_cpus": 1, **labels}}
    nodes[f"{name}-all"] = {"call": "work:do", "args": [{"$ref": node} for node in tuple(nodes)], "options": {"num_cpus": 1}}
    return {"spec": "dag/1", "id": name, "tenant": tenant, "nodes": nodes, "outputs": {"all": {"$ref": f"{name}-all"}}}


def submit(to: World, spec: dict[str, object]) -> RunId:
    body = json.dumps(spec).encode()
    run = RunId(str(spec["id"]))
    to.runs.create(RunRecord(run=run, tenant=spec["tenant"], digest=digest(parse(body)), spec=body, created_ms=to.clock.now_ms), {})
    return run


def step(through: World) -> None:
    """Take one step, then check quota of every tenant, all counts, and that no mesh runs more than it holds."""
    through.step()
    snapshot = through.store.snapshot()
    assert through.store.audit() == ()
    for path in snapshot.tree.tenants:
        assert snapshot.tree.available(snapshot.usage, path, CPU) >= 0, f"seed {through.seed}: {path} has more than it may"
    for simulated in through.meshes.values():
        if simulated.child is not None:
            assert violations(simulated.child.state.admission) == []
    check_paid(through)


def check_paid(through: World) -> None:
    """Check that the ledger charges all that meshes run while they are awake and in a session."""
    held = {(lease.mesh, lease.tenant): lease.amounts["cpu"] for lease in through.store.snapshot().leases if lease.incarnation is None}
    for name, simulated in through.meshes.items():
        child, host = simulated.child, simulated.host
        if child is None or host is None or through.clock.now_ms < simulated.resumes_ms or not child.is_joined:
            continue
        for tenant in (OWNER, GUEST, OTHER):
            runs = host.slots_in_use(tenant) * 10_000
            assert runs <= held.get((name, tenant), 0), f"seed {through.seed}: {name} runs what {tenant} does not hold"


def run_all(through: World, runs: list[RunId]) -> dict[RunId, RunRecord]:
    for _ in range(STEPS_MAX):
        step(through)
        if not through.runs.active():
            break
    records = {run: through.runs.load(run) for run in runs}
    stuck = {run: record.state for run, record in records.items() if record is not None and record.state is not RunState.SUCCEEDED}
    assert not stuck, f"seed {through.seed}: {stuck}"
    return {run: record for run, record in records.items() if record is not None}


def check_values(through: World, spec: dict[str, object], record: RunRecord) -> None:
    first = {node: value_of(NodeId(node), ()) for node in spec["nodes"] if not node.endswith("-all")}  # type: ignore[attr-defined]
    last = f"{spec['id']}-all"
    stored = record.nodes[NodeId(last)].stored
    assert stored is not None
    assert json.loads(through.store.get(record.run, (stored.sha256,))[stored.sha256]) == value_of(NodeId(last), tuple(first.values()))


def reclaimed(through: World, run: RunId) -> int:
    return sum(event.reason is Reason.QUOTA_RECLAIMED for event in through.runs.events(run, 0, 10_000))


def until_borrowed(through: World, units: int) -> None:
    for _ in range(STEPS_MAX):
        step(through)
        if through.store.snapshot().usage.get((GUEST, *CPU), 0) >= units:
            return
    pytest.fail(f"seed {through.seed}: the guest never borrowed so much")


FAULTS = {
    "all goes well": Faults(),
    "meshes die and sleep": Faults(kill=0.004, pause=0.004, budget=3),
    "processes of meshes are killed": Faults(kill_process=0.01, budget=4),
    "two roots plan, and crash": Faults(coordinator_crash=0.03, second_coordinator=0.1),
    "the ledger begins epochs": Faults(ledger_restart=0.004, budget=0),
    "everything at once": Faults(
        kill=0.003, kill_process=0.003, pause=0.003, coordinator_crash=0.02, second_coordinator=0.05, ledger_restart=0.002, budget=4
    ),
}


@pytest.mark.parametrize("faults", [pytest.param(faults, id=name) for name, faults in FAULTS.items()])
@pytest.mark.seeds(5)
def test_an_owner_reclaims_quota_over_meshes_without_a_loss(seed: int, faults: Faults) -> None:
    through = world(seed, replace(faults))
    borrows, claims = fan("borrows", GUEST, 24, "east", "west"), fan("claims", OWNER, 6, "east")
    late = submit(through, borrows)
    until_borrowed(through, 3 * 10_000)
    soon = submit(through, claims)
    records = run_all(through, [late, soon])
    check_values(through, borrows, records[late])
    check_values(through, claims, records[soon])
    assert reclaimed(through, soon) == 0  # A tenant within its own quota loses nothing.
    if faults == FAULTS["all goes well"]:
        assert reclaimed(through, late) > 0
        assert records[soon].ended_ms < records[late].ended_ms


class LongWork(World):
    """Work that never ends by itself."""

    def behaviour(self, task: TaskSpec) -> tuple[int, bool]:
        _, fails = super().behaviour(task)
        return 600_000, fails


@pytest.mark.parametrize("faults", [Faults(), Faults(coordinator_crash=0.03, second_coordinator=0.1)], ids=["all goes well", "two roots"])
@pytest.mark.seeds(4)
def test_owned_demand_is_met_within_two_ttls_and_the_grace(seed: int, faults: Faults) -> None:
    quotas = {OWNER: 20, GUEST: 0}
    shared = TenantPath("shared")
    teams = (Tenant(path=path, parent=shared, quotas={CPU: Quota(nominal=own * 10_000)}, functions=("*",)) for path, own in quotas.items())
    through = LongWork(seed, TenantTree((Tenant(path=shared, parent=None), *teams)), (mesh("east", 24), mesh("west", 24)), replace(faults))
    through.tenant_policies.publish(TenantPolicies(rules=Rules(min_run_ms=0)))
    for number in range(20):  # Each is a stage of its own.
        submit(through, fan(f"borrows{number}", GUEST, 1, "west"))
    until_borrowed(through, 20 * 10_000)
    claims = [submit(through, fan(f"claims{number}", OWNER, 1, "east")) for number in range(30)]
    wanted_ms = until(
        through, lambda seen: sum(view.waiting + view.claimed for view in seen.meshes if view.record.mesh == "east") == len(claims)
    )
    met_ms = until(through, lambda seen: seen.usage.get((OWNER, *CPU), 0) == 20 * 10_000)
    assert met_ms - wanted_ms <= 2 * (LEASE_TTL_MS + GRACE_MS)


@pytest.mark.parametrize("faults", [Faults(), Faults(coordinator_crash=0.03, second_coordinator=0.1)], ids=["all goes well", "two roots"])
@pytest.mark.seeds(4)
def test_nothing_is_preempted_before_its_minimum_run_time(seed: int, faults: Faults) -> None:
    """The age of the lease does not count: stage after stage has started under it."""
    through = world(seed, replace(faults))
    through.tenant_policies.publish(TenantPolicies(rules=Rules(min_run_ms=MIN_RUN_MS)))
    late = [submit(through, fan(f"borrows{number}", GUEST, 1)) for number in range(60)]
    began_ms = through.clock.now_ms
    until(through, lambda _: through.clock.now_ms > began_ms + 2 * MIN_RUN_MS)
    until_borrowed(through, 3 * 10_000)
    soon = [submit(through, fan(f"claims{number}", OWNER, 2)) for number in range(6)]
    ages_ms: dict[tuple[str, int], int] = {}
    for _ in range(STEPS_MAX):
        step(through)
        for simulated in through.meshes.values():
            for stage, running in simulated.child.state.running.items() if simulated.child is not None else ():
                if running.is_preempted:
                    ages_ms.setdefault((stage, running.claim.token), through.clock.monotonic_ms() - running.started_ms)
        if not through.runs.active():
            break
    assert {through.runs.load(run).state for run in (*late, *soon)} == {RunState.SUCCEEDED}  # type: ignore[union-attr]
    assert ages_ms, "nothing was taken back"
    assert min(ages_ms.values()) >= MIN_RUN_MS


def until(through: World, holds: Callable[[FederationSnapshot], bool]) -> int:
    """Return the time when it becomes true."""
    for _ in range(STEPS_MAX):
        if holds(through.store.snapshot()):
            return through.clock.now_ms
        step(through)
    pytest.fail(f"seed {through.seed}: it never came to that")


@pytest.mark.seeds(12)
def test_three_tenants_contend_and_all_end(seed: int) -> None:
    through = world(seed, Faults(kill=0.002, kill_process=0.004, pause=0.002, coordinator_crash=0.02, second_coordinator=0.05, budget=3))
    random_stream = random.Random(f"contend {seed}")
    specs = [
        fan(
            f"run{number}",
            random_stream.choice((OWNER, GUEST, OTHER)),
            random_stream.randint(2, 8),
            *random_stream.choice(((), ("east",), ("west",), ("east", "west"))),
        )
        for number in range(6)
    ]
    runs = []
    for spec in specs:
        runs.append(submit(through, spec))
        for _ in range(random_stream.randint(0, 30)):
            step(through)
    records = run_all(through, runs)
    for spec, run in zip(specs, runs, strict=True):
        check_values(through, spec, records[run])


@pytest.mark.seeds(3)
def test_after_the_end_nothing_is_held_and_nothing_aimed_at(seed: int) -> None:
    through = world(seed, Faults(kill=0.003, pause=0.003, second_coordinator=0.05, budget=2))
    run_all(through, [submit(through, fan("one", GUEST, 10)), submit(through, fan("two", OWNER, 10))])
    through.faults.budget = 0
    for _ in range(300):  # Until all meshes are back and have returned idle leases.
        step(through)
    snapshot = through.store.snapshot()
    assert (snapshot.leases, dict(snapshot.usage)) == ((), {})


class CheckedDemands(World):
    """World that checks after each step that no demand exceeds what queued stages could use.

    A stage that starts takes its demand with it. A stage that leaves the queue in another way may do so while a heartbeat is on its way
    that still names it; the next heartbeat corrects this.
    """

    def __init__(self, seed: int, tree: TenantTree, records: tuple[MeshRecord, ...], faults: Faults) -> None:
        super().__init__(seed, tree, records, faults)
        self._queued: dict[MeshId, tuple[QueuedStage, ...]] = {}
        self._left: list[tuple[int, MeshId, QueuedStage]] = []  #: When, where, and which stages left a queue without a claim.

    def step(self) -> None:
        super().step()
        snapshot, now_ms = self.store.snapshot(), self.clock.now_ms
        started = {stage.stage for stage in snapshot.running}
        self._left = [each for each in self._left if now_ms - each[0] <= 2 * HEARTBEAT_MS]
        for mesh, before in self._queued.items():
            names = {stage.stage for stage in self.store.waiting(mesh, 10**6)} | started
            self._left += [(now_ms, mesh, stage) for stage in before if stage.stage not in names]
        self._queued = {mesh: self.store.waiting(mesh, 10**6) for mesh in self.meshes}
        wanted: Counter[tuple[MeshId, TenantPath, FlavorName, ResourceSet, int]] = Counter()
        for demand in snapshot.demands:
            wanted[demand.mesh, demand.tenant, demand.flavor, demand.whole or demand.slot, demand.priority] += demand.slots
        for (mesh, tenant, _, slot, priority), slots in wanted.items():
            stages = (*self._queued[mesh], *(stage for _, at, stage in self._left if at == mesh))
            usable = sum(one.width for one in stages if (one.tenant, one.slot, one.priority) == (tenant, slot, priority))
            is_awake = self.meshes[mesh].child is not None and now_ms >= self.meshes[mesh].resumes_ms
            assert slots <= usable or not is_awake, (
                f"seed {self.seed}: {mesh} wants {slots} slots of {slot} for {tenant}, and could use {usable}"
            )


@pytest.mark.seeds(12)
def test_no_demand_outlives_the_stages_that_could_use_it(seed: int) -> None:
    """Stages have different widths and slots, some are cancelled, and the ledger begins epochs."""
    faults = Faults(kill=0.002, kill_process=0.004, ledger_restart=0.002, budget=3)
    through = CheckedDemands(seed, tree(), (mesh("east"), mesh("west")), faults)
    through.tenant_policies.publish(TenantPolicies(rules=Rules(min_run_ms=0)))
    random_stream = random.Random(f"cancelled {seed}")
    runs: list[RunId] = []
    for number in range(12):
        spec = fan(f"run{number}", random_stream.choice((OWNER, GUEST, OTHER)), random_stream.randint(1, 6))
        for node in spec["nodes"].values():  # type: ignore[attr-defined]
            node["options"].update(num_cpus=random_stream.choice((0.5, 1, 1.5)), priority=random_stream.randint(0, 1))
        runs.append(submit(through, spec))
        for _ in range(random_stream.randint(0, 20)):
            through.step()
        if random_stream.random() < 0.5:
            through.runs.request_cancel(random_stream.choice(runs), "changed my mind")
    for _ in range(STEPS_MAX):
        through.step()
        if not through.runs.active():
            break
    assert not through.runs.active()
    assert through.store.snapshot().demands == ()
