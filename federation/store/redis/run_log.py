"""Logs of runs on Redis: a stream per run, and a hash that counts what it holds."""

from typing import cast

import redis

from federation.dispatch import Claim
from federation.errors import StaleFence
from federation.run_log import LOG_LIMITS, LogEntry, LogLimits
from federation.store.inbox_entries import refuse_foreign
from federation.store.redis.keys import Keys
from federation.store.redis.scripts import Scripts, redis_responses
from federation.store.report_parts import parts_of
from mesh.core.ids import MeshId, RunId
from mesh.core.wire import decode, encode
from mesh.stages.messages import NodeOutput


class RedisRunLog:
    """`RunLog` by one script, and XRANGE.

    Args:
        client: With `decode_responses=False`; its timeouts bound every call.
        keys: The shard.
    """

    def __init__(self, client: "redis.Redis", keys: Keys, limits: LogLimits = LOG_LIMITS) -> None:
        self._client = client
        self._keys = keys
        self._limits = limits
        self._scripts = Scripts(client, keys.scripted)

    def append(self, claim: Claim, batch: int, output: tuple[NodeOutput, ...]) -> None:
        refuse_foreign(claim, output)
        of_claim = claim.stage, claim.mesh, claim.incarnation, claim.token
        most = self._limits.node_first_bytes, self._limits.first_bytes, self._limits.last_bytes, self._limits.nodes_max
        rows = (part for each in output for part in (f"{each.attempt}|{each.node}", encode(each)))
        if self._scripts.call("append_log", *of_claim, batch, *most, *rows) != b"OK":
            raise StaleFence(f"claim {claim.token} of {claim.mesh} on {claim.stage} is not current")

    def read(self, run: RunId, after: int = 0, limit: int = 200) -> tuple[LogEntry, ...]:
        with redis_responses("read a log"):
            entries = self._client.xrange(self._keys.run_log(run), min=f"{after + 1}-0", count=limit)
        return tuple(
            LogEntry(seq=int(entry.partition(b"-")[0]), mesh=MeshId(fields[b"mesh"].decode()), output=decode(NodeOutput, fields[b"body"]))
            for entry, fields in cast(list[tuple[bytes, dict[bytes, bytes]]], entries)
        )


class ChildRunLog(RedisRunLog):
    """Log for a mesh with a key to the store. It splits batches into the same numbered parts as HTTP: see `ChildStageQueue`."""

    def append(self, claim: Claim, batch: int, output: tuple[NodeOutput, ...]) -> None:
        for number, part in parts_of(batch, output):
            super().append(claim, number, part)
