"""Sends the messages of webhooks, in the coordinator's process: only the elected one sends. Two at once send some messages twice.

One thread runs an event loop with one task for each webhook. So a receiver that is slow or away delays its own messages only, and no run.
Marks, messages and attempts are in the store, so the next process goes on.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timezone
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

import httpx
import structlog

from dag.run.runs import RunStore
from dag.webhooks.delivery import Attempt, Verdict, verdict_of, wait_ms, words_of
from dag.webhooks.signing import WrongSecret, headers_of, keys_in
from dag.webhooks.webhook import PENDING_MAX, Message, Webhook, WebhookStore, message_of
from mesh.core.clock import Clock
from mesh.errors import MeshError
from serve_apps.views.runs import run_line

log = structlog.get_logger(__name__)
P = ParamSpec("P")
T = TypeVar("T")

#: Interval in which a webhook looks for ends of runs and for due attempts.
LOOK_MS = 500
#: Changes of runs that one look reads.
CHANGES_AT_ONCE = 500
#: Attempts of one webhook at the same time.
SENT_AT_ONCE = 8
#: Longest wait for open calls at the end of the process; the next process repeats them.
CLOSE_S_MAX = 2.0
#: Most characters of a failure that is shown.
FAILURE_MAX = 300
_HEADERS = {"content-type": "application/json", "user-agent": "ScheduleMesh"}


class WebhookSender:
    """Sender for all webhooks of a root. It sends nothing before `lead(True)`."""

    def __init__(self, webhooks: Sequence[Webhook], *, store: WebhookStore, runs: RunStore, clock: Clock, look_ms: int = LOOK_MS) -> None:
        self._webhooks = tuple(webhooks)
        self._store = store
        self._runs = runs
        self._clock = clock
        self._look_s = look_ms / 1000
        self._leads, self._stop = threading.Event(), threading.Event()
        self._pool = ThreadPoolExecutor(max_workers=max(1, min(8, len(self._webhooks))), thread_name_prefix="webhook-store")
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), name="webhooks", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """Mark the place from which the ends of runs count for webhooks that are new. Raises StoreUnavailable."""
        for webhook in self._webhooks:
            ended = self._store.ended(webhook.name, 1)
            if ended.after is None:
                self._store.accept(webhook.name, ended.mark, ())

    def lead(self, is_leader: bool) -> None:
        """Send from now on; or stop, since another coordinator leads."""
        if is_leader:
            self._leads.set()
        else:
            self._leads.clear()

    def close(self) -> None:
        """Stop. The next coordinator sends what was not delivered."""
        self._stop.set()
        self._thread.join(timeout=CLOSE_S_MAX)
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _main(self) -> None:
        async with httpx.AsyncClient(follow_redirects=False, timeout=None) as http:  # noqa: S113  each attempt has a limit as a whole
            tasks = [asyncio.ensure_future(self._repeat(partial(self._round, webhook, http))) for webhook in self._webhooks]
            has_forgotten = False
            while not self._stop.is_set():
                if self._leads.is_set() and not has_forgotten:
                    has_forgotten = await self._forget_others()
                await asyncio.sleep(self._look_s)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _forget_others(self) -> bool:
        """Forget webhooks that the federation file no longer has. Return False if the store does not answer."""
        try:
            await self._in_store(self._store.keep_only, [webhook.name for webhook in self._webhooks])
        except MeshError as broken:
            log.warning("old webhooks were not forgotten", error=str(broken))
            return False
        return True

    async def _repeat(self, step: Callable[[], Awaitable[bool]]) -> None:
        """Take the step again and again while this process leads; a failure stops neither this task nor another."""
        while True:
            is_busy = False
            if self._leads.is_set():
                try:
                    is_busy = await step()
                except MeshError as broken:
                    log.warning("a webhook waits", error=str(broken))
                except Exception:
                    log.exception("a webhook waits")
            if not is_busy:
                await asyncio.sleep(self._look_s)

    async def _round(self, webhook: Webhook, http: httpx.AsyncClient) -> bool:
        """Take ends of runs, and make the attempts that are due. Return whether there were any."""
        await self._in_store(self._take_ends, webhook)
        due = await self._in_store(self._store.due, webhook.name, self._clock.wall_ms(), SENT_AT_ONCE)
        await asyncio.gather(*(self._send(webhook, message, http) for message in due))
        return bool(due)

    def _take_ends(self, webhook: Webhook) -> None:
        counts = self._store.counts().get(webhook.name)
        if counts is not None and counts.pending >= PENDING_MAX:
            return  # The ends wait in the feed.
        ended = self._store.ended(webhook.name, CHANGES_AT_ONCE)
        if ended.mark == ended.after:
            return
        found = self._runs.summaries(ended.runs)
        concerned = (run for run in found if run is not None and webhook.concerns(run))
        messages = [message_of(webhook, run, run_line(run).model_dump(mode="json")) for run in concerned]
        self._store.accept(webhook.name, ended.mark, messages)

    async def _send(self, webhook: Webhook, message: Message, http: httpx.AsyncClient) -> None:
        attempt = await self._call(webhook, message, http)
        attempts = message.attempts + 1
        verdict, failure = verdict_of(attempt, attempts, webhook.attempts_max), words_of(attempt)
        if verdict is Verdict.DELIVERED:
            await self._in_store(self._store.settle, webhook.name, message)
            return
        log.warning(
            "a webhook failed",
            webhook=webhook.name,
            message=message.id,
            run=message.run,
            attempts=attempts,
            verdict=verdict.value,
            error=failure,
        )
        if verdict is Verdict.DEAD:
            await self._in_store(self._store.settle, webhook.name, message, failure=failure)
            return
        due_ms = self._clock.wall_ms() + wait_ms(message.id, attempts, attempt.retry_after_ms)
        await self._in_store(self._store.postpone, webhook.name, replace(message, attempts=attempts, due_ms=due_ms), failure)

    async def _call(self, webhook: Webhook, message: Message, http: httpx.AsyncClient) -> Attempt:
        body = message.body.encode()
        try:
            keys = await self._in_store(_keys_of, webhook)
            headers = {**_HEADERS, **headers_of(message.id, body, self._clock.wall_ms() // 1000, keys)}
            return await asyncio.wait_for(self._post(webhook.url, body, headers, http), webhook.timeout_ms / 1000)
        except asyncio.TimeoutError:
            return Attempt(failure=f"no status within {webhook.timeout_ms / 1000:g} s")
        except (WrongSecret, httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as refused:
            return Attempt(failure=f"{type(refused).__name__}: {refused}"[:FAILURE_MAX])

    async def _post(self, url: str, body: bytes, headers: dict[str, str], http: httpx.AsyncClient) -> Attempt:
        """Return the outcome. The body of the response is not read, however long it is."""
        async with http.stream("POST", url, content=body, headers=headers) as response:
            after_ms = _retry_after_ms(response.headers.get("retry-after", ""), self._clock.wall_ms())
            return Attempt(status=response.status_code, retry_after_ms=after_ms)

    async def _in_store(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, partial(call, *args, **kwargs))


def _keys_of(webhook: Webhook) -> tuple[bytes, ...]:
    """Read the keys anew, so that a change of the file needs no restart. Raises OSError, ValueError, WrongSecret."""
    file = webhook.secret_file
    return keys_in(Path(file).read_text(encoding="ascii"), place=file) if file is not None else ()


def _retry_after_ms(header: str, now_ms: int) -> int:
    """Return the wait that a header `Retry-After` asks for; 0 if there is none, or none that can be read."""
    if header.isascii() and header.isdigit():
        return int(header[:9]) * 1000
    try:
        at = parsedate_to_datetime(header)
    except (TypeError, ValueError):
        return 0
    return max(0, int((at if at.tzinfo is not None else at.replace(tzinfo=timezone.utc)).timestamp() * 1000) - now_ms)
