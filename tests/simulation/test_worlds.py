"""Simulation of runs while processes die, sleep and double: nothing lost, nothing leaked, the right values."""

import hashlib
import json
import random
from dataclasses import replace

import pytest

from dag.run.runs import RunRecord
from dag.run.states import NODE_ENDS, NodeState, RunState, StageState
from dag.spec.spec import digest, parse
from federation.quota.policies import Policies, PreemptionMode, QueueSettings, Rules, TenantPolicies
from federation.snapshot import MeshRecord, PoolRecord
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.ids import FlavorName, MeshId, NodeId, PoolName, RunId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.stages.admission_invariants import violations
from mesh.stages.simulated_host import value_of
from simulator.world import Faults, World

TENANT = TenantPath("acme/vision")
CPU = (FlavorName("standard"), "cpu")
STEPS_MAX = 6_000


def tree(nominal: int = 3) -> TenantTree:
    quota = Quota(nominal=nominal * 10_000)
    return TenantTree(
        (
            Tenant(path=TenantPath("acme"), parent=None, quotas={CPU: Quota(nominal=0)}),
            Tenant(path=TENANT, parent=TenantPath("acme"), quotas={CPU: quota}, functions=("*",)),
        )
    )


def mesh(name: str, cpus: int = 2, **labels: str) -> MeshRecord:
    pool = PoolRecord(pool=PoolName("general"), flavor=FlavorName("standard"), capacity=ResourceSet.of({"cpu": cpus}))
    return MeshRecord(mesh=MeshId(name), labels={"zone": name, **labels}, pools=(pool,), cluster=f"cluster-{name}")


def graph(seed: int, *, nodes: int = 30, pinned: float = 0.3) -> dict[str, object]:
    """Return a random graph with requested zones for some nodes."""
    random_stream = random.Random(f"graph {seed}")
    spec: dict[str, dict[str, object]] = {}
    for number in range(nodes):
        earlier = [f"n{other}" for other in range(number)]
        needs = sorted(random_stream.sample(earlier, min(len(earlier), random_stream.randint(0, 3))), key=lambda name: int(name[1:]))
        options: dict[str, object] = {"num_cpus": 1}
        if random_stream.random() < pinned:
            options["labels"] = {"zone": random_stream.choice(["east", "west"])}
        spec[f"n{number}"] = {"call": "work:do", "args": [{"$ref": need} for need in needs], "options": options}
        order_only = [name for name in earlier if name not in needs]
        if order_only and random_stream.random() < 0.2:
            spec[f"n{number}"]["after"] = [random_stream.choice(order_only)]
    read = {ref["$ref"] for node in spec.values() for ref in node["args"]}  # type: ignore[attr-defined]
    return {
        "spec": "dag/1",
        "id": f"run-{seed}",
        "tenant": TENANT,
        "nodes": spec,
        "outputs": {name: {"$ref": name} for name in spec if name not in read},
    }


def submit(world: World, spec: dict[str, object]) -> RunRecord:
    body = json.dumps(spec).encode()
    record = RunRecord(run=RunId(str(spec["id"])), tenant=TENANT, digest=digest(parse(body)), spec=body, created_ms=world.clock.now_ms)
    world.runs.create(record, {})
    return record


def run_to_the_end(world: World, run: RunId) -> RunRecord:
    for _ in range(STEPS_MAX):
        world.step()
        check_every_step(world)
        record = world.runs.load(run)
        assert record is not None
        if not world.runs.active():
            return record
    pytest.fail(f"seed {world.seed}: the run did not end: {history(world, run)}")


def check_every_step(world: World) -> None:
    snapshot = world.store.snapshot()
    held = sum(lease.amounts["cpu"] for lease in snapshot.leases)
    assert held <= snapshot.tree.own_quota(TENANT, CPU)
    for simulated in world.meshes.values():
        if simulated.child is not None:
            assert violations(simulated.child.state.admission) == []


def history(world: World, run: RunId) -> str:
    record = world.runs.load(run)
    assert record is not None
    stages = [(stage.stage, stage.mesh, stage.state.value, stage.nodes) for stage in record.stages.values()]
    nodes = [(node.node, node.state.value, node.stage, node.mesh) for node in record.nodes.values() if node.state not in NODE_ENDS]
    return f"{record.state} {stages} {nodes}"


def expected(spec: dict[str, object]) -> dict[str, str]:
    values: dict[str, str] = {}
    for name, node in spec["nodes"].items():  # type: ignore[attr-defined]
        values[name] = value_of(NodeId(name), tuple(dict.fromkeys(values[ref["$ref"]] for ref in node["args"])))
    return values


