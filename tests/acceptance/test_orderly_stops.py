"""Repeated orderly stops of a stack during a run: the run continues each time, and no attempt is counted.

The Ray cluster outlives the stacks, because starting one for each would take most of the time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from federation_bed import REPOSITORY, TENANT, eventually

import dag
from dag.run.runs import RunRecord, RunStore
from dag.run.states import RunState
from dag.store.client_access import Access
from dag.store.remote import Client
from federation.config.loading import load_config
from mesh.core.ids import NodeId, RunId
from mesh.core.reasons import Reason
from mesh.ray.cluster.cluster_spec import ClusterNodeSpec, ClusterSpec
from mesh.ray.cluster.own_cluster import OwnCluster
from serve_apps.standalone.stack import Stack
from serve_apps.standalone.stack_folder import StackFolder

pytestmark = [pytest.mark.ray, pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(900)]

RUN, NODE = RunId("long-night"), NodeId("long")
LOSSES_MAX = 3
#: One more than the losses allowed.
STOPS = LOSSES_MAX + 1
#: The ledger recovers for one lease lifetime after each start, and grants nothing.
CONFIG = """
federation: {{name: stops, lease_ttl: 6s, heartbeat: 500ms, lease_grace: 1s}}
root: {{cluster: only, port: 18300, gateways: 1}}
dispatch: {{losses_max: {losses_max}}}
clusters: {{only: {{shared: true, address: "{cluster.address}", token_file: "{cluster.token_file}"}}}}
flavors: {{standard: {{}}}}
meshes:
  east: {{cluster: only, warm_runners: 0, pools: {{general: {{flavor: standard, capacity: {{cpu: 2, memory: 1GiB}}}}}}}}
tenants:
  acme:
    quotas: {{standard: {{cpu: {{nominal: 2}}, memory: {{nominal: 1GiB}}}}}}
    pickled_code: true
    tenants: {{research: {{tenants: {{vision: {{}}}}}}}}
"""


def wait_for_gate(folder: str) -> None:
    """Log each attempt; return when the gate is open."""
    with Path(folder, "attempts").open("a") as file:
        file.write("begun\n")
    while not Path(folder, "gate").exists():
        time.sleep(0.01)


@pytest.fixture(scope="module")
def cluster() -> Iterator[OwnCluster]:
    spec = ClusterSpec(nodes=(ClusterNodeSpec(cpu=2),), object_store_bytes=120 * 2**20)
    cluster = OwnCluster.start(spec, python_path=(str(REPOSITORY),))
    yield cluster
    cluster.stop()


@contextmanager
def a_life(folder: Path, cluster: OwnCluster) -> Iterator[Stack]:
    """Run the stack of the state folder from `up` to `down`."""
    with StackFolder(folder) as owned:
        config = CONFIG.format(losses_max=LOSSES_MAX, cluster=cluster)
        stack = Stack(load_config(config, source="tests/acceptance/test_orderly_stops.py"), owned, say=lambda _: None)
        stack.start()
        try:
            assert httpx.get(f"{stack.address}/healthz", timeout=60).status_code == httpx.codes.OK
            assert stack.address.endswith(":18300"), "an earlier life still has the port"
            yield stack
        finally:
            stack.stop()


def await_attempt(folder: Path, number: int) -> None:
    def has_begun() -> None:
        lines = folder / "attempts"
        assert lines.exists()
        assert len(lines.read_text().splitlines()) == number

    eventually(has_begun)


def submit(stack: Stack, folder: Path) -> None:
    with Client(Access(address=stack.address, api_key=stack.api_key, tenant=TENANT)) as client:
        client.submit({"number": dag.task(wait_for_gate, name=NODE).bind(str(folder))}, id=RUN, by_value=(sys.modules[__name__],))


def await_success(runs: RunStore) -> RunRecord:
    def has_succeeded() -> RunRecord:
        record = runs.load(RUN)
        assert record is not None
        assert record.state is RunState.SUCCEEDED
        return record

    return eventually(has_succeeded)


def test_run_survives_more_orderly_stops_than_attempts(cluster: OwnCluster, tmp_path: Path) -> None:
    for life in range(1, STOPS + 1):
        with a_life(tmp_path / "state", cluster) as stack:
            if life == 1:
                submit(stack, tmp_path)
            await_attempt(tmp_path, life)
    with a_life(tmp_path / "state", cluster) as stack:
        await_attempt(tmp_path, STOPS + 1)
        (tmp_path / "gate").touch()
        runs = stack.stores().runs
        node = await_success(runs).nodes[NODE]
        assert (node.attempt, node.losses, node.kills, node.retries_used) == (STOPS + 1, 0, 0, 0)
        cut = [event for event in runs.events(RUN, 0, 1_000) if event.kind == "stage" and event.after in ("STOPPED", "LOST")]
        assert [(event.after, event.reason) for event in cut] == [("STOPPED", Reason.MESH_LEFT)] * STOPS
    assert len((tmp_path / "attempts").read_text().splitlines()) == STOPS + 1
