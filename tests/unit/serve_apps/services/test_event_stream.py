"""The event stream on a fake feed."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from dag.errors import UnknownRun
from dag.run.run_events import RunEvent
from federation.errors import StoreUnavailable
from mesh.core.ids import RunId
from serve_apps.services.event_stream import event_stream, wait_for_end

RUN = RunId("night")


def event(seq: int, kind: str = "node", after: str = "RUNNING") -> RunEvent:
    return RunEvent(seq=seq, at_ms=5, run=RUN, kind=kind, after=after)


class Feed:
    """Feed of given items; an exception is raised, None is silence until the reader leaves."""

    def __init__(self, *items: RunEvent | Exception | None) -> None:
        self._items = items
        self.closed = False

    async def follow(self, _run: RunId, after: int = 0) -> AsyncIterator[RunEvent]:
        try:
            for item in self._items:
                if isinstance(item, Exception):
                    raise item
                if item is None:
                    await asyncio.Event().wait()
                elif item.seq > after:
                    yield item
        finally:
            self.closed = True

    async def wait_for_end(self, run: RunId) -> None:
        async for _ in self.follow(run):
            pass


async def read(feed: Feed, parts: int, after: int = 0) -> list[str]:
    """Read the first parts of the stream and close it."""
    stream = event_stream(feed, RUN, after, keep_alive_s=0.001)
    found = []
    async for part in stream:
        found.append(part)
        if len(found) == parts:
            break
    await stream.aclose()
    return found


def test_an_event_is_a_number_a_kind_and_json():
    _, stream = asyncio.run(read(Feed(event(7, "run", "SUCCEEDED")), 99))
    number, kind, data = stream.strip().splitlines()
    assert (number, kind) == ("id: 7", "event: run")
    assert json.loads(data.removeprefix("data: "))["after"] == "SUCCEEDED"


def test_a_stream_begins_after_the_number_that_was_seen():
    stream = asyncio.run(read(Feed(event(1), event(2), event(3)), 99, after=2))
    assert [part.splitlines()[0] for part in stream[1:]] == ["id: 3"]


def test_silence_is_filled_with_comments_and_loses_nothing():
    feed = Feed(event(1), None)
    stream = asyncio.run(read(feed, 4))
    assert [part[:1] for part in stream[1:]] == ["i", ":", ":"]


def test_a_reader_that_goes_away_closes_the_feed():
    feed = Feed(event(1), None)
    asyncio.run(read(feed, 2))
    assert feed.closed


@pytest.mark.parametrize("cut", [StoreUnavailable("gone"), UnknownRun("retired")], ids=["by the store", "by retention"])
def test_interrupted_stream_ends_quietly_after_its_events(cut):
    feed = Feed(event(1), cut)
    stream = asyncio.run(read(feed, 99))
    assert len(stream) == 2
    assert feed.closed


def test_waiting_ends_with_the_feed():
    feed = Feed(event(1), event(2, "run", "SUCCEEDED"))
    asyncio.run(wait_for_end(feed, RUN, 60))
    assert feed.closed


def test_waiting_ends_with_the_time_that_was_given():
    feed = Feed(event(1), None)
    asyncio.run(wait_for_end(feed, RUN, 0.001))
    assert feed.closed
