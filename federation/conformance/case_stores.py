"""Empty stores for one case each, with their time in the caller's hand: in memory, or on a Redis server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count

from federation.blobs import BlobStore
from federation.dispatch import StageQueue
from federation.leases import LeaseLedger, LeaseTerms
from federation.quota.tenant_policies import TenantPolicyStore
from federation.store.memory.policies import MemoryTenantPolicies
from federation.store.memory.store import MemoryStore
from federation.store.redis.blobs import RedisBlobs
from federation.store.redis.client import connect
from federation.store.redis.fixtures import move_time
from federation.store.redis.keys import Keys
from federation.store.redis.ledger import RedisLedger
from federation.store.redis.policies import RedisTenantPolicies
from federation.store.redis.queue import RedisStageQueue
from federation.store.redis.scripts import redis_responses
from mesh.core.clock import ManualClock

#: Makes the stores of one case.
NewStore = Callable[[], AbstractContextManager["CaseStore"]]
#: No session expires during a case: what happens then is no question of quota.
TERMS = LeaseTerms(ttl_ms=86_400_000, grace_ms=43_200_000, max_step_ms=40_000_000)
#: Prefix of the shards that cases use on a server.
SHARD = "conformance-"
_START_MS = 1_000_000
_TIMEOUT_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseStore:
    """Stores of one case.

    Args:
        clock: Clock of the meshes.
        move: Moves the ledger's clock by milliseconds; called beside `clock`.
    """

    ledger: LeaseLedger
    queue: StageQueue
    blobs: BlobStore
    tenant_policies: TenantPolicyStore
    clock: ManualClock
    move: Callable[[int], None]

    def advance(self, by_ms: int) -> None:
        """Let time pass, for the meshes and for the ledger."""
        self.clock.advance(by_ms)
        self.move(by_ms)


@contextmanager
def memory_store() -> Iterator[CaseStore]:
    """Yield stores in this process."""
    clock = ManualClock(_START_MS)
    store = MemoryStore(clock=clock, ttl_ms=TERMS.ttl_ms, grace_ms=TERMS.grace_ms)
    yield CaseStore(ledger=store, queue=store, blobs=store, tenant_policies=MemoryTenantPolicies(), clock=clock, move=lambda _by_ms: None)


class RedisCases:
    """Stores on one server. Each case gets a shard of its own, which is deleted when the case has run.

    Args:
        url: The server; the rest of its keys stay as they are.

    Raises:
        ConfigError: The URL is not a URL of Redis.
        StoreUnavailable: The server does not respond.
    """

    def __init__(self, url: str) -> None:
        self._client = connect(url, timeout_ms=_TIMEOUT_MS)
        with redis_responses("read the time"):
            self._name = "-".join(map(str, self._client.time()))  # So callers at the same time have shards of their own.
        self._numbers = count(1)

    @contextmanager
    def store(self) -> Iterator[CaseStore]:
        """Yield the stores of the next case."""
        client, keys = self._client, Keys(f"{SHARD}{self._name}-{next(self._numbers)}")
        try:
            yield CaseStore(
                ledger=RedisLedger(client, keys, terms=TERMS, founding=True),
                queue=RedisStageQueue(client, keys),
                blobs=RedisBlobs(client, keys),
                tenant_policies=RedisTenantPolicies(client, keys),
                clock=ManualClock(_START_MS),
                move=partial(move_time, client, keys),
            )
        finally:
            for key in client.scan_iter(f"{keys.prefix}*"):
                client.delete(key)
