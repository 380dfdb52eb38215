"""Fixtures of the contract suites: one real Redis for the session, and every store over both back-ends."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import redis

from federation.blobs import BlobStore
from federation.dispatch import StageQueue
from federation.leases import LeaseLedger
from federation.store.keys import Keys
from federation.store.memory import MemoryStore
from federation.store.redis_blobs import RedisBlobs
from federation.store.redis_ledger import RedisLedger
from federation.store.redis_queue import RedisStageQueue
from federation.store.testing import move_time, running_redis
from mesh.clock import ManualClock

#: Long against the run time of any test, so that only `advance` decides what has run out.
TTL_MS = 600_000
GRACE_MS = 300_000


@dataclass(frozen=True, slots=True)
class Store:
    """One back-end with its three ports, and its time in the test's hand."""

    ledger: LeaseLedger
    queue: StageQueue
    blobs: BlobStore
    advance: Callable[[int], None]  #: Milliseconds.
    ttl_ms: int = TTL_MS
    grace_ms: int = GRACE_MS


@pytest.fixture(scope="session")
def redis_process() -> Iterator["redis.Redis"]:
    """A client of the session's own Redis server."""
    with running_redis() as client:
        yield client


@pytest.fixture
def redis_server(redis_process: "redis.Redis") -> "redis.Redis":
    """The same client (`decode_responses=False`), every key gone and every script forgotten."""
    redis_process.flushall()
    redis_process.script_flush()
    return redis_process


@pytest.fixture(params=["memory", "redis"])
def store(request: pytest.FixtureRequest) -> Store:
    """The ledger, the stage queue and the blobs, once in memory and once on Redis."""
    if request.param == "memory":
        clock = ManualClock(now_ms=1_000_000)
        memory = MemoryStore(clock=clock, ttl_ms=TTL_MS, grace_ms=GRACE_MS)
        return Store(ledger=memory, queue=memory, blobs=memory, advance=clock.advance)
    client, keys = request.getfixturevalue("redis_server"), Keys("contract")
    return Store(
        ledger=RedisLedger(client, keys, ttl_ms=TTL_MS, grace_ms=GRACE_MS),
        queue=RedisStageQueue(client, keys),
        blobs=RedisBlobs(client, keys),
        advance=lambda by_ms: move_time(client, keys, by_ms),
    )
