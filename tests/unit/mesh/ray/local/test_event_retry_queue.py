"""Retry queue of events: kept in order, and dropped only where they block others."""

from __future__ import annotations

import asyncio

from mesh.errors import MeshError, RuntimeAdapterError
from mesh.ray.local.supervisor import event_retry_queue
from mesh.ray.local.supervisor.event_retry_queue import EventRetryQueue
from mesh.tasks.events import GroupGone


class Listener:
    """Listener that raises these errors first, then records events; it rejects one group."""

    def __init__(self, *errors, odd=None):
        self.reported, self.errors, self.odd = [], list(errors), odd

    def take(self, *events):
        if self.errors:
            raise self.errors.pop(0)
        if self.odd in [event.group for event in events]:
            raise MeshError("what is that?")
        self.reported += [(type(event), event.group) for event in events]


async def locks(count):
    for _ in range(count):
        await asyncio.sleep(0)


def test_events_that_were_not_journaled_are_sent_again_in_order(monkeypatch):
    monkeypatch.setattr(event_retry_queue, "SEND_AGAIN_S", 0)

    async def scene():
        listener = Listener(*(RuntimeAdapterError("no space left") for _ in range(7)))
        event_queue = EventRetryQueue(listener.take)
        for group in ("g1", "g2"):
            event_queue.send(GroupGone(at_ms=1, group=group))
        await locks(100)
        assert listener.reported == [(GroupGone, "g1"), (GroupGone, "g2")]

    asyncio.run(scene())


def test_events_that_are_never_accepted_do_not_block_others(monkeypatch):
    monkeypatch.setattr(event_retry_queue, "SEND_AGAIN_S", 0)

    async def scene():
        listener = Listener(*(MeshError("what is that?") for _ in range(event_retry_queue.SENDS_MAX)))
        event_queue = EventRetryQueue(listener.take)
        for group in ("g1", "g2"):
            event_queue.send(GroupGone(at_ms=1, group=group))
        await locks(100)
        assert listener.reported == [(GroupGone, "g2")]

    asyncio.run(scene())


def test_late_events_cost_waiting_ones_no_retries():
    async def scene():
        listener = Listener(MeshError("a moment"))
        event_queue = EventRetryQueue(listener.take)
        groups = [f"g{index}" for index in range(2 * event_retry_queue.SENDS_MAX)]
        listener.errors *= len(groups)
        for group in groups:
            event_queue.send(GroupGone(at_ms=1, group=group))
        assert len(listener.errors) == len(groups) - 1, "one try, and then a pause"

    asyncio.run(scene())


def test_one_invalid_event_does_not_fail_its_batch(monkeypatch):
    monkeypatch.setattr(event_retry_queue, "SEND_AGAIN_S", 0)

    async def scene():
        listener = Listener(odd="g2")
        event_queue = EventRetryQueue(listener.take)
        event_queue.send(*(GroupGone(at_ms=1, group=group) for group in ("g1", "g2", "g3")))
        await locks(100)
        assert listener.reported == [(GroupGone, "g1"), (GroupGone, "g3")]

    asyncio.run(scene())
