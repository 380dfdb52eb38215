"""Followers of a Redis server that is killed and started again over the same data."""

import asyncio
from pathlib import Path

import pytest
import redis.asyncio

from dag.errors import UnknownRun
from dag.run.run_events import RunEvent
from dag.run.runs import RunChange, RunRecord
from dag.run.states import RunState
from dag.store.event_feed import RedisEventFeed
from dag.store.redis_runs import RedisRunStore
from federation.errors import StoreUnavailable
from federation.store.redis.embedded import EmbeddedRedis
from federation.store.redis.keys import Keys
from mesh.core.ids import RunId, TenantPath

KEYS = Keys("feed")
RUN = RunId("r")


def begin(server: EmbeddedRedis, run: RunId = RUN) -> tuple[RedisRunStore, RunRecord]:
    runs = RedisRunStore(server.client(), KEYS)
    record = RunRecord(run=run, tenant=TenantPath("acme"), digest="d", spec=b"{}")
    runs.create(record, {})
    return runs, record


def step(runs: RedisRunStore, record: RunRecord, state: RunState) -> None:
    record.seq, record.state = record.seq + 1, state
    assert runs.commit(record, RunChange(events=(RunEvent(seq=record.seq, at_ms=1, run=record.run, kind="run", after=state.value),)))


def test_a_follower_lives_through_a_restart_of_the_server(tmp_path: Path):
    async def watch() -> list[str]:
        server = EmbeddedRedis.start(tmp_path)
        try:
            runs, record = begin(server)
            url = server.url
            async with redis.asyncio.Redis.from_url(url) as client:
                stream = RedisEventFeed(client, KEYS, patience_s=60).follow(RUN)
                step(runs, record, RunState.RUNNING)
                seen = [(await anext(stream)).after]
                coming = asyncio.ensure_future(anext(stream))
                await asyncio.to_thread(server.stop)
                server = await asyncio.to_thread(EmbeddedRedis.start, tmp_path)
                assert server.url == url
                await asyncio.to_thread(step, runs, record, RunState.CANCELLING)
                seen.append((await coming).after)
                await asyncio.to_thread(step, runs, record, RunState.CANCELLED)
                return [*seen, *[event.after async for event in stream]]
        finally:
            server.stop()

    assert asyncio.run(watch()) == ["RUNNING", "CANCELLING", "CANCELLED"]


def test_a_follower_gives_up_when_the_server_stays_away(tmp_path: Path):
    async def watch() -> None:
        with EmbeddedRedis.start(tmp_path) as server:
            begin(server)
            url = server.url
        async with redis.asyncio.Redis.from_url(url) as client:
            await anext(RedisEventFeed(client, KEYS, patience_s=0.2).follow(RUN))

    with pytest.raises(StoreUnavailable, match="Redis does not respond"):
        asyncio.run(watch())


def test_waiting_for_the_end_sees_it_whenever_it_comes(tmp_path: Path):
    async def watch() -> None:
        with EmbeddedRedis.start(tmp_path) as server:
            runs, record = begin(server)
            async with redis.asyncio.Redis.from_url(server.url) as client:
                feed = RedisEventFeed(client, KEYS)
                waiting = asyncio.ensure_future(feed.wait_for_end(RUN))
                for state in (RunState.RUNNING, RunState.CANCELLING):
                    await asyncio.to_thread(step, runs, record, state)
                    assert not waiting.done()
                await asyncio.to_thread(step, runs, record, RunState.CANCELLED)
                await waiting
                await feed.wait_for_end(RUN)  # It has ended: at once.
                with pytest.raises(UnknownRun):
                    await feed.wait_for_end(RunId("nobody's"))

    asyncio.run(watch())


def test_those_who_wait_share_one_reader_of_the_feed(tmp_path: Path):
    async def watch() -> int:
        with EmbeddedRedis.start(tmp_path) as server:
            others = [begin(server, RunId(f"other-{number}")) for number in range(4)]
            runs, record = begin(server)
            async with redis.asyncio.Redis.from_url(server.url) as client:
                feed = RedisEventFeed(client, KEYS)
                pending = [asyncio.ensure_future(feed.wait_for_end(other.run)) for _, other in others]
                waiting = asyncio.ensure_future(feed.wait_for_end(RUN))
                await asyncio.sleep(0)
                await asyncio.to_thread(step, runs, record, RunState.SUCCEEDED)
                await waiting
                assert not any(each.done() for each in pending)
                readers = sum(line["cmd"] == "xread" for line in await asyncio.to_thread(server.client().client_list))
                for its_runs, other in others:
                    await asyncio.to_thread(step, its_runs, other, RunState.FAILED)
                await asyncio.gather(*pending)
                return readers

    assert asyncio.run(watch()) == 1
