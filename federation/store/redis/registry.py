"""The registry of meshes on Redis: one hash, one field per mesh and kind of value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import redis

from federation.estimates import Pace
from federation.flap_detection import FlapHistory
from federation.mesh_conditions import NEWCOMER, Drain, MeshCondition
from federation.registry import NO_STAGE_METRICS, MeshConditions, RegistryNote
from federation.stage_metrics import StageMetrics
from federation.store.redis.change_counter import ChangeCounter
from federation.store.redis.keys import Keys
from federation.store.redis.scripts import Scripts, redis_responses
from mesh.core.ids import MeshId
from mesh.core.wire import decode, encode
from mesh.stages.stage_settings import StageSettings

#: Type of a field, by the word before the `|`.
_KINDS: dict[str, Any] = {"drain": Drain, "flap_history": FlapHistory, "pace": Pace, "settings": StageSettings}

#: Field of the metrics, which are of no mesh.
_STAGE_METRICS = "stage_metrics"


class RedisRegistry:
    """`MeshRegistry` on Redis: plain commands for drains and settings, which one operator writes whole, with the count; a script for
    notes of coordinators.

    Args:
        client: With `decode_responses=False`; its timeouts bound every call.
        keys: The shard.
    """

    def __init__(self, client: redis.Redis, keys: Keys) -> None:
        self._client = client
        self._registry = keys.registry
        self._changes = ChangeCounter(client, keys)
        self._scripts = Scripts(client, (keys.registry, keys.meta))

    def drain(self, mesh: MeshId, drain: Drain) -> None:
        with redis_responses("drain a mesh"):
            self._changes.run(lambda calls: calls.hset(self._registry, f"drain|{mesh}", encode(drain)))

    def undrain(self, mesh: MeshId) -> bool:
        with redis_responses("undrain a mesh"):
            return bool(self._changes.run(lambda calls: calls.hdel(self._registry, f"drain|{mesh}")))

    def publish_settings(self, settings: Mapping[MeshId, StageSettings]) -> None:
        gone = [mesh for mesh, kept in self.conditions().meshes.items() if kept.settings is not None and mesh not in settings]

        def write(calls: redis.Redis) -> None:
            for mesh, kept in settings.items():
                calls.hset(self._registry, f"settings|{mesh}", encode(kept))
            if gone:
                calls.hdel(self._registry, *(f"settings|{mesh}" for mesh in gone))

        if settings or gone:
            with redis_responses("publish settings of meshes"):
                self._changes.run(write)

    def settings_of(self, mesh: MeshId) -> StageSettings | None:
        with redis_responses("read the settings of a mesh"):
            row = cast("bytes | None", self._client.hget(self._registry, f"settings|{mesh}"))
        return decode(StageSettings, row) if row is not None else None

    def conditions(self) -> MeshConditions:
        with redis_responses("read the registry"):
            rows = cast(dict[bytes, bytes], self._client.hgetall(self._registry))
        found: dict[MeshId, dict[str, Any]] = {}
        for name, row in rows.items():
            kind, bar, mesh = name.decode().partition("|")
            if bar:
                found.setdefault(MeshId(mesh), {})[kind] = decode(_KINDS[kind], row)
        return MeshConditions(
            meshes={mesh: MeshCondition(**fields) if fields else NEWCOMER for mesh, fields in found.items()},
            watched_ms=int(rows.get(b"watched_ms", 0)),
            version=int(rows.get(b"version", 0)),
            stage_metrics=decode(StageMetrics, rows[_STAGE_METRICS.encode()]) if _STAGE_METRICS.encode() in rows else NO_STAGE_METRICS,
        )

    def note(self, note: RegistryNote, version: int) -> bool:
        rows = [(f"flap_history|{mesh}", encode(kept)) for mesh, kept in note.flap_history.items()]
        rows += [(f"pace|{mesh}", encode(pace)) for mesh, pace in note.paces.items()]
        rows += [(_STAGE_METRICS, encode(note.stage_metrics))] if note.stage_metrics is not None else []
        return bool(self._scripts.call("note", version, note.watched_ms, *(part for row in rows for part in row)) == 1)
