"""Simulation of two flavors on two meshes, with the real coordinator, children, ledger and planner."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from dag.run.runs import RunRecord
from dag.run.states import RunState
from dag.spec.spec import digest, parse
from federation.quota.policies import Fungibility, Policies, PreemptionMode, QueueSettings, ResourceGroup, Rules, TenantPolicies, TryOn
from federation.snapshot import MeshRecord, PoolRecord
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.ids import FlavorName, MeshId, PoolName, RunId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from simulator.world import World

SHARED, OWNER, GUEST = TenantPath("shared"), TenantPath("shared/owner"), TenantPath("shared/guest")
SPOT, STANDARD = FlavorName("spot"), FlavorName("standard")
STEPS_MAX = 8_000


def world(seed: int, *, is_strict: bool = False, flavors: tuple[str, ...] = (SPOT, STANDARD), **search: TryOn) -> World:
    """Return a world: the owner has two CPUs of each flavor; the guest has none, and borrows spots only."""

    def tenant(path: TenantPath, cpus: int, standard_limit: int | None) -> Tenant:
        quotas = {
            (SPOT, "cpu"): Quota(nominal=cpus * 10_000),
            (STANDARD, "cpu"): Quota(nominal=cpus * 10_000, borrowing_limit=standard_limit),
        }
        return Tenant(path=path, parent=SHARED, quotas=quotas, functions=("*",))

    def mesh(name: str, flavor: FlavorName) -> MeshRecord:
        pool = PoolRecord(pool=PoolName("general"), flavor=flavor, capacity=ResourceSet.of({"cpu": 2}))
        return MeshRecord(mesh=MeshId(name), labels={"zone": name}, pools=(pool,), cluster=f"cluster-{name}")

    tree = TenantTree((Tenant(path=SHARED, parent=None), tenant(OWNER, 2, None), tenant(GUEST, 0, 0)))
    made = World(seed, tree, (mesh("spots", SPOT), mesh("usual", STANDARD)))
    group = ResourceGroup(resources=("cpu",), flavors=flavors)
    own = QueueSettings(
        groups=(group,), fungibility=Fungibility(**search), policies=Policies(reclaim=PreemptionMode.ANY), is_strict=is_strict, min_run_ms=0
    )
    made.tenant_policies.publish(TenantPolicies(rules=Rules(min_run_ms=0), settings={OWNER: own, GUEST: own}))
    return made


def submit(to: World, name: str, tenant: TenantPath, *cpus: int, zone: str | None = None, priority: int = 0) -> RunId:
    """Submit a task for each number of CPUs, all independent."""
    labels = {"labels": {"zone": zone}} if zone else {}
    options = [{"num_cpus": count, "priority": priority, **labels} for count in cpus]
    nodes = {f"{name}{number}": {"call": "work:do", "args": [], "options": each} for number, each in enumerate(options)}
    spec = {"spec": "dag/1", "id": name, "tenant": tenant, "nodes": nodes, "outputs": {node: {"$ref": node} for node in nodes}}
    body = json.dumps(spec).encode()
    to.runs.create(RunRecord(run=RunId(name), tenant=tenant, digest=digest(parse(body)), spec=body, created_ms=to.clock.now_ms), {})
    return RunId(name)


def joined(through: World) -> None:
    while len(through.store.snapshot().meshes) < len(through.meshes):
        through.step()


def run_all(through: World) -> dict[RunId, RunRecord]:
    for _ in range(STEPS_MAX):
        through.step()
        assert through.store.audit() == ()
        if not through.runs.active():
            break
    records = {record.run: record for record in through.ended}
    assert [record.state for record in records.values()] == [RunState.SUCCEEDED] * len(records), f"seed {through.seed}"
    assert records
    return records


def first_placed(through: World, run: RunId) -> tuple[str, str]:
    """Return the first mesh of the run's first stage, and the reason."""
    for _ in range(STEPS_MAX):
        record = through.runs.load(run)
        if record is not None and record.stages:
            stage = next(iter(record.stages.values()))
            return stage.mesh, stage.why_here
        through.step()
    raise AssertionError(f"seed {through.seed}: {run} was never placed")


def borrowed(seed: int, **search: TryOn) -> World:
    """Return a world in which the guest has borrowed all spots."""
    through = world(seed, **search)
    joined(through)
    submit(through, "borrows", GUEST, *[1] * 30, zone="spots")
    for _ in range(STEPS_MAX):
        through.step()
        if through.store.snapshot().usage.get((GUEST, SPOT, "cpu"), 0) == 20_000:
            return through
    raise AssertionError(f"seed {seed}: the guest never borrowed so much")


@pytest.mark.seeds(3)
def test_work_goes_to_the_first_flavor_that_has_room(seed: int) -> None:
    through = world(seed, flavors=(STANDARD, SPOT))
    joined(through)
    run = submit(through, "claims", OWNER, 2)
    assert first_placed(through, run) == ("usual", "FLAVOR_ORDER usual/general: flavor standard is tried before spot")
    run_all(through)


@pytest.mark.seeds(3)
def test_an_owner_of_a_lent_flavor_uses_the_next_one(seed: int) -> None:
    through = borrowed(seed)
    run = submit(through, "claims", OWNER, 1)
    assert first_placed(through, run)[0] == "usual"
    records = run_all(through)
    assert not [event for event in through.runs.events(RunId("borrows"), 0, 10_000) if event.reason is Reason.QUOTA_RECLAIMED]
    assert records[run].ended_ms < records[RunId("borrows")].ended_ms


@pytest.mark.seeds(3)
def test_with_on_preempt_stop_an_owner_preempts_borrowers(seed: int) -> None:
    through = borrowed(seed, on_preempt=TryOn.STOP)
    run = submit(through, "claims", OWNER, 2)
    mesh, why = first_placed(through, run)
    assert mesh == "spots"
    assert why.startswith("FLAVOR_ORDER spots/general: the tenant's own quota of flavor spot is reclaimed from borrowers")
    records = run_all(through)
    assert [event for event in through.runs.events(RunId("borrows"), 0, 10_000) if event.reason is Reason.QUOTA_RECLAIMED]
    assert records[run].ended_ms < records[RunId("borrows")].ended_ms


@pytest.mark.seeds(4)
def test_in_strict_order_small_work_waits_behind_large_work(seed: int) -> None:
    through = world(seed, is_strict=True)
    joined(through)
    runs = [submit(through, f"r{number}", OWNER, cpus, zone="spots") for number, cpus in enumerate((1, 2, 1, 2, 1, 1))]
    records = run_all(through)
    stages = sorted((stage for run in runs for stage in records[run].stages.values()), key=lambda stage: stage.sent_ms)
    assert all(early.started_ms <= late.started_ms for early, late in pairwise(stages) if early.sent_ms < late.sent_ms)
    reasons = {event.reason for run in runs for event in through.runs.events(run, 0, 10_000)}
    assert Reason.BEHIND_HEAD in reasons


@pytest.mark.seeds(2)
def test_without_it_small_work_overtakes(seed: int) -> None:
    through = world(seed)
    joined(through)
    runs = [submit(through, f"r{number}", OWNER, cpus, zone="spots") for number, cpus in enumerate((1, 2, 1, 2, 1, 1))]
    run_all(through)
    assert Reason.BEHIND_HEAD not in {event.reason for run in runs for event in through.runs.events(run, 0, 10_000)}
