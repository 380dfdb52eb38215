"""Feeds of a run's events, and of changes of all runs, as they come; the gateway streams them to browsers, terminals and clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import ParamSpec, Protocol, TypeVar, cast

import redis.asyncio
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from dag.errors import UnknownRun
from dag.run.run_events import RunEvent
from dag.run.states import RUN_ENDS, RunState
from dag.store.node_rows import names_of
from dag.store.redis_runs import Entries, rows_of
from dag.store.rows import events_in
from federation.errors import StoreUnavailable
from federation.store.redis.client import answer_s_max
from federation.store.redis.keys import Keys
from federation.store.redis.scripts import entries_in, redis_responses
from mesh.core.ids import NodeId, RunId, TenantPath

P = ParamSpec("P")
T = TypeVar("T")

#: Limit on the entries of one read; each has the events of a commit.
_ENTRIES_AT_ONCE = 64
#: Mark before the first change of all runs.
FEED_START = "0-0"
#: Limit on the changes of one read.
_CHANGES_AT_ONCE = 500
#: Limit on the time that one read blocks. After it the follower notices that the run was retired.
_BLOCK_MS = 2000
#: How long ends are still read when nobody waits for one: the next client may wait soon; seconds.
_LINGER_S = 2.0
#: A run is looked at again after this time, though its end would be in the feed: a store may lose its last writes. Seconds.
_LOOK_AGAIN_S = 2.0
#: Limit on a blocking read as a share of the client's own timeout, which would cut off a longer one.
_SHARE_OF_TIMEOUT = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChanges:
    """Runs that were submitted, changed or removed since the changes before."""

    mark: str  #: Mark of the last change, to continue after.
    runs: Mapping[RunId, TenantPath] = field(default_factory=dict)  #: With their tenants; the first change first.
    has_gap: bool = False  #: The feed has lost changes after the reader's mark: the reader must list the runs again.


class EventFeed(Protocol):
    """Port for following one run, or all."""

    def follow(self, run: RunId, after: int = 0) -> AsyncIterator[RunEvent]:
        """Yield the events with a greater number than `after`, without gaps, oldest first; end after the run's last one.

        A follower that was cut off continues with the number of the last event that it has seen.

        Raises:
            UnknownRun: There is no such run, or it was retired meanwhile.
            StoreUnavailable: The store was away for longer than the feed's patience.
        """

    async def wait_for_end(self, run: RunId) -> None:
        """Return when the run has ended; reads no events. Raises as `follow`."""

    async def changes(self, after: str | None = None) -> RunChanges:
        """Return changes of all runs that are there now, the first few hundred at most.

        Args:
            after: Mark of the last change that the reader has seen; None: no changes, only the mark of the last one.

        Raises:
            StoreUnavailable: The store was away for longer than the feed's patience.
        """

    async def wait_for_changes(self, after: str) -> None:
        """Return when there is a change after the mark, or after a few seconds. Raises as `changes`."""


class _Ends:
    """Ends of runs, read once from the feed of all runs for all that wait in this event loop. A reader runs while someone waits, and a
    little longer.

    Args:
        last_change: Returns the mark of the last change.
        ended_after: Returns the next mark, and the runs that ended after a mark; waits a while for the first.
    """

    def __init__(self, last_change: Callable[[], Awaitable[str]], ended_after: Callable[[str], Awaitable[tuple[str, list[RunId]]]]) -> None:
        self._last_change = last_change
        self._ended_after = ended_after
        self._waiting: dict[RunId, set[asyncio.Future[bool]]] = {}
        self._reader: asyncio.Task[None] | None = None
        self._begun = asyncio.Event()  #: The reader has a mark, so it finds every later end.

    @contextmanager
    def waiting(self, run: RunId) -> Iterator[asyncio.Future[bool]]:
        """Wait in the block: the future becomes True at the end of the run, and False when the caller has to look at the run again."""
        end = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(run, set()).add(end)
        if self._reader is None:
            self._begun = asyncio.Event()
            self._reader = asyncio.ensure_future(self._read())
        again = asyncio.get_running_loop().call_later(_LOOK_AGAIN_S, _settle, end, False)
        try:
            yield end
        finally:
            again.cancel()
            waiting = self._waiting.get(run, set())
            waiting.discard(end)
            if not waiting:
                self._waiting.pop(run, None)

    async def is_read(self) -> None:
        """Return when ends are being read, or cannot be."""
        await self._begun.wait()

    async def _read(self) -> None:
        try:
            mark, clock = await self._last_change(), asyncio.get_running_loop()
            self._begun.set()
            wanted_s = clock.time()
            while clock.time() - wanted_s < _LINGER_S:
                mark, ended = await self._ended_after(mark)
                wanted_s = clock.time() if self._waiting else wanted_s
                for run in ended:
                    for end in self._waiting.get(run, ()):
                        _settle(end, True)
        except StoreUnavailable:
            for waiting in tuple(self._waiting.values()):
                for end in waiting:
                    _settle(end, False)
        finally:
            self._reader = None
            self._begun.set()


def _settle(end: asyncio.Future[bool], has_ended: bool) -> None:
    if not end.done():
        end.set_result(has_ended)


class RedisEventFeed:
    """`EventFeed` on a Redis stream. While the server is away the feed retries; no event is lost or repeated.

    Args:
        client: With `decode_responses=False`, of the event loop that follows; each follower takes a connection of its pool.
        keys: The shard.
        patience_s: How long a server may be away before a follower gives up.
    """

    def __init__(self, client: redis.asyncio.Redis, keys: Keys, *, patience_s: float = 60.0) -> None:
        self._client = client
        self._keys = keys
        self._patience_s = patience_s
        self._ends = _Ends(self._last_change, self._ended_after)

    async def follow(self, run: RunId, after: int = 0) -> AsyncIterator[RunEvent]:
        names: tuple[NodeId, ...] = ()
        while True:
            is_over = await self._patiently(self._is_over, run)
            entries = await self._patiently(self._entries, run, after)
            if entries:
                names = names or await self._patiently(self._names, run)
                for event in events_in(rows_of(entries), partial(tuple, names), after):
                    yield event
                    after = event.seq
            elif is_over:
                return
            else:
                await self._patiently(self._wait, run, after)

    async def wait_for_end(self, run: RunId) -> None:
        while True:
            with self._ends.waiting(run) as end:
                await self._ends.is_read()
                if await self._patiently(self._is_over, run) or await end:
                    return

    async def changes(self, after: str | None = None) -> RunChanges:
        return await self._patiently(self._changes, after)

    async def wait_for_changes(self, after: str) -> None:
        await self._patiently(self._wait_for, self._keys.run_feed, after)

    async def _changes(self, after: str | None) -> RunChanges:
        feed = self._keys.run_feed
        with redis_responses("read the feed of all runs"):
            async with self._client.pipeline(transaction=True) as reads:
                reads.xrevrange(feed, count=1)
                reads.xrange(feed, min=after or FEED_START, max=after or FEED_START, count=1)
                reads.xrange(feed, min=f"({after or FEED_START}", count=_CHANGES_AT_ONCE if after is not None else 1)
                newest, same, entries = cast(tuple[Entries, Entries, Entries], await reads.execute())
        last = newest[0][0].decode() if newest else FEED_START
        if after is None or after == last:
            return RunChanges(mark=last)
        if not same:  # Too old; or of a server that has lost it since, and may have later ones all the same.
            return RunChanges(mark=last, has_gap=True)
        runs = {RunId(row[b"run"].decode()): TenantPath(row[b"tenant"].decode()) for _, row in entries}
        return RunChanges(mark=entries[-1][0].decode() if entries else after, runs=runs)

    async def _last_change(self) -> str:
        with redis_responses("read the feed of all runs"):
            newest = cast(Entries, await self._client.xrevrange(self._keys.run_feed, count=1))
        return newest[0][0].decode() if newest else FEED_START

    async def _ended_after(self, mark: str) -> tuple[str, list[RunId]]:
        """Return the runs that ended after the mark, and the next mark; wait for the first for a while."""
        with redis_responses("wait for ends of runs"):
            read = await self._client.xread({self._keys.run_feed: mark}, count=_CHANGES_AT_ONCE, block=self._block_ms())
        entries = entries_in(read)
        ended = [RunId(row[b"run"].decode()) for _, row in entries if row.get(b"ended") == b"1"]
        return (entries[-1][0].decode() if entries else mark), ended

    async def _is_over(self, run: RunId) -> bool:
        """Return whether the run has ended. Read the state before the events, so that no event is missed."""
        with redis_responses("read a run"):
            state = await cast(Awaitable[bytes | None], self._client.hget(self._keys.run(run), "state"))
        return _has_ended(run, state)

    async def _entries(self, run: RunId, after: int) -> Entries:
        with redis_responses("read events"):
            entries = await self._client.xrange(self._keys.run_events(run), min=f"{after + 1}-0", count=_ENTRIES_AT_ONCE)
        return cast(Entries, entries)

    async def _names(self, run: RunId) -> tuple[NodeId, ...]:
        with redis_responses("read the names of nodes"):
            row = await cast(Awaitable[bytes | None], self._client.hget(self._keys.run(run), "names"))
        if row is None:
            raise UnknownRun(f"there is no run {run}")
        return names_of(row)

    async def _wait(self, run: RunId, after: int) -> None:
        await self._wait_for(self._keys.run_events(run), f"{after}-0")

    async def _wait_for(self, stream: str, after: str) -> None:
        """Block until there may be an entry."""
        with redis_responses("wait for events"):
            await self._client.xread({stream: after}, count=1, block=self._block_ms())

    def _block_ms(self) -> int:
        timeout_s = answer_s_max(self._client)
        return _BLOCK_MS if timeout_s is None else max(1, min(_BLOCK_MS, int(timeout_s * 1000 * _SHARE_OF_TIMEOUT)))

    async def _patiently(self, read: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the reply; while the server is away, retry with growing waits."""
        again = AsyncRetrying(
            retry=retry_if_exception_type(StoreUnavailable),
            wait=wait_random_exponential(multiplier=0.05, max=2.0),
            stop=stop_after_delay(self._patience_s),
            reraise=True,
        )
        return await again(read, *args, **kwargs)


def _has_ended(run: RunId, state: bytes | None) -> bool:
    if state is None:
        raise UnknownRun(f"there is no run {run}")
    return RunState(state.decode()) in RUN_ENDS


def number_of(mark: str) -> int:
    """Return the first number of a mark."""
    return int(mark.partition("-")[0])
