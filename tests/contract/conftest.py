"""Fixtures of the contract suites: real Redis servers for the session, and every store over all back-ends."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import pytest
import redis

from federation.blobs import BlobStore
from federation.dispatch import StageQueue
from federation.leases import LeaseLedger, LeaseTerms
from federation.receipts import ReceiptKeys
from federation.store.keys import Keys
from federation.store.memory import MemoryStore
from federation.store.memory_key_ring import MemoryKeyRing
from federation.store.redis_blobs import RedisBlobs
from federation.store.redis_ledger import RedisLedger
from federation.store.redis_queue import RedisStageQueue
from federation.store.testing import copied, feign_restart, lose_writes, move_time, running_redis, servers
from mesh.clock import ManualClock
from serve_apps.link_testing import LinkedBlobs, LinkedLedger, LinkedMeshes, LinkedQueue, Switchboard, link_app, serving

#: Long against the run time of any test, so that only `advance` decides what has run out.
TTL_MS = 600_000
GRACE_MS = 300_000
#: What the lease clock moves at most at once: as far as the tests step.
STEP_MS_MAX = 2_000_000
RECEIPTS = ReceiptKeys(keys={1: b"of the root"})


@dataclass(frozen=True, slots=True)
class Store:
    """One back-end with its three ports, and its time and faults in the test's hand."""

    ledger: LeaseLedger
    queue: StageQueue
    blobs: BlobStore
    advance: Callable[[int], None]  #: Milliseconds; negative sets the server's clock back.
    restart: Callable[[], None]  #: As if the server had been restarted.
    keep: Callable[[], Any]  #: A copy of everything.
    lose: Callable[[Any], None]  #: Go back to a copy, as a restart that loses what was written since.
    client: "redis.Redis | None" = None  #: Of the server, where there is one.
    ttl_ms: int = TTL_MS
    grace_ms: int = GRACE_MS


@pytest.fixture(scope="session")
def redis_process() -> Iterator["redis.Redis"]:
    """A client of the session's own Redis server."""
    with running_redis() as client:
        yield client


@pytest.fixture(scope="session")
def newer_redis_process() -> Iterator["redis.Redis"]:
    """A client of the server on the PATH; where it has no functions, the ledger goes by scripts there as well."""
    with running_redis(servers().get("path")) as client:
        yield client


@pytest.fixture
def redis_server(redis_process: "redis.Redis") -> "redis.Redis":
    """The same client (`decode_responses=False`), every key gone and every script forgotten."""
    redis_process.flushall()
    redis_process.script_flush()
    return redis_process


def memory_store(max_step_ms: int = STEP_MS_MAX) -> Store:
    """Everything in this process."""
    clock = ManualClock(now_ms=1_000_000_000)
    memory = MemoryStore(clock=clock, ttl_ms=TTL_MS, grace_ms=GRACE_MS, max_step_ms=max_step_ms)
    return Store(
        ledger=memory,
        queue=memory,
        blobs=memory,
        advance=clock.advance,
        restart=memory.restart,
        keep=memory.copied,
        lose=memory.lose_writes,
    )


def redis_store(client: "redis.Redis", *, max_step_ms: int = STEP_MS_MAX, functions: bool | None = None) -> Store:
    """Everything on a server."""
    keys, terms = Keys("contract"), LeaseTerms(ttl_ms=TTL_MS, grace_ms=GRACE_MS, max_step_ms=max_step_ms)
    return Store(
        ledger=RedisLedger(client, keys, terms=terms, founding=True, receipts=RECEIPTS, functions=functions),
        queue=RedisStageQueue(client, keys),
        blobs=RedisBlobs(client, keys),
        advance=partial(move_time, client, keys),
        restart=partial(feign_restart, client, keys),
        keep=partial(copied, client, keys),
        lose=partial(lose_writes, client, keys),
        client=client,
    )


@pytest.fixture(scope="session")
def switchboard() -> Iterator[tuple[Switchboard, str]]:
    """A real HTTP server that answers for whatever a test plugs in, and its address."""
    board = Switchboard()
    with serving(board) as address:
        yield board, address


def linked_store(request: pytest.FixtureRequest, root: Store) -> Store:
    """The store behind a gateway: the child's verbs go over HTTP, the root's own directly."""
    board, address = request.getfixturevalue("switchboard")
    meshes = LinkedMeshes(address=address, keys=MemoryKeyRing())
    request.addfinalizer(meshes.close)
    board.app = link_app(ledger=root.ledger, queue=root.queue, blobs=root.blobs, keys=meshes.keys)
    return replace(
        root,
        ledger=cast("LeaseLedger", LinkedLedger(root.ledger, meshes)),
        queue=cast("StageQueue", LinkedQueue(root.queue, meshes)),
        blobs=LinkedBlobs(root.blobs, meshes),
    )


@pytest.fixture(params=["memory", "redis", "redis with functions", "http"])
def store(request: pytest.FixtureRequest) -> Store:
    """The ledger, the stage queue and the blobs: in memory, on a Redis by scripts, and on one by functions where it has them;
    and on a Redis behind a gateway, to which all that a child says goes over HTTP."""
    return _store_of(request, STEP_MS_MAX)


@pytest.fixture(params=["memory", "redis", "redis with functions"])
def careful_store(request: pytest.FixtureRequest) -> Store:
    """The same, and its lease clock moves two seconds at most at once, as in production."""
    return _store_of(request, 2_000)


def _store_of(request: pytest.FixtureRequest, max_step_ms: int) -> Store:
    if request.param == "memory":
        return memory_store(max_step_ms)
    if request.param in ("redis", "http"):
        by_scripts = redis_store(request.getfixturevalue("redis_server"), max_step_ms=max_step_ms, functions=False)
        return by_scripts if request.param == "redis" else linked_store(request, by_scripts)
    client = request.getfixturevalue("newer_redis_process")
    client.flushall()
    return redis_store(client, max_step_ms=max_step_ms)
