"""Time of one run by parts: timestamps of client, root, mesh and workers, as parts that add up to the wall time.

All timestamps come from clocks of one machine. Those of the record are whole milliseconds, so a part can be off by one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.measuring import WALL, Sample
from dag.store.remote import Client
from mesh.core.clock import ms_of
from mesh.core.ids import RunId

#: Names of the parts, in order of time; each ends at the timestamp in its comment.
COMPILE = "client: make the graph"  # graph or spec complete
SUBMIT = "client to root: compile, send, check"  # the record's `created_at`
PLAN = "root: store, read, route, split"  # the first stage's `sent_at`
QUEUE = "root to worker: commit, queue, lease, first task"  # the first task's `started_at`
RUN = "workers: first task to last"  # the last task's `finished_at`
REPORT = "worker to root: report, commit"  # the record's `ended_at`
RESULT = "client: notice the end, fetch"  # value fetched


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamps:
    """Timestamps of the client, in milliseconds since the epoch."""

    begun: float
    compiled: float
    ended: float


def now_ms() -> float:
    """Return milliseconds since the epoch, with fractions."""
    return time.time_ns() / 1_000_000


def journey_of(client: Client, run: RunId, seen: Stamps) -> Sample:
    """Return the run's wall time and its parts. Called after the run, so that reading the record does not slow it."""
    view = client.ask(f"/v1/runs/{run}")
    nodes = list(_nodes(client, run))
    ends = {
        COMPILE: seen.compiled,
        SUBMIT: ms_of(view["created_at"]),
        PLAN: min(ms_of(stage["sent_at"]) for stage in view["stages"]),
        QUEUE: min(ms_of(node["started_at"]) for node in nodes),
        RUN: max(ms_of(node["finished_at"]) for node in nodes),
        REPORT: ms_of(view["ended_at"]),
        RESULT: seen.ended,
    }
    parts: dict[str, float] = {WALL: seen.ended - seen.begun}
    before = seen.begun
    for name, end in ends.items():
        parts[name] = end - before
        before = end
    return parts


def _nodes(client: Client, run: RunId) -> Iterator[dict[str, Any]]:
    after = ""
    while True:
        page = client.ask(f"/v1/runs/{run}/nodes", {"after": after, "limit": 1000})
        yield from page["nodes"]
        if page["next"] is None:
            return
        after = page["next"]
