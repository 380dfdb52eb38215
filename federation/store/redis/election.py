"""Leader election among coordinators, to save work. Two leaders at once would be harmless."""

import redis

from federation.errors import LedgerUninitialised
from federation.store.redis.keys import Keys
from federation.store.redis.scripts import Scripts


class CoordinatorElection:
    """Leader election with the ledger's verb for planners, under a key of its own.

    Args:
        client: With `decode_responses=False`; its timeouts bound every call.
        keys: The shard.
        name: Unique name of this process.
    """

    def __init__(self, client: "redis.Redis", keys: Keys, name: str) -> None:
        self._scripts = Scripts(client, tuple(keys.coordinator if key == keys.plan else key for key in keys.scripted))
        self._name = name

    def hold(self, for_ms: int) -> bool:
        """Become the leader for `for_ms`, or renew it; False if another leads or there is no ledger yet. Raises StoreUnavailable."""
        try:
            code, _ = self._scripts.call("elect", self._name, for_ms)
        except LedgerUninitialised:
            return False
        return bool(code == b"OK")

    def leave(self) -> None:
        """Resign at once, before the term ends. Raises StoreUnavailable."""
        self.hold(0)
