"""Use by day on Redis: a stream of reports, a hash of each day, one script that writes."""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

import redis

from federation.store.redis.keys import Keys
from federation.store.redis.scripts import Scripts, redis_responses
from federation.store.usage_rows import entry_of, holding_field, reckoning_field, row_key, row_name, state_of, sums_of, sums_row
from federation.usage.records import RowKey, StoredRows, UsageChange, UsageEntry, UsageReading


class RedisUsage:
    """`UsageStore` on Redis.

    Args:
        client: With `decode_responses=False`; its timeouts bound every call.
        keys: The shard.
    """

    def __init__(self, client: redis.Redis, keys: Keys) -> None:
        self._client = client
        self._keys = keys
        self._scripts = Scripts(client, keys.scripted)

    def entries(self, after: str, limit: int) -> tuple[UsageEntry, ...]:
        with redis_responses("read reports on use"):
            found = self._client.xrange(self._keys.usage_log, min=f"({after}", count=limit)
        return tuple(entry_of(entry.decode(), fields) for entry, fields in cast("list[tuple[bytes, dict[bytes, bytes]]]", found))

    def read(self, first: int, last: int) -> UsageReading:
        days: list[int] = []
        while True:
            with redis_responses("read use"), self._client.pipeline(transaction=True) as reads:
                reads.hget(self._keys.meta, "usage_left_out")
                reads.hgetall(self._keys.usage)
                reads.zrangebyscore(self._keys.usage_days, first, last)
                for day in days:
                    reads.hgetall(self._keys.usage_of(day))
                left_out, state, found, *stored = reads.execute()
            if days == (there := list(map(int, found))):
                break
            days = there  # The days of the first round; later, a day that has begun meanwhile.
        of_days = zip(days, cast("list[dict[bytes, bytes]]", stored), strict=True)
        rows = {row_key(day, name): sums_of(row) for day, of_day in of_days for name, row in of_day.items()}
        return UsageReading(rows=rows, state=state_of(state), left_out=int(left_out or 0))

    def rows(self, keys: Collection[RowKey]) -> StoredRows:
        wanted, days = tuple(keys), sorted({key.day for key in keys})
        with redis_responses("read rows of use"), self._client.pipeline(transaction=False) as reads:
            for day in days:
                reads.hlen(self._keys.usage_of(day))
            for key in wanted:
                reads.hget(self._keys.usage_of(key.day), row_name(key))
            replies = reads.execute() if wanted else []
        counts, found = replies[: len(days)], cast("list[bytes | None]", replies[len(days) :])
        rows = {key: sums_of(row) for key, row in zip(wanted, found, strict=True) if row is not None}
        return StoredRows(rows=rows, counts=dict(zip(days, map(int, counts), strict=True)))

    def write(self, change: UsageChange) -> bool:
        fields = [holding_field(*item) for item in change.holdings.items()] + [reckoning_field(*item) for item in change.reckonings.items()]
        rows = (part for key, sums in change.rows.items() for part in (key.day, row_name(key), sums_row(sums)))
        pairs = (part for field in fields for part in field)
        based_on = change.version, change.cursor, change.drop_before
        counts = len(change.entries), len(fields)
        answer = self._scripts.call("usage_write", *based_on, *counts, *change.entries, *pairs, *rows)
        return bool(answer == b"OK")
