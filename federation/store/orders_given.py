"""How many orders and revocations a server has taken: what tells an older copy of it from the server itself.

The count is raised in the transaction that gives the order, and by nothing else; so a server with a lower count than it once had
has forgotten an order, though its tenant tree may be the one of then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import redis

from federation.store.keys import Keys

_COUNT = "count"


class OrdersGiven:
    """The count of one shard. Whoever calls it turns what the client raises into `StoreUnavailable`.

    Args:
        client: With `decode_responses=False`; its timeouts bound every call.
        keys: The shard.
    """

    def __init__(self, client: redis.Redis, keys: Keys) -> None:
        self._client = client
        self._given = keys.orders_given

    def give(self, order: Callable[[Any], object]) -> Any:
        """Carry one command out and count it, both or neither; its reply.

        Args:
            order: Puts the command into the pipeline that it is given.
        """
        with self._client.pipeline(transaction=True) as both:
            order(both)
            both.hincrby(self._given, _COUNT, 1)
            return both.execute()[0]

    def count(self) -> int:
        """How many; 0 on an empty server."""
        return int(cast("bytes | None", self._client.hget(self._given, _COUNT)) or 0)

    def raise_to(self, count: int) -> None:
        """It is no lower than this from now on."""
        missing = count - self.count()
        if missing > 0:
            self._client.hincrby(self._given, _COUNT, missing)
