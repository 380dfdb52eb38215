"""Stores for the contract suites: each back-end, with its time and faults under test control."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import redis

from federation.blobs import BlobStore
from federation.dispatch import StageQueue
from federation.leases import LeaseLedger, LeaseTerms
from federation.receipts import ReceiptKeys
from federation.run_log import LogLimits, RunLog
from federation.store.memory.run_log import MemoryRunLog
from federation.store.memory.store import MemoryStore
from federation.store.redis.blobs import RedisBlobs
from federation.store.redis.fixtures import copied, feign_restart, lose_writes, move_time
from federation.store.redis.keys import Keys
from federation.store.redis.ledger import RedisLedger
from federation.store.redis.queue import RedisStageQueue
from federation.store.redis.run_log import RedisRunLog
from mesh.core.clock import ManualClock

#: Longer than any test, so that only `advance` makes leases expire.
TTL_MS = 600_000
GRACE_MS = 300_000
#: Largest step of the lease clock: as far as the tests step.
STEP_MS_MAX = 2_000_000
#: Limits that a test reaches with a few lines.
SMALL_LOG = LogLimits(node_first_bytes=400, first_bytes=700, last_bytes=600, nodes_max=100)
RECEIPTS = ReceiptKeys(keys={1: b"of the root"})


@dataclass(frozen=True, slots=True)
class Store:
    """One back-end with its three ports, and control of its time and faults."""

    ledger: LeaseLedger
    queue: StageQueue
    blobs: BlobStore
    run_log: RunLog
    advance: Callable[[int], None]  #: Milliseconds; negative sets the server's clock back.
    restart: Callable[[], None]  #: Acts as a restart of the server.
    keep: Callable[[], Any]  #: A copy of all data.
    lose: Callable[[Any], None]  #: Go back to a copy, as a restart that loses later writes.
    client: "redis.Redis | None" = None  #: Client of the server, if any.
    admin: "redis.Redis | None" = None  #: Client of a user with all rights on the same server.
    url: str = ""  #: As `client`.
    believes_tokens: bool = True  #: Accept any token that a mesh names; over the link only those that it can prove.
    ttl_ms: int = TTL_MS
    grace_ms: int = GRACE_MS


def memory_store(max_step_ms: int = STEP_MS_MAX) -> Store:
    """Return the store in this process."""
    clock = ManualClock(now_ms=1_000_000_000)
    memory = MemoryStore(clock=clock, ttl_ms=TTL_MS, grace_ms=GRACE_MS, max_step_ms=max_step_ms)
    return Store(
        ledger=memory,
        queue=memory,
        blobs=memory,
        run_log=MemoryRunLog(memory, SMALL_LOG),
        advance=clock.advance,
        restart=memory.restart,
        keep=memory.copied,
        lose=memory.lose_writes,
    )


def redis_store(
    client: "redis.Redis",
    *,
    admin: "redis.Redis | None" = None,
    url: str = "",
    max_step_ms: int = STEP_MS_MAX,
    functions: bool | None = None,
) -> Store:
    """Return the store on a server.

    Args:
        admin: Client of a user with all rights; None: the same client.
        url: Address of a client that is not one server on a Unix socket.
    """
    everything = admin or client
    keys, terms = Keys("contract"), LeaseTerms(ttl_ms=TTL_MS, grace_ms=GRACE_MS, max_step_ms=max_step_ms)
    return Store(
        ledger=RedisLedger(client, keys, terms=terms, founding=True, receipts=RECEIPTS, functions=functions),
        queue=RedisStageQueue(client, keys),
        blobs=RedisBlobs(client, keys),
        run_log=RedisRunLog(client, keys, SMALL_LOG),
        advance=partial(move_time, everything, keys),
        restart=partial(feign_restart, everything, keys),
        keep=partial(copied, everything, keys),
        lose=partial(lose_writes, everything, keys),
        client=client,
        admin=everything,
        url=url or f"unix://{client.connection_pool.connection_kwargs['path']}",
    )
