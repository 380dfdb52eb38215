"""Fixtures of the contract suites: real Redis servers for the session, and every store on all back-ends."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import redis
from access_rules import SECRET, make_user, refused_to_users
from ledger_stores import RECEIPTS, STEP_MS_MAX, Store, memory_store, redis_store
from redis_forms import running_cluster

from federation.dispatch import StageQueue
from federation.leases import LeaseLedger
from federation.store.memory.key_ring import MemoryKeyRing
from federation.store.redis.client import connect
from federation.store.redis.fixtures import ANSWER_MS_MAX, running_redis, servers
from federation.store.redis.scripts import has_functions_of, load_scripts
from serve_apps.link_fixtures import LinkedBlobs, LinkedLedger, LinkedMeshes, LinkedQueue, LinkedRunLog, Switchboard, link_app, serving

#: Back-ends (names of fixtures) left to `make faults`; `make test` has memory, one Redis, and samples of these.
OTHERS = frozenset(
    {
        *("redis with functions", "http", "cluster", "narrow user", "narrow user of functions"),
        *("newer_redis_process", "cluster_client", "narrow_client", "narrow_newer_client"),
    }
)
VERBS = ("federation.store.lua", "dag.store.lua")
#: Client of the narrow user, and of the administrator.
NARROW = {
    "narrow user": ("narrow_client", "redis_process"),
    "narrow user of functions": ("narrow_newer_client", "newer_redis_process"),
}


@pytest.hookimpl(tryfirst=True)  # Before `-m` selects by the marks.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave contract tests on the other back-ends to `make faults`, except samples marked `every_form`."""
    for item in items:
        is_of_here = item.path.is_relative_to(Path(__file__).parent)
        if is_of_here and is_on_another_back_end(item) and item.get_closest_marker("every_form") is None:
            item.add_marker("faults")
            item.add_marker("slow")


def is_on_another_back_end(item: pytest.Item) -> bool:
    """Return whether a parameter of the test names another back-end."""
    params = getattr(getattr(item, "callspec", None), "params", {})
    return any(isinstance(value, str) and value in OTHERS for value in params.values())


@pytest.fixture(scope="session")
def redis_process() -> Iterator["redis.Redis"]:
    """A client of the session's own Redis server."""
    with running_redis() as client:
        yield client


@pytest.fixture(scope="session")
def newer_redis_process() -> Iterator["redis.Redis"]:
    """A client of the server on the PATH; before version 7 its ledger uses scripts as well."""
    with running_redis(servers().get("path")) as client:
        yield client


@pytest.fixture
def redis_server(redis_process: "redis.Redis") -> "redis.Redis":
    """The same client (`decode_responses=False`) without keys or scripts."""
    redis_process.flushall()
    redis_process.script_flush()
    return redis_process


@pytest.fixture
def narrow_client(redis_server: "redis.Redis") -> Iterator["redis.Redis"]:
    """A client as the root's user of docs/operating.md; the administrator has loaded the scripts."""
    yield from _narrow(redis_server)


@pytest.fixture
def narrow_newer_client(newer_redis_process: "redis.Redis") -> Iterator["redis.Redis"]:
    """The same for the server on the PATH."""
    newer_redis_process.flushall()
    yield from _narrow(newer_redis_process)


def _narrow(admin: "redis.Redis") -> Iterator["redis.Redis"]:
    path, functions = admin.connection_pool.connection_kwargs["path"], has_functions_of(admin)
    for user in ("schedulemesh", "deployer"):
        make_user(admin, user, functions=functions)
    with connect(f"unix://deployer:{SECRET}@{path}", timeout_ms=ANSWER_MS_MAX) as deployer:
        load_scripts(deployer, VERBS)
    admin.acl_log_reset()
    with connect(f"unix://schedulemesh:{SECRET}@{path}", timeout_ms=ANSWER_MS_MAX) as client:
        yield client
    assert refused_to_users(admin) == []


@pytest.fixture(scope="session")
def cluster_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple["redis.Redis", str]]:
    """A client of a cluster of three masters, and its URL."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as (client, cluster):
        yield client, cluster.url


@pytest.fixture
def cluster_client(cluster_process: tuple["redis.Redis", str]) -> "redis.Redis":
    """The same client without keys."""
    cluster_process[0].flushall()
    return cluster_process[0]


@pytest.fixture(scope="session")
def switchboard() -> Iterator[tuple[Switchboard, str]]:
    """A real HTTP server for the application that a test plugs in, and its address."""
    board = Switchboard()
    with serving(board) as address:
        yield board, address


def linked_store(request: pytest.FixtureRequest, root: Store) -> Store:
    """The store behind a gateway: the child's verbs use HTTP, the root's own are direct."""
    board, address = request.getfixturevalue("switchboard")
    meshes = LinkedMeshes(address=address, keys=MemoryKeyRing())
    request.addfinalizer(meshes.close)
    board.app = link_app(ledger=root.ledger, queue=root.queue, blobs=root.blobs, run_log=root.run_log, keys=meshes.keys, receipts=RECEIPTS)
    return replace(
        root,
        ledger=cast("LeaseLedger", LinkedLedger(root.ledger, meshes)),
        queue=cast("StageQueue", LinkedQueue(root.queue, meshes)),
        blobs=LinkedBlobs(root.blobs, root.queue, meshes),
        run_log=LinkedRunLog(root.run_log, meshes),
        believes_tokens=False,
    )


@pytest.fixture(params=["memory", "redis", "redis with functions", "http", "cluster", "narrow user", "narrow user of functions"])
def store(request: pytest.FixtureRequest) -> Store:
    """Ledger, stage queue and blobs on each back-end.

    Back-ends: memory, Redis by scripts, Redis by functions, Redis behind an HTTP gateway, a Redis cluster, and a user of few rights.
    """
    return _store_of(request, STEP_MS_MAX)


@pytest.fixture(params=["memory", "redis", "redis with functions"])
def careful_store(request: pytest.FixtureRequest) -> Store:
    """The same store with a lease clock that advances two seconds at most per step, as in production."""
    return _store_of(request, 2_000)


def _store_of(request: pytest.FixtureRequest, max_step_ms: int) -> Store:
    if request.param == "memory":
        return memory_store(max_step_ms)
    if request.param in ("redis", "http"):
        by_scripts = redis_store(request.getfixturevalue("redis_server"), max_step_ms=max_step_ms, functions=False)
        return by_scripts if request.param == "redis" else linked_store(request, by_scripts)
    if request.param == "cluster":
        client = request.getfixturevalue("cluster_client")
        return redis_store(client, url=request.getfixturevalue("cluster_process")[1], max_step_ms=max_step_ms)
    if request.param in ("narrow user", "narrow user of functions"):
        narrow, admin = NARROW[request.param]
        client = request.getfixturevalue(narrow)
        url = f"unix://schedulemesh:{SECRET}@{client.connection_pool.connection_kwargs['path']}"
        return redis_store(client, admin=request.getfixturevalue(admin), url=url, max_step_ms=max_step_ms)
    client = request.getfixturevalue("newer_redis_process")
    client.flushall()
    return redis_store(client, max_step_ms=max_step_ms)
