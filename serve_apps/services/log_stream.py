"""The log of a run as pages, and as `text/event-stream`, resumable by entry number."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

import structlog
from starlette.concurrency import run_in_threadpool

from dag.errors import UnknownRun
from dag.run.states import RUN_ENDS
from federation.errors import StoreUnavailable
from federation.run_log import LogEntry
from mesh.core.ids import RunId
from mesh.stages.arrays import array_of
from serve_apps.requests.dependencies import Dependencies
from serve_apps.schemas.logs import LogsView, OutputView
from serve_apps.services.event_stream import KEEP_ALIVE_S, RETRY_MS

log = structlog.get_logger(__name__)

#: Pause between two looks at the log of a run that goes on; seconds.
LOOK_S = 0.25
#: Most entries that one look reads.
READ_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFilter:
    """Entries that a reader wants. None: all."""

    node: str | None = None  #: A node, an array with all its parts, or one part.
    attempt: int | None = None

    def wanted(self, entries: Iterable[LogEntry]) -> list[OutputView]:
        """Return the wanted entries as they are shown."""
        return [
            output_view(entry)
            for entry in entries
            if self.node in (None, entry.output.node, array_of(entry.output.node)) and self.attempt in (None, entry.output.attempt)
        ]


def output_view(entry: LogEntry) -> OutputView:
    """Return the entry as it is shown."""
    output = entry.output
    return OutputView(
        seq=entry.seq,
        at_ms=output.at_ms,
        mesh=entry.mesh,
        node=output.node,
        attempt=output.attempt,
        stream=output.stream,
        number=output.number,
        lines=list(output.lines),
    )


def log_page(ports: Dependencies, run: RunId, after: int, limit: int, asked: LogFilter) -> LogsView:
    """Return up to `limit` wanted entries with a number greater than `after`."""
    found: list[OutputView] = []
    while len(found) < limit:
        entries = ports.run_log.read(run, after, READ_MAX)
        if not entries:
            return LogsView(entries=found, next=after, more=False)
        wanted = asked.wanted(entries)[: limit - len(found)]
        found += wanted
        after = wanted[-1].seq if len(found) == limit else entries[-1].seq
    return LogsView(entries=found, next=after, more=bool(ports.run_log.read(run, after, 1)))


async def log_stream(ports: Dependencies, run: RunId, after: int, asked: LogFilter) -> AsyncIterator[str]:
    """Yield wanted entries until the run has ended and all its output was sent, or until the store breaks.

    A broken stream is no error: the reader reconnects with the number of the last entry it has seen.
    """
    yield f"retry: {RETRY_MS}\n\n"
    silent_s = 0.0
    try:
        while True:
            # The state is read before the log, so that no output of a run that has ended is missed.
            is_over = await run_in_threadpool(_is_over, ports, run)
            entries = await run_in_threadpool(ports.run_log.read, run, after, READ_MAX)
            for view in asked.wanted(entries):
                yield f"id: {view.seq}\nevent: output\ndata: {view.model_dump_json()}\n\n"
            if entries:
                after, silent_s = entries[-1].seq, 0.0
                continue
            if is_over:
                yield f"id: {after}\nevent: end\ndata: {{}}\n\n"
                return
            await asyncio.sleep(LOOK_S)
            silent_s += LOOK_S
            if silent_s >= KEEP_ALIVE_S:
                silent_s = 0.0
                yield ": nothing new\n\n"
    except (StoreUnavailable, UnknownRun) as cut_off:
        log.warning("log stream broke; the reader reconnects", run=run, error=str(cut_off))


def _is_over(ports: Dependencies, run: RunId) -> bool:
    summary = ports.runs.summary(run)
    return summary is None or summary.state in RUN_ENDS
