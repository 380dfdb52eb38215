"""Events of a run as `text/event-stream` for browsers, terminals and clients, resumable by event number."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import structlog

from dag.errors import UnknownRun
from dag.run.run_events import RunEvent
from dag.store.event_feed import EventFeed
from federation.errors import StoreUnavailable
from mesh.core.ids import RunId
from serve_apps.views.runs import event_view

log = structlog.get_logger(__name__)

#: Seconds of silence before a comment is sent, so that no proxy closes the stream as idle.
KEEP_ALIVE_S = 10.0
#: Delay that a disconnected reader is asked to wait before it reconnects.
RETRY_MS = 1_000


async def event_stream(feed: EventFeed, run: RunId, after: int, *, keep_alive_s: float = KEEP_ALIVE_S) -> AsyncIterator[str]:
    """Yield events with a number greater than `after`, until the run's last event or until the feed breaks.

    A broken feed is no error: the reader reconnects with the number of the last event it has seen.
    """
    events = feed.follow(run, after)
    pending: asyncio.Future[RunEvent | None] | None = None
    yield f"retry: {RETRY_MS}\n\n"
    try:
        while True:
            pending = pending or asyncio.ensure_future(_next(events))
            await asyncio.wait({pending}, timeout=keep_alive_s)
            if not pending.done():
                yield ": nothing new\n\n"
                continue
            event, pending = pending.result(), None
            if event is None:
                return
            yield f"id: {event.seq}\nevent: {event.kind}\ndata: {event_view(event).model_dump_json()}\n\n"
    except (StoreUnavailable, UnknownRun) as cut_off:
        log.warning("event stream broke; the reader reconnects", run=run, error=str(cut_off))
    finally:
        if pending is not None:
            pending.cancel()
            with contextlib.suppress(asyncio.CancelledError, StoreUnavailable, UnknownRun):
                await pending
        await _close(events)


async def wait_for_end(feed: EventFeed, run: RunId, wait_s: float) -> bool:
    """Return when the run has ended, or after `wait_s` seconds; return whether it has. Raises as `EventFeed.wait_for_end`."""
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(feed.wait_for_end(run), wait_s)
        return True
    return False


async def _next(events: AsyncIterator[RunEvent]) -> RunEvent | None:
    """Return the next event, or None after the last."""
    async for event in events:
        return event
    return None


async def _close(events: AsyncIterator[RunEvent]) -> None:
    """Make a generator return its connection now instead of when it is collected."""
    close = getattr(events, "aclose", None)
    if close is not None:
        await close()
