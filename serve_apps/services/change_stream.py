"""Changes of all runs that a key reaches: at once as one answer, or as `text/event-stream`, resumable by the mark of the last event."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import structlog
from starlette.concurrency import run_in_threadpool

from dag.store.event_feed import RunChanges
from federation.errors import StoreUnavailable
from mesh.core.ids import RunId, TenantPath
from serve_apps.requests.dependencies import Dependencies
from serve_apps.schemas.events import RemovedRun, RunChangesView
from serve_apps.services.event_stream import KEEP_ALIVE_S, RETRY_MS
from serve_apps.snapshot_cache.waits import with_reasons
from serve_apps.views.runs import run_line

log = structlog.get_logger(__name__)

#: Longest life of a stream: its key may have been revoked since it began. The reader reconnects.
STREAM_S_MAX = 300.0
#: Pause after a batch, which gathers the changes of busy runs: a reader gets such a run once.
GATHER_S = 0.05

Within = Callable[[TenantPath], bool]


async def changes_now(ports: Dependencies, after: str | None, is_within: Within) -> RunChangesView:
    """Return the changes after the mark that are there now."""
    return await run_in_threadpool(_seen, ports, await ports.feed.changes(after), is_within)


async def change_stream(
    ports: Dependencies, after: str | None, is_within: Within, *, keep_alive_s: float = KEEP_ALIVE_S, stream_s_max: float = STREAM_S_MAX
) -> AsyncIterator[str]:
    """Yield changes of runs within reach until the stream is old, or the feed breaks; the reader then reconnects.

    Only the last event of each batch has an id: a reader that is cut off within a batch gets the batch again.
    """
    now_s = asyncio.get_running_loop().time
    ends_s, quiet_since_s = now_s() + stream_s_max, now_s()
    yield f"retry: {RETRY_MS}\n\n"
    try:
        changes = await ports.feed.changes(after)
        yield _event("begin", "{}", changes.mark if after is None else None)
        while now_s() < ends_s:
            if changes.has_gap:
                yield _event("reset", "{}", changes.mark)
            for event in await run_in_threadpool(_events, ports, changes, is_within):
                quiet_since_s = now_s()
                yield event
            if now_s() - quiet_since_s >= keep_alive_s:
                quiet_since_s = now_s()
                yield f"id: {changes.mark}\n: nothing new\n\n"
            if changes.runs:
                await asyncio.sleep(GATHER_S)
            else:
                await ports.feed.wait_for_changes(changes.mark)
            changes = await ports.feed.changes(changes.mark)
    except StoreUnavailable as cut_off:
        log.warning("stream of all runs broke; the reader reconnects", error=str(cut_off))


def _events(ports: Dependencies, changes: RunChanges, is_within: Within) -> list[str]:
    """Return the events of changes."""
    if not changes.runs:
        return []
    view = _seen(ports, changes, is_within)
    events = [("removed", gone.model_dump_json()) for gone in view.removed] + [("run", run.model_dump_json()) for run in view.runs]
    return [_event(kind, data, changes.mark if place == len(events) else None) for place, (kind, data) in enumerate(events, start=1)]


def _seen(ports: Dependencies, changes: RunChanges, is_within: Within) -> RunChangesView:
    """Return the runs within reach as they are now."""
    reached: Mapping[RunId, TenantPath] = {run: tenant for run, tenant in changes.runs.items() if is_within(tenant)}
    found = dict(zip(reached, ports.runs.summaries(list(reached)), strict=True))
    lines = with_reasons([run for run in found.values() if run is not None], ports.waits)
    return RunChangesView(
        runs=[run_line(line) for line in lines if is_within(line.tenant)],
        removed=[RemovedRun(id=run, tenant=reached[run]) for run, summary in found.items() if summary is None],
        next=changes.mark,
        gap=changes.has_gap,
    )


def _event(kind: str, data: str, mark: str | None) -> str:
    numbered = f"id: {mark}\n" if mark is not None else ""
    return f"{numbered}event: {kind}\ndata: {data}\n\n"
