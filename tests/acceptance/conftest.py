"""A whole federation for all tests of this folder: Redis, two Ray clusters, the root on Serve, two child meshes."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from dag.runs import RunEvent
from dag.store.client_access import Access
from dag.store.remote import Client, Run
from dag.tasks import Node
from federation.config import load_config
from serve_apps.stack import Stack
from serve_apps.state_folder import StateFolder
from serve_apps.stores import Stores

T = TypeVar("T")

REPOSITORY = Path(__file__).parents[2]
#: How long anything real may take before a test gives up on it.
LIMIT_S = 90.0
TENANT = "acme/research/vision"

CONFIG = f"""
federation: {{name: tests, lease_ttl: 4s, heartbeat: 500ms, lease_grace: 1s, inline_limit: 4KiB}}
root: {{cluster: first, port: 18000}}
import_paths: ["{REPOSITORY}"]
clusters:
  first: {{nodes: [{{cpu: 2}}], object_store: 120MiB}}
  second: {{nodes: [{{cpu: 2}}], object_store: 120MiB}}
flavors:
  standard: {{}}
meshes:
  east:
    cluster: first
    labels: {{zone: east}}
    pools: {{general: {{flavor: standard, capacity: {{cpu: 2, memory: 1GiB}}}}}}
  west:
    cluster: second
    labels: {{zone: west}}
    pools: {{general: {{flavor: standard, capacity: {{cpu: 2, memory: 1GiB}}}}}}
tenants:
  acme:
    quotas: {{standard: {{cpu: {{nominal: 4}}, memory: {{nominal: 2GiB}}}}}}
    functions: ["examples.*:*"]
    pickled_code: true
    tenants:
      research: {{tenants: {{vision: {{}}, nlp: {{}}}}}}
      small: {{quotas: {{standard: {{cpu: {{nominal: 0, borrowing_limit: 0}}}}}}}}
      narrow: {{quotas: {{standard: {{cpu: {{nominal: 0, borrowing_limit: 1}}}}}}}}
"""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="session")
def stack(folder: Path) -> Iterator[Stack]:
    """Started, and watched as `schedulemesh up` watches it; nothing of it is left when the tests are over."""
    config = load_config(CONFIG, source="tests/acceptance/conftest.py")
    said: list[str] = []
    with StateFolder(folder) as owned:
        stack = Stack(config, owned, say=said.append)
        stack.start()
        over = threading.Event()

        def watch() -> None:
            while not over.wait(0.5):
                stack.watch()

        watcher = threading.Thread(target=watch, name="watcher")
        watcher.start()
        yield stack
        over.set()
        watcher.join()
        stack.stop()
    eventually(lambda: _assert_nothing_runs(folder))


def _assert_nothing_runs(folder: Path) -> None:
    left = [process for process in psutil.Process().children(recursive=True) if process.status() != psutil.STATUS_ZOMBIE]
    assert left == []
    assert not (folder / "client.json").exists()


@pytest.fixture(scope="session")
def client(stack: Stack) -> Iterator[Client]:
    with Client(Access(address=stack.address, api_key=stack.api_key, tenant=TENANT)) as client:
        yield client


@pytest.fixture(scope="session")
def stores(stack: Stack) -> Stores:
    return stack._stores()


@pytest.fixture(autouse=True)
def nothing_left(stack: Stack, stores: Stores, client: Client, folder: Path) -> Iterator[None]:
    """After every test: no lease, no queued or claimed stage, no intermediate file."""
    assert client is not None
    yield
    eventually(lambda: _assert_clean(stores, folder))


def _assert_clean(stores: Stores, folder: Path) -> None:
    snapshot = stores.ledger.snapshot()
    assert snapshot.leases == ()
    assert all(amount == 0 for amount in snapshot.usage.values())
    assert [(view.record.mesh, view.waiting, view.claimed) for view in snapshot.meshes] == [("east", 0, 0), ("west", 0, 0)]
    assert all(view.alive for view in snapshot.meshes)
    assert stores.runs.active() == ()
    outputs = {node.stored.uri for run in stores.runs.list("acme", 1000) for node in _nodes(stores, run.run) if node.stored is not None}  # type: ignore[arg-type]
    files = {path.as_uri() for path in (folder / "objects").rglob("*") if path.is_file()}
    assert files <= outputs


def _nodes(stores: Stores, run: Any) -> Any:
    record = stores.runs.load(run)
    return record.nodes.values() if record is not None else ()


def eventually(check: Callable[[], T], limit_s: float = LIMIT_S) -> T:
    """What `check` returns, as soon as it raises no AssertionError."""
    for attempt in Retrying(
        retry=retry_if_exception_type(AssertionError), stop=stop_after_delay(limit_s), wait=wait_fixed(0.1), reraise=True
    ):
        with attempt:
            return check()
    raise AssertionError


def wait_for(run: Run, wanted: Callable[[RunEvent], bool]) -> RunEvent:
    """The first event of the run that is wanted."""
    for event in run.events():
        if wanted(event):
            return event
    raise AssertionError(f"run {run.id} ended without it")


def submit(client: Client, outputs: Any, *, tenant: str = TENANT, on_error: str = "fail_fast") -> Run:
    """Functions of the calling test module go along by value."""
    module = sys.modules[_module_of(outputs)]
    return client.submit(outputs, tenant=tenant, on_error=on_error, by_value=(module,))


def _module_of(outputs: Any) -> str:
    node = outputs if isinstance(outputs, Node) else next(iter(outputs.values()))
    return str(node.function.__module__)