def check_end(world: World, spec: dict[str, object], record: RunRecord) -> None:
    assert record.state is RunState.SUCCEEDED, history(world, record.run)
    values = expected(spec)
    for name in spec["outputs"]:  # type: ignore[attr-defined]
        stored = record.nodes[NodeId(name)].stored
        assert stored is not None
        data = world.store.get(record.run, (stored.sha256,))[stored.sha256]
        assert json.loads(data) == values[name]
        assert hashlib.sha256(data).hexdigest() == stored.sha256
    check_nothing_left(world)


def check_nothing_left(world: World) -> None:
    world.faults.budget = 0
    for _ in range(200):  # Until all paused or dead processes are back and know of the end.
        world.step()
    assert world.store.snapshot().leases == ()
    for simulated in world.meshes.values():
        assert simulated.host is not None
        assert simulated.host.is_empty
        assert simulated.child is not None
        assert simulated.child.state.admission.workloads == {}


@pytest.mark.seeds(10)
def test_a_run_over_two_meshes_is_right_and_leaves_nothing(seed: int) -> None:
    world = World(seed, tree(), (mesh("east"), mesh("west")))
    spec = graph(seed)
    check_end(world, spec, run_to_the_end(world, submit(world, spec).run))


@pytest.mark.seeds(20)
def test_a_run_survives_killed_and_paused_meshes(seed: int) -> None:
    world = World(seed, tree(), (mesh("east"), mesh("west"), mesh("north")), Faults(kill=0.01, pause=0.01, budget=3))
    spec = graph(seed)
    check_end(world, spec, run_to_the_end(world, submit(world, spec).run))


@pytest.mark.seeds(20)
def test_work_survives_the_kill_of_a_meshs_process(seed: int) -> None:
    world = World(seed, tree(), (mesh("east"), mesh("west")), Faults(kill_process=0.02, pause=0.003, budget=6))
    spec = graph(seed)
    check_end(world, spec, run_to_the_end(world, submit(world, spec).run))


@pytest.mark.seeds(10)
def test_a_run_survives_coordinators_that_crash_and_double(seed: int) -> None:
    world = World(seed, tree(), (mesh("east"), mesh("west")), Faults(coordinator_crash=0.1, second_coordinator=0.1, kill=0.003, budget=2))
    spec = graph(seed)
    check_end(world, spec, run_to_the_end(world, submit(world, spec).run))


@pytest.mark.seeds(5)
def test_several_runs_share_a_small_quota_and_all_end(seed: int) -> None:
    world = World(seed, tree(nominal=1), (mesh("east"), mesh("west")))
    specs = [{**graph(seed * 10 + number, nodes=8), "id": f"run-{number}"} for number in range(4)]
    for spec in specs:
        submit(world, spec)
    run_to_the_end(world, RunId("run-0"))
    for spec in specs:
        record = world.runs.load(RunId(str(spec["id"])))
        assert record is not None
        check_end(world, spec, record)


@pytest.mark.seeds(10)
def test_a_failing_node_fails_the_run_and_skips_dependents(seed: int) -> None:
    spec = graph(seed)
    world = World(seed, tree(), (mesh("east"), mesh("west")), failing=frozenset({"n5"}))
    record = run_to_the_end(world, submit(world, spec).run)
    assert record.state is RunState.FAILED
    assert record.nodes[NodeId("n5")].state is NodeState.FAILED
    for node in record.nodes.values():
        assert node.state in NODE_ENDS
        if node.state is NodeState.SKIPPED:
            assert node.roots == (NodeId("n5"),)
    check_nothing_left(world)


@pytest.mark.seeds(10)
def test_with_continue_all_independent_nodes_run(seed: int) -> None:
    spec = {**graph(seed), "on_error": "continue"}
    world = World(seed, tree(), (mesh("east"), mesh("west")), Faults(kill=0.005, budget=1), failing=frozenset({"n3"}))
    record = run_to_the_end(world, submit(world, spec).run)
    below = {"n3"}
    for name, node in spec["nodes"].items():
        if below & {ref["$ref"] for ref in node["args"]} | below & set(node.get("after", [])):
            below.add(name)
    for name in spec["nodes"]:
        wanted = NodeState.FAILED if name == "n3" else NodeState.SKIPPED if name in below else NodeState.SUCCEEDED
        assert record.nodes[NodeId(name)].state is wanted, name
    check_nothing_left(world)


