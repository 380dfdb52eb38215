"""Settings of tenants on Redis: one hash, with a field for the file's settings and one per stopped tenant."""

from __future__ import annotations

import threading
from typing import cast

import redis

from federation.quota.policies import TenantPolicies
from federation.quota.tenant_policies import PoliciesInForce, TenantStop
from federation.store.redis.change_counter import ChangeCounter
from federation.store.redis.keys import Keys
from federation.store.redis.scripts import redis_responses
from mesh.core.ids import TenantPath
from mesh.core.wire import decode, encode

_FILED, _STOP = b"filed", b"stop|"


class RedisTenantPolicies:
    """`TenantPolicyStore` with plain commands: one operator at a time writes a whole field, with the count. Thread-safe.

    Args:
        client: With `decode_responses=False`; its timeouts bound every call.
        keys: The shard.
    """

    def __init__(self, client: redis.Redis, keys: Keys) -> None:
        self._client = client
        self._tenant_policies = keys.tenant_policies
        self._changes = ChangeCounter(client, keys)
        self._lock = threading.Lock()
        self._read: tuple[dict[bytes, bytes], PoliciesInForce] = ({}, PoliciesInForce())  #: Cache: rows are decoded only after a change.

    def publish(self, filed: TenantPolicies) -> None:
        with redis_responses("publish tenant settings of the file"):
            self._changes.run(lambda calls: calls.hset(self._tenant_policies, _FILED, encode(filed)))

    def stop(self, tenant: TenantPath, stopped: TenantStop) -> None:
        with redis_responses("stop a tenant"):
            self._changes.run(lambda calls: calls.hset(self._tenant_policies, _STOP + tenant.encode(), encode(stopped)))

    def release(self, tenant: TenantPath) -> bool:
        with redis_responses("release a tenant"):
            return bool(self._changes.run(lambda calls: calls.hdel(self._tenant_policies, _STOP + tenant.encode())))

    def in_force(self) -> PoliciesInForce:
        with redis_responses("read tenant settings"):
            rows = cast(dict[bytes, bytes], self._client.hgetall(self._tenant_policies))
        with self._lock:
            if rows != self._read[0]:
                self._read = rows, _in_force(rows)
            return self._read[1]


def _in_force(rows: dict[bytes, bytes]) -> PoliciesInForce:
    return PoliciesInForce(
        filed=decode(TenantPolicies, rows[_FILED]) if _FILED in rows else TenantPolicies(),
        stops={
            TenantPath(name.removeprefix(_STOP).decode()): decode(TenantStop, row)
            for name, row in sorted(rows.items())
            if name.startswith(_STOP)
        },
    )
