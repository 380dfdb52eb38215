"""Webhooks on Redis: marks and counts in one hash, and of each webhook its messages and when they are due."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import cast

import redis

from dag.store.event_feed import FEED_START
from dag.store.redis_runs import Entries
from dag.webhooks.webhook import EndedRuns, Message, WebhookCounts
from federation.store.redis.keys import Keys
from federation.store.redis.scripts import redis_responses
from mesh.core.ids import RunId
from mesh.core.wire import decode, encode

#: A run is committed with a time of its coordinator and announced with one of Redis; they may differ so much.
_CLOCKS_MS = 300_000


class RedisWebhooks:
    """`WebhookStore` on Redis.

    Args:
        client: With `decode_responses=False`; its timeouts bound every call.
        keys: The shard.
    """

    def __init__(self, client: redis.Redis, keys: Keys) -> None:
        self._client = client
        self._keys = keys

    def keep_only(self, names: Collection[str]) -> None:
        with redis_responses("forget webhooks"):
            fields = cast("list[bytes]", self._client.hkeys(self._keys.webhooks))
            gone = [field for field in fields if _name_in(field) not in names]
            if not gone:
                return
            with self._client.pipeline(transaction=True) as writes:
                writes.hdel(self._keys.webhooks, *gone)
                for name in {_name_in(field) for field in gone}:
                    writes.delete(self._keys.webhook_due(name), self._keys.webhook_messages(name))
                writes.execute()

    def ended(self, name: str, limit: int) -> EndedRuns:
        feed = self._keys.run_feed
        with redis_responses("read ends of runs"):
            found = cast("bytes | None", self._client.hget(self._keys.webhooks, f"mark|{name}"))
            mark = found.decode() if found is not None else None
            newest = cast("Entries", self._client.xrevrange(feed, count=1))
            last = newest[0][0].decode() if newest else FEED_START
            if mark is None or mark == last:
                return EndedRuns(after=mark, mark=last)
            entries = cast("Entries", self._client.xrange(feed, min=f"({mark}", count=limit))
            # Read after the entries: if the mark is still there, none of them was cut off.
            same = mark == FEED_START or self._client.xrange(feed, min=mark, max=mark, count=1)
        if not same:  # The feed was cut after the mark, or another server has it now.
            return EndedRuns(after=mark, mark=last, runs=self._ended_since(int(mark.partition("-")[0]) - _CLOCKS_MS))
        ended = (RunId(row[b"run"].decode()) for _, row in entries if row.get(b"ended") == b"1")
        return EndedRuns(after=mark, mark=entries[-1][0].decode() if entries else mark, runs=tuple(dict.fromkeys(ended)))

    def _ended_since(self, at_ms: int) -> tuple[RunId, ...]:
        with redis_responses("read ended runs"):
            found = cast("list[bytes]", self._client.zrangebyscore(self._keys.ended_runs, at_ms, "+inf"))
        return tuple(RunId(run.decode()) for run in found)

    def accept(self, name: str, mark: str, messages: Sequence[Message]) -> None:
        with redis_responses("keep messages of a webhook"), self._client.pipeline(transaction=True) as writes:
            for message in messages:
                writes.hsetnx(self._keys.webhook_messages(name), message.id, encode(message))
                writes.zadd(self._keys.webhook_due(name), {message.id: message.due_ms}, nx=True)
            writes.hset(self._keys.webhooks, f"mark|{name}", mark)
            writes.execute()

    def due(self, name: str, now_ms: int, limit: int) -> tuple[Message, ...]:
        with redis_responses("read messages of a webhook"):
            ids = cast("list[bytes]", self._client.zrangebyscore(self._keys.webhook_due(name), "-inf", now_ms, start=0, num=limit))
            rows = cast("list[bytes | None]", self._client.hmget(self._keys.webhook_messages(name), ids) if ids else [])
        return tuple(decode(Message, row) for row in rows if row is not None)

    def postpone(self, name: str, message: Message, failure: str) -> None:
        with redis_responses("postpone a message of a webhook"), self._client.pipeline(transaction=True) as writes:
            writes.hset(self._keys.webhook_messages(name), message.id, encode(message))
            writes.zadd(self._keys.webhook_due(name), {message.id: message.due_ms})
            writes.hset(self._keys.webhooks, f"failure|{name}", failure)
            writes.execute()

    def settle(self, name: str, message: Message, *, failure: str = "") -> None:
        with redis_responses("settle a message of a webhook"):
            with self._client.pipeline(transaction=True) as writes:
                writes.zrem(self._keys.webhook_due(name), message.id)
                writes.hdel(self._keys.webhook_messages(name), message.id)
                writes.hset(self._keys.webhooks, f"failure|{name}", failure)
                removed, *_ = writes.execute()
            if removed:  # Else another sender has settled it.
                self._client.hincrby(self._keys.webhooks, f"{'dead' if failure else 'delivered'}|{name}", 1)

    def counts(self) -> Mapping[str, WebhookCounts]:
        with redis_responses("read webhooks"):
            rows = cast("dict[bytes, bytes]", self._client.hgetall(self._keys.webhooks))
            names = sorted({_name_in(field) for field in rows})
            with self._client.pipeline(transaction=False) as reads:
                for name in names:
                    reads.zcard(self._keys.webhook_due(name))
                pending = cast("list[int]", reads.execute() if names else [])
        found = {field.decode(): row.decode() for field, row in rows.items()}
        return {
            name: WebhookCounts(
                pending=count,
                delivered=int(found.get(f"delivered|{name}", 0)),
                dead=int(found.get(f"dead|{name}", 0)),
                failure=found.get(f"failure|{name}", ""),
            )
            for name, count in zip(names, pending, strict=True)
        }


def _name_in(field: bytes) -> str:
    return field.decode().partition("|")[2]
