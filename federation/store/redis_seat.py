"""A seat that one process has at a time, to save work: whoever coordinates runs. Two at once would be harmless."""

import redis

from federation.errors import LedgerUninitialised
from federation.store.keys import Keys
from federation.store.redis_scripts import Scripts


class CoordinatorSeat:
    """The ledger's verb for electing a planner, on a seat of its own.

    Args:
        client: With `decode_responses=False`; its timeouts bound every call.
        keys: The shard.
        name: Tells this process from all others.
    """

    def __init__(self, client: "redis.Redis", keys: Keys, name: str) -> None:
        self._scripts = Scripts(client, tuple(keys.coordinator if key == keys.plan else key for key in keys.scripted))
        self._name = name

    def hold(self, for_ms: int) -> bool:
        """Take the seat, or keep it, for that long; False when another has it, or there is no ledger yet. Raises StoreUnavailable."""
        try:
            code, _ = self._scripts.call("elect", self._name, for_ms)
        except LedgerUninitialised:
            return False
        return bool(code == b"OK")

    def leave(self) -> None:
        """Leave it to the next one at once, rather than when its time is over. Raises StoreUnavailable."""
        self.hold(0)
