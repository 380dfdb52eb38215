"""Quota over three real Ray clusters under one root: lent to two, reclaimed on the third, returned when one dies."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from federation_bed import LIMIT_S, REPOSITORY, eventually, patient_stores, submit, wait_for

import dag
from dag.store.client_access import Access
from dag.store.remote import Client, Run
from federation.config.loading import FederationConfig, load_config
from federation.leases import LeaseTerms
from mesh.core.ids import MeshId
from mesh.core.reasons import Reason
from mesh.ray.cluster.cluster_spec import ClusterNodeSpec, ClusterSpec
from mesh.ray.cluster.own_cluster import OwnCluster
from serve_apps.processes.stores import Stores
from serve_apps.standalone.stack import Stack
from serve_apps.standalone.stack_folder import StackFolder

pytestmark = [pytest.mark.ray, pytest.mark.faults, pytest.mark.slow]

OWNER, GUEST = "shared/owner", "shared/guest"
TERMS = LeaseTerms(ttl_ms=30_000, grace_ms=3_000)
#: Delay of a sweep on a machine with two cores for three clusters; shorter than the longest wait for it.
SWEEP_MS_MAX = 45_000

#: One CPU each, so placement decides what is left.
SPEC = ClusterSpec(nodes=(ClusterNodeSpec(cpu=1),), object_store_bytes=80 * 2**20)


def config(attached: list[OwnCluster]) -> FederationConfig:
    """Return a configuration in which the owner has all quota."""
    first, second, third = (f'address: "{cluster.address}", token_file: "{cluster.token_file}"' for cluster in attached)
    room = "pools: {general: {flavor: standard, capacity: {cpu: 1, memory: 1GiB}}}"
    text = f"""
federation: {{name: three, lease_ttl: {TERMS.ttl_ms}ms, heartbeat: 500ms, lease_grace: {TERMS.grace_ms}ms}}
root: {{cluster: first, port: 18200}}
routing: {{probation: 500ms, probation_max: 2s}}
import_paths: ["{REPOSITORY}"]
clusters: {{first: {{{first}, shared: true}}, second: {{{second}}}, third: {{{third}}}}}
flavors: {{standard: {{}}}}
meshes:
  north: {{cluster: first, labels: {{zone: north}}, {room}}}
  east: {{cluster: second, labels: {{zone: east, lent: "yes"}}, {room}}}
  west: {{cluster: third, labels: {{zone: west, lent: "yes"}}, {room}}}
tenants:
  shared:
    quotas: {{standard: {{cpu: {{nominal: 0}}}}}}   # opens the flavor to all below
    pickled_code: true
    tenants:
      owner: {{quotas: {{standard: {{cpu: {{nominal: 2}}}}}}}}
      guest: {{}}
quota: {{min_run: 200ms}}
"""
    return load_config(text, source="tests/acceptance/test_three_clusters.py")


@pytest.fixture(scope="module")
def clusters() -> Iterator[dict[str, OwnCluster]]:
    """Start one cluster per mesh, one after another: parallel starts are too slow for Ray's timeouts."""
    with ExitStack() as ends:
        started: dict[str, OwnCluster] = {}
        for mesh in ("north", "east", "west"):
            started[mesh] = OwnCluster.start(SPEC, python_path=(str(REPOSITORY),))
            ends.callback(started[mesh].stop)
        yield started


