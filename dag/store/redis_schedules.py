"""Schedules on Redis: a script for each change, plain reads for lists."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import redis

from dag.errors import TooManySchedules
from dag.schedules.schedule import SCHEDULE_LIMITS, Schedule, ScheduleLimits, Template, parted, place_of, words_when_full
from dag.store.redis_runs import scripted_keys
from federation.store.redis.keys import Keys
from federation.store.redis.scripts import Scripts, redis_responses
from mesh.core.ids import TenantPath
from mesh.core.wire import decode, encode

#: Field of the graph in the hash of a template; the others are hashes of bytes.
_SPEC = "spec"


class RedisScheduleStore:
    """`ScheduleStore` by scripts.

    Args:
        client: With `decode_responses=False`; its timeouts bound every call.
        keys: The shard.
        limits: Limits of each tenant.
    """

    def __init__(self, client: redis.Redis, keys: Keys, limits: ScheduleLimits = SCHEDULE_LIMITS) -> None:
        self._client = client
        self._keys = keys
        self._limits = limits
        self._scripts = Scripts(client, scripted_keys(keys), "dag.store.lua")

    def put(self, schedule: Schedule, template: Template | None = None) -> Schedule | None:
        stored = replace(schedule, version=schedule.version + 1)
        parts = {_SPEC: template.spec, **template.blobs} if template is not None else {}
        rows: list[str | bytes] = [part for row in parts.items() for part in row]
        code, *described = cast(
            list[bytes],
            self._scripts.call(
                "schedule_put",
                place_of(schedule.tenant, schedule.name),
                schedule.tenant,
                schedule.version,
                encode(stored),
                "" if stored.wake_ms is None else stored.wake_ms,
                self._limits.schedules_max,
                self._limits.bytes_max,
                "" if template is None else template.size_bytes,
                len(rows),
                *rows,
            ),
        )
        if code == b"FULL":
            schedules, size_bytes = map(int, described)
            words = words_when_full(self._limits, schedule.tenant, schedules=schedules, size_bytes=size_bytes)
            raise TooManySchedules(words or "too many schedules")
        return stored if code == b"PUT" else None

    def load(self, tenant: TenantPath, name: str) -> Schedule | None:
        with redis_responses("read a schedule"):
            row = cast(bytes | None, self._client.hget(self._keys.schedule(place_of(tenant, name)), "row"))
        return decode(Schedule, row) if row is not None else None

    def template(self, tenant: TenantPath, name: str) -> Template | None:
        with redis_responses("read the template of a schedule"):
            rows = cast(dict[bytes, bytes], self._client.hgetall(self._keys.schedule_template(place_of(tenant, name))))
        parts = {name.decode(): data for name, data in rows.items()}
        return Template(spec=parts.pop(_SPEC), blobs=parts) if parts else None

    def list(self, within: TenantPath | None, after: str = "", limit: int = 100) -> tuple[Schedule, ...]:
        """Return the schedules. One that is dropped during the read is left out, and others are read in its place."""
        found = builtins.list[Schedule]()
        while len(found) < limit:
            wanted = limit - len(found)
            places = self._places(within, after, wanted)
            found += self._stored(places)
            if len(places) < wanted:
                break
            after = places[-1]
        return tuple(found)

    def _places(self, within: TenantPath | None, after: str, limit: int) -> Sequence[str]:
        # In the order of bytes, `a/…` and `a|…` are two ranges, each up to the character after its own.
        ranges = [("-", "+")] if within is None else [(f"[{within}/", f"({within}0"), (f"[{within}|", f"({within}}}")]
        with redis_responses("list schedules"), self._client.pipeline(transaction=False) as reads:
            for first, last in ranges:
                begin = f"({after}" if after > first[1:] else first
                if last == "+" or after < last[1:]:
                    reads.zrange(self._keys.schedule_places, begin, last, bylex=True, offset=0, num=limit)
            places = sorted(place for found in cast("list[list[bytes]]", reads.execute()) for place in found)[:limit]
        return [place.decode() for place in places]

    def _stored(self, places: Sequence[str]) -> Sequence[Schedule]:
        if not places:
            return []
        with redis_responses("read schedules"), self._client.pipeline(transaction=False) as reads:
            for place in places:
                reads.hget(self._keys.schedule(place), "row")
            rows = cast("list[bytes | None]", reads.execute())
        return [decode(Schedule, row) for row in rows if row is not None]

    def due(self, now_ms: int, limit: int, *, skip: int = 0) -> tuple[tuple[TenantPath, str], ...]:
        with redis_responses("find schedules that are due"):
            places = cast("list[bytes]", self._client.zrangebyscore(self._keys.schedules_due, "-inf", now_ms, start=skip, num=limit))
        return tuple(parted(place.decode()) for place in places)

    def drop(self, tenant: TenantPath, name: str) -> bool:
        return bool(self._scripts.call("schedule_drop", place_of(tenant, name), tenant) == 1)
