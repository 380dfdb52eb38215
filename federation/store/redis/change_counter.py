"""Count of operators' changes (stops, drains, policies, revoked keys) on a server, to detect an older copy of the server's data.

Only the transaction that makes a change increases the count. So a server with a lower count than before has lost a change, even if its
tenant tree is unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import redis

from federation.store.redis.keys import Keys

_COUNT = "count"


class ChangeCounter:
    """Count of one shard. Callers convert the client's errors to `StoreUnavailable`.

    Args:
        client: With `decode_responses=False`; its timeouts bound every call.
        keys: The shard.
    """

    def __init__(self, client: redis.Redis, keys: Keys) -> None:
        self._client = client
        self._key = keys.change_counter

    def run(self, command: Callable[[Any], object]) -> Any:
        """Run one command and count it in one transaction; return the command's reply.

        Args:
            command: Adds the command to the given pipeline.
        """
        with self._client.pipeline(transaction=True) as both:
            command(both)
            both.hincrby(self._key, _COUNT, 1)
            return both.execute()[0]

    def count(self) -> int:
        """Return the count; 0 on an empty server."""
        return int(cast("bytes | None", self._client.hget(self._key, _COUNT)) or 0)

    def raise_to(self, count: int) -> None:
        """Increase the count to at least this number."""
        missing = count - self.count()
        if missing > 0:
            self._client.hincrby(self._key, _COUNT, missing)