@pytest.fixture(scope="module")
def stack(clusters: dict[str, OwnCluster], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Start a stack that restarts no dead process, and end all its processes."""
    with StackFolder(tmp_path_factory.mktemp("state")) as owned:
        stack = Stack(config(list(clusters.values())), owned, say=print)
        stack.start()
        try:
            yield stack
        finally:
            stack.stop()


@pytest.fixture(scope="module")
def stores(stack: Stack) -> Stores:
    return patient_stores(stack)


@pytest.fixture(scope="module")
def client(stack: Stack) -> Iterator[Client]:
    with Client(Access(address=stack.address, api_key=stack.api_key, tenant=GUEST)) as client:
        yield client


@pytest.fixture(autouse=True)
def nothing_left(stores: Stores) -> Iterator[None]:
    """Override the folder's fixture, which checks the shared stack."""
    yield
    eventually(lambda: _assert_is_free(stores))


def _assert_is_free(stores: Stores) -> None:
    snapshot = stores.ledger.snapshot()
    assert snapshot.leases == ()
    assert all(amount == 0 for amount in snapshot.usage.values())
    assert {(view.waiting, view.claimed) for view in snapshot.meshes} == {(0, 0)}
    assert stores.ledger.audit() == ()


def wait_for_gate(folder: str, name: str) -> str:
    """Log each attempt with the port of its cluster; return when the named gate is open."""
    import ray

    with Path(folder, name).open("a") as file:
        file.write(ray.get_runtime_context().gcs_address.rpartition(":")[2] + "\n")
    while not Path(folder, f"{name}.gate").exists():
        time.sleep(0.01)
    return name


def open_gate(folder: Path, *names: str) -> None:
    for name in names:
        (folder / f"{name}.gate").touch()


def attempts(folder: Path, name: str) -> list[str]:
    """Return the cluster port of each attempt."""
    path = folder / name
    return path.read_text().splitlines() if path.exists() else []


def port_of(cluster: OwnCluster) -> str:
    return cluster.address.rpartition(":")[2]


def gated(client: Client, folder: Path, name: str, labels: dict[str, str], tenant: str = GUEST) -> Run:
    """Submit a run and wait until it has begun."""
    run = submit(client, dag.task(wait_for_gate, labels=labels, name=name).bind(str(folder), name), tenant=tenant)
    eventually(lambda: _assert_attempts(folder, name, 1))
    return run


def _assert_attempts(folder: Path, name: str, count: int) -> None:
    assert len(attempts(folder, name)) == count


def losses(run: Run) -> list[tuple[str | None, str | None]]:
    """Return the mesh and the reason of each stopped or lost stage."""
    lost = [event for event in run.events() if event.kind == "stage" and event.after in ("STOPPED", "LOST")]
    return [(event.mesh, event.reason.value if event.reason is not None else None) for event in lost]


def cpus(stores: Stores) -> dict[str, list[str]]:
    """Return the meshes on which each tenant holds a CPU."""
    leases = stores.ledger.snapshot().leases
    return {tenant: sorted(lease.mesh for lease in leases if lease.tenant == tenant and lease.amounts["cpu"]) for tenant in (OWNER, GUEST)}


def _assert_held(stores: Stores, owner: list[str], guest: list[str]) -> None:
    assert cpus(stores) == {OWNER: owner, GUEST: guest}


def test_s21_third_cluster_reclaims_loans_and_lends_again(client: Client, stores: Stores, tmp_path: Path) -> None:
    runs = {zone: gated(client, tmp_path, zone, {"zone": zone}) for zone in ("east", "west")}
    assert cpus(stores) == {OWNER: [], GUEST: ["east", "west"]}  # All quota is lent.
    claimed = gated(client, tmp_path, "mine", {"zone": "north"}, OWNER)
    (kept,) = (zone for zone in runs if cpus(stores)[GUEST] == [zone])
    (reclaimed,) = runs.keys() - {kept}
    assert cpus(stores) == {OWNER: ["north"], GUEST: [kept]}
    wait_for(runs[reclaimed], lambda event: event.reason is Reason.QUOTA_RECLAIMED)
    open_gate(tmp_path, "mine")
    assert claimed.result(LIMIT_S) == "mine"
    eventually(lambda: _assert_attempts(tmp_path, reclaimed, 2))  # It is lent again.
    eventually(lambda: _assert_held(stores, owner=[], guest=["east", "west"]))
    open_gate(tmp_path, *runs)
    assert {zone: run.result(LIMIT_S) for zone, run in runs.items()} == {"east": "east", "west": "west"}
    assert (losses(runs[kept]), losses(runs[reclaimed])) == ([], [(reclaimed, Reason.QUOTA_RECLAIMED.value)])
    assert {name: len(attempts(tmp_path, name)) for name in (kept, reclaimed, "mine")} == {kept: 1, reclaimed: 2, "mine": 1}
    assert len({attempts(tmp_path, name)[0] for name in (kept, reclaimed, "mine")}) == 3


# The last one: the cluster stays dead.
def test_dead_cluster_quota_returns_after_expiry_and_work_moves(
    stack: Stack, clusters: dict[str, OwnCluster], client: Client, stores: Stores, tmp_path: Path
) -> None:
    mine = gated(client, tmp_path, "mine", {"zone": "north"}, OWNER)
    run = gated(client, tmp_path, "moved", {"lent": "yes"})
    (dead,) = cpus(stores)[GUEST]
    (successor,) = {"east", "west"} - {dead}
    stack.children[dead].kill()  # The whole machine at once: no process is left to report it.
    clusters[dead].kill()
    killed_ms = stores.ledger.snapshot().at_ms
    assert cpus(stores) == {OWNER: ["north"], GUEST: [dead]}  # Its charge uses all quota: its work has to wait for expiry.
    eventually(lambda: _assert_attempts(tmp_path, "moved", 2))
    assert cpus(stores) == {OWNER: ["north"], GUEST: [successor]}
    (expired,) = [lease_event for lease_event in stores.ledger.history(mesh=MeshId(dead)) if lease_event.verb == "expire"]
    assert expired.at_ms - killed_ms <= TERMS.ttl_ms + TERMS.grace_ms + SWEEP_MS_MAX
    open_gate(tmp_path, "mine", "moved")
    assert (mine.result(LIMIT_S), run.result(LIMIT_S)) == ("mine", "moved")
    assert losses(run) == [(dead, Reason.LEASE_EXPIRED.value)]
    assert attempts(tmp_path, "moved") == [port_of(clusters[dead]), port_of(clusters[successor])]