@pytest.mark.seeds(10)
def test_a_cancelled_run_stops_wherever_it_stands(seed: int) -> None:
    spec = graph(seed)
    world = World(seed, tree(), (mesh("east"), mesh("west")), Faults(kill=0.005, budget=1))
    run = submit(world, spec).run
    for _ in range(world.random_stream.randint(0, 60)):
        world.step()
    world.runs.request_cancel(run, "changed my mind")
    record = run_to_the_end(world, run)
    assert record.state in (RunState.CANCELLED, RunState.SUCCEEDED)
    assert all(node.state in NODE_ENDS for node in record.nodes.values())
    check_nothing_left(world)


# -- the urgent before the less urgent of one tenant -----------------------------------------------------------------------


def with_priority(spec: dict[str, object], run: str, priority: int) -> dict[str, object]:
    for node in spec["nodes"].values():  # type: ignore[attr-defined]
        node["options"]["priority"] = priority
    return {**spec, "id": run}


def preempted(world: World, run: RunId) -> int:
    return sum(event.kind == "stage" and event.reason is Reason.PREEMPTED_WITHIN_TENANT for event in world.runs.events(run, 0, 10_000))


def lets_urgent_work_pass(world: World, *, within: PreemptionMode = PreemptionMode.LOWER_PRIORITY, max_wait_ms: int | None = None) -> None:
    own = QueueSettings(policies=Policies(within_queue=within), max_wait_ms=max_wait_ms)
    world.tenant_policies.publish(TenantPolicies(rules=Rules(min_run_ms=0, reservation_timeout_ms=5_000), settings={TENANT: own}))


def step_until(world: World, run: RunId, state: StageState) -> None:
    for _ in range(STEPS_MAX):
        world.step()
        check_every_step(world)
        record = world.runs.load(run)
        if record is not None and any(stage.state is state for stage in record.stages.values()):
            return
    pytest.fail(f"seed {world.seed}: no stage of {run} is {state}")


@pytest.mark.parametrize(
    "faults",
    [pytest.param(Faults(), id="all goes well"), pytest.param(Faults(kill=0.005, pause=0.005, budget=2), id="meshes die and sleep")],
)
@pytest.mark.seeds(6)
def test_urgent_work_preempts_its_tenants_work_which_ends_later(seed: int, faults: Faults) -> None:
    world = World(seed, tree(2), (mesh("east"),), replace(faults))
    lets_urgent_work_pass(world)
    patient = with_priority(graph(seed, pinned=0), "patient", 0)
    urgent = with_priority(graph(seed + 100, nodes=8, pinned=0), "urgent", 7)
    slow = submit(world, patient).run
    step_until(world, slow, StageState.RUNNING)
    fast = submit(world, urgent).run
    run_to_the_end(world, slow)
    first, last = world.runs.load(fast), world.runs.load(slow)
    assert first is not None
    assert last is not None
    assert preempted(world, fast) == 0
    if not faults.kill:
        assert preempted(world, slow) > 0
        assert first.ended_ms < last.ended_ms
    check_end(world, urgent, first)
    check_end(world, patient, last)


def test_nobody_stops_where_the_tenant_wants_no_stops() -> None:
    world = World(1, tree(2), (mesh("east"),))
    lets_urgent_work_pass(world, within=PreemptionMode.NEVER)
    slow = submit(world, with_priority(graph(1, pinned=0), "patient", 0)).run
    step_until(world, slow, StageState.RUNNING)
    submit(world, with_priority(graph(2, nodes=8, pinned=0), "urgent", 7))
    run_to_the_end(world, slow)
    assert preempted(world, slow) == 0


@pytest.mark.seeds(4)
def test_work_that_waits_too_long_is_refused_and_leaves_nothing(seed: int) -> None:
    world = World(seed, tree(2), (mesh("east"),), Faults(coordinator_crash=0.05, second_coordinator=0.05))
    lets_urgent_work_pass(world, within=PreemptionMode.NEVER, max_wait_ms=1_500)
    slow = submit(world, with_priority(graph(seed, pinned=0), "patient", 0)).run
    step_until(world, slow, StageState.RUNNING)
    late = submit(world, with_priority(graph(seed + 100, nodes=8, pinned=0), "late", 0)).run
    run_to_the_end(world, slow)
    refused = world.runs.load(late)
    assert refused is not None
    assert (refused.state, refused.reason) == (RunState.FAILED, Reason.WAITED_TOO_LONG)
    check_nothing_left(world)
