"""Every Redis-backed port, built from one URL: the one place that knows all adapters of the root and of a child."""

from dataclasses import dataclass

import redis

from dag.store.redis_runs import RedisRunStore
from federation.leases import LeaseTerms
from federation.store.keys import Keys
from federation.store.redis_blobs import RedisBlobs
from federation.store.redis_client import connect
from federation.store.redis_ledger import RedisLedger
from federation.store.redis_orders import RedisTenantOrders
from federation.store.redis_queue import RedisStageQueue
from federation.store.redis_registry import RedisRegistry

#: No answer of Redis is waited for longer than this, beyond the wait that a blocking call asks for.
ANSWER_MS_MAX = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """The ports of one process."""

    client: redis.Redis
    keys: Keys
    ledger: RedisLedger
    registry: RedisRegistry
    orders: RedisTenantOrders
    queue: RedisStageQueue
    blobs: RedisBlobs
    runs: RedisRunStore


def open_stores(url: str, *, lease_ttl_ms: int, lease_grace_ms: int, founding: bool = False) -> Stores:
    """Connect lazily; no command is sent yet. A lost connection is made anew once, at the next command.

    Args:
        founding: The storage was made a moment ago, so no lease can exist that a new ledger would have to learn of.
    """
    client = connect(url, timeout_ms=ANSWER_MS_MAX)
    keys = Keys()
    return Stores(
        client=client,
        keys=keys,
        ledger=RedisLedger(client, keys, terms=LeaseTerms(ttl_ms=lease_ttl_ms, grace_ms=lease_grace_ms), founding=founding),
        registry=RedisRegistry(client, keys),
        orders=RedisTenantOrders(client, keys),
        queue=RedisStageQueue(client, keys),
        blobs=RedisBlobs(client, keys),
        runs=RedisRunStore(client, keys),
    )
