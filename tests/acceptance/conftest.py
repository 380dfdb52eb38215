"""Whole federations for test files: Redis, two Ray clusters, the root on Serve and two child meshes."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from federation_bed import CONFIG, TENANT, eventually, patient_stores
from http_federation import HttpFederation, shared_federation
from mesh_scene import three_nodes_running
from shared_clusters import driving
from sharing import SHARING

from dag.spec.spec import load
from dag.store.client_access import Access
from dag.store.remote import Client
from federation.api_keys import EVERYBODY
from federation.config.loading import load_config
from federation.store.redis.key_ring import RedisKeyRing
from mesh.core.clock import SystemClock
from mesh.core.ids import TenantPath
from mesh.ray.cluster.own_cluster import OwnCluster
from serve_apps.processes.stores import Stores
from serve_apps.requests.auth import issue
from serve_apps.standalone.restarts import Restarts
from serve_apps.standalone.stack import Stack
from serve_apps.standalone.stack_folder import StackFolder


@pytest.fixture(scope="module")
def written() -> str:
    """Return the text of the federation file; a test file may override it."""
    return CONFIG


@pytest.fixture(scope="module")
def federation(written: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Stack, Path]:
    """A running stack and its folder; consecutive files with the same federation file share it."""
    return SHARING.get("federation", written, lambda: _running_stack(written, tmp_path_factory.mktemp("state")))


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[OwnCluster]:
    """Nodes `head`, `east` and `west` by their label `zone`, with this process as their driver. A test ends the nodes that it adds."""
    with driving(SHARING.get("three_nodes", "three nodes", three_nodes_running)) as driven:
        yield driven


@pytest.fixture(scope="module")
def stack(federation: tuple[Stack, Path]) -> Stack:
    return federation[0]


@pytest.fixture(scope="module")
def folder(federation: tuple[Stack, Path]) -> Path:
    return federation[1]


@contextlib.contextmanager
def _running_stack(written: str, folder: Path) -> Iterator[tuple[Stack, Path]]:
    """Start a stack, watch it as `schedulemesh up` does, and remove everything at the end."""
    before = _running_here()
    config = load_config(written, source="tests/acceptance/conftest.py")
    said: list[str] = []
    with StackFolder(folder) as owned:
        stack = Stack(config, owned, say=said.append)
        with _in_the_background():
            stack.start()
        over = threading.Event()

        def watch() -> None:
            while not over.wait(0.5):
                stack.watch()

        watcher = threading.Thread(target=watch, name="watcher")
        watcher.start()
        yield stack, folder
        over.set()
        watcher.join()
        stack.stop()
    eventually(lambda: _assert_nothing_runs(folder, before))


@contextlib.contextmanager
def _in_the_background() -> Iterator[None]:
    """Let child processes hear SIGINT, which a shell's `&` makes them ignore: Ray cancels tasks by it."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _running_here() -> set[psutil.Process]:
    found = set()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # It ended in between.
            if process.status() != psutil.STATUS_ZOMBIE:
                found.add(process)
    return found


def _assert_nothing_runs(folder: Path, before: set[psutil.Process]) -> None:
    assert _running_here() <= before
    assert not (folder / "client.json").exists()


@pytest.fixture(scope="module")
def client(stack: Stack) -> Iterator[Client]:
    with Client(Access(address=stack.address, api_key=stack.api_key, tenant=TENANT)) as client:
        yield client


@pytest.fixture(scope="module")
def stores(stack: Stack) -> Stores:
    return patient_stores(stack)


@pytest.fixture(scope="module")
def sharers(stack: Stack, stores: Stores) -> Iterator[Client]:
    """Client whose key reaches the owner and the guest."""
    key = issue(RedisKeyRing(stores.client, stores.keys), TenantPath("shared"), SystemClock().wall_ms())
    with Client(Access(address=stack.address, api_key=key, tenant="shared/guest")) as client:
        yield client


@pytest.fixture
def nothing_left(stack: Stack, stores: Stores, client: Client, folder: Path) -> Iterator[None]:
    """Check after every test: no lease, no queued or claimed stage, no file that is neither an output nor cached."""
    assert client is not None
    stack.restarts = Restarts()  # Deaths in earlier tests delay no restart in this one.
    yield
    eventually(lambda: _assert_clean(stores, folder))


@pytest.fixture(scope="module")
def http_federation(tmp_path_factory: pytest.TempPathFactory) -> HttpFederation:
    """A federation over two clusters, one of them joined over HTTP."""
    return shared_federation(tmp_path_factory)


@pytest.fixture(scope="module")
def http_client(http_federation: HttpFederation) -> Iterator[Client]:
    """Client of the owner of the federation over two clusters."""
    stack = http_federation.stack
    with Client(Access(address=stack.address, api_key=stack.api_key, tenant="acme")) as client:
        yield client


@pytest.fixture(scope="module")
def http_operator(http_federation: HttpFederation, http_stores: Stores) -> Iterator[Client]:
    """Client of an operator of the federation over two clusters."""
    key = issue(RedisKeyRing(http_stores.client, http_stores.keys), EVERYBODY, SystemClock().wall_ms())
    with Client(Access(address=http_federation.stack.address, api_key=key, tenant="acme")) as client:
        yield client


@pytest.fixture(scope="module")
def http_stores(http_federation: HttpFederation) -> Stores:
    return patient_stores(http_federation.stack)


@pytest.fixture
def nothing_left_over_http(http_stores: Stores) -> Iterator[None]:
    """Check after a test of the federation over two clusters: no lease, no queued or claimed stage."""
    yield
    eventually(lambda: _assert_free(http_stores))


def _assert_free(stores: Stores) -> None:
    snapshot = stores.ledger.snapshot()
    assert snapshot.leases == ()
    assert all(amount == 0 for amount in snapshot.usage.values())
    assert {(view.waiting, view.claimed) for view in snapshot.meshes} == {(0, 0)}
    assert stores.runs.active() == ()


def _assert_clean(stores: Stores, folder: Path) -> None:
    snapshot = stores.ledger.snapshot()
    assert snapshot.leases == ()
    assert all(amount == 0 for amount in snapshot.usage.values())
    assert [(view.record.mesh, view.waiting, view.claimed) for view in snapshot.meshes] == [("east", 0, 0), ("west", 0, 0)]
    assert all(view.alive for view in snapshot.meshes)
    assert stores.runs.active() == ()
    outputs = {node.stored.uri for run in stores.runs.list("acme", 1000) for node in _outputs(stores, run.run) if node.stored is not None}  # type: ignore[arg-type]
    outputs |= {entry.value.uri for tenant in snapshot.tree.tenants for entry in stores.cache.entries(tenant)}
    files = {f"file://{path}" for path in (folder / "objects").rglob("*") if path.is_file()}
    assert files <= outputs


def _outputs(stores: Stores, run: Any) -> Any:
    record = stores.runs.load(run)
    named = {output.node for output in load(record.spec).outputs.values()} if record is not None else set()
    return [node for node in record.nodes.values() if node.node in named] if record is not None else []
