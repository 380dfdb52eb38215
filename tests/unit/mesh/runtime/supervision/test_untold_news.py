"""News that nobody takes at first: told again, in order, and dropped only when they hold up those behind them."""

from __future__ import annotations

import asyncio

from mesh.errors import MeshError, RuntimeDoorError
from mesh.runtime.supervision import untold_news
from mesh.runtime.supervision.untold_news import UntoldNews
from mesh.scheduling.events import GroupGone


class Listener:
    """Remembers what it is told, after it has raised these errors."""

    def __init__(self, *errors):
        self.told, self.errors = [], list(errors)

    def take(self, *events):
        if self.errors:
            raise self.errors.pop(0)
        self.told += [(type(event), event.group) for event in events]


async def turns(count):
    for _ in range(count):
        await asyncio.sleep(0)


def test_news_that_the_disk_does_not_take_are_told_again_in_order(monkeypatch):
    monkeypatch.setattr(untold_news, "TELL_AGAIN_S", 0)

    async def scene():
        listener = Listener(*(RuntimeDoorError("no space left") for _ in range(7)))
        news = UntoldNews(listener.take)
        for group in ("g1", "g2"):
            news.tell(GroupGone(at_ms=1, group=group))
        await turns(100)
        assert listener.told == [(GroupGone, "g1"), (GroupGone, "g2")]

    asyncio.run(scene())


def test_news_that_the_scheduler_never_understands_do_not_hold_up_those_behind_them(monkeypatch):
    monkeypatch.setattr(untold_news, "TELL_AGAIN_S", 0)

    async def scene():
        listener = Listener(*(MeshError("what is that?") for _ in range(untold_news.TELLS_MAX)))
        news = UntoldNews(listener.take)
        for group in ("g1", "g2"):
            news.tell(GroupGone(at_ms=1, group=group))
        await turns(100)
        assert listener.told == [(GroupGone, "g2")]

    asyncio.run(scene())
