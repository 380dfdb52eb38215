"""Contract of the stores of webhooks, in memory and on a real Redis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from ended_runs import begin_run, end_run

from dag.store.memory_webhooks import MemoryWebhooks
from dag.store.redis_runs import RedisRunStore
from dag.store.redis_webhooks import RedisWebhooks
from dag.webhooks.webhook import Message, WebhookCounts, WebhookStore
from federation.store.memory.store import MemoryStore
from federation.store.redis.keys import Keys
from mesh.core.ids import RunId

OPS, PAGER = "ops", "pager"
FIRST = Message(id="msg_1", run=RunId("r1"), body='{"é": 1}')
SECOND = Message(id="msg_2", run=RunId("r2"), body="{}")


@dataclass(frozen=True)
class Kept:
    webhooks: WebhookStore
    end: Callable[[str], None]  #: Ends a new run.


@pytest.fixture
def kept(store) -> Kept:
    if isinstance(store.queue, MemoryStore):
        memory = MemoryWebhooks()
        return Kept(memory, lambda name: memory.end(RunId(name)))
    runs = RedisRunStore(store.client, Keys("contract"))
    return Kept(RedisWebhooks(store.client, Keys("contract")), lambda name: end_run(runs, name))


@pytest.fixture
def webhooks(kept) -> WebhookStore:
    return kept.webhooks


def take(webhooks: WebhookStore, name: str = OPS, limit: int = 100) -> tuple[str, ...]:
    """Read ends until there are no more, as the sender does."""
    found: tuple[str, ...] = ()
    while (ended := webhooks.ended(name, limit)).mark != ended.after:
        webhooks.accept(name, ended.mark, ())
        found += ended.runs
    return found


@pytest.mark.every_form
def test_new_webhook_begins_with_the_next_end(kept):
    kept.end("before")
    assert take(kept.webhooks) == ()
    kept.end("first")
    kept.end("second")
    assert take(kept.webhooks) == ("first", "second")
    assert take(kept.webhooks) == ()


def test_each_webhook_has_its_own_mark(kept):
    take(kept.webhooks, OPS)
    kept.end("first")
    take(kept.webhooks, PAGER)
    kept.end("second")
    assert take(kept.webhooks, PAGER) == ("second",)
    assert take(kept.webhooks, OPS) == ("first", "second")


@pytest.mark.parametrize("limit", [1, 2])
def test_ends_come_in_parts(kept, limit):
    take(kept.webhooks)
    for number in range(3):
        kept.end(f"r{number}")
    assert take(kept.webhooks, limit=limit) == ("r0", "r1", "r2")


@pytest.mark.every_form
def test_message_is_due_until_it_is_settled(webhooks):
    webhooks.accept(OPS, "0-0", (FIRST, SECOND))
    assert set(webhooks.due(OPS, 0, 10)) == {FIRST, SECOND}
    webhooks.settle(OPS, FIRST)
    assert webhooks.due(OPS, 0, 10) == (SECOND,)
    assert webhooks.counts() == {OPS: WebhookCounts(pending=1, delivered=1)}


def test_postponed_message_is_due_later(webhooks):
    webhooks.accept(OPS, "0-0", (FIRST, SECOND))
    later = replace(FIRST, attempts=1, due_ms=500)
    webhooks.postpone(OPS, later, "HTTP 503 Service Unavailable")
    assert webhooks.due(OPS, 499, 10) == (SECOND,)
    assert webhooks.due(OPS, 500, 10) == (SECOND, later)
    assert webhooks.due(OPS, 500, 1) == (SECOND,)
    assert webhooks.counts()[OPS].failure == "HTTP 503 Service Unavailable"


def test_message_that_is_accepted_again_keeps_its_attempts(webhooks):
    webhooks.accept(OPS, "0-0", (FIRST,))
    webhooks.postpone(OPS, later := replace(FIRST, attempts=1, due_ms=500), "away")
    webhooks.accept(OPS, "0-0", (FIRST,))
    assert webhooks.due(OPS, 500, 10) == (later,)


def test_message_is_counted_once(webhooks):
    webhooks.accept(OPS, "0-0", (FIRST, SECOND))
    for _ in range(2):
        webhooks.settle(OPS, FIRST, failure="HTTP 410 Gone")
    assert webhooks.counts() == {OPS: WebhookCounts(pending=1, dead=1, failure="HTTP 410 Gone")}
    webhooks.settle(OPS, SECOND)
    assert webhooks.counts() == {OPS: WebhookCounts(delivered=1, dead=1)}


def test_forgotten_webhook_begins_anew(kept):
    for name in (OPS, PAGER):
        take(kept.webhooks, name)
        kept.webhooks.accept(name, kept.webhooks.ended(name, 1).mark, (FIRST,))
    kept.webhooks.keep_only([PAGER])
    kept.end("meanwhile")
    assert set(kept.webhooks.counts()) == {PAGER}
    assert take(kept.webhooks, OPS) == ()
    assert kept.webhooks.due(OPS, 0, 10) == ()
    assert take(kept.webhooks, PAGER) == ("meanwhile",)


def test_ends_that_the_feed_has_lost_are_among_the_kept_runs(store):
    if isinstance(store.queue, MemoryStore):
        pytest.skip("the memory store keeps its whole feed")
    keys = Keys("contract")
    runs, webhooks = RedisRunStore(store.client, keys), RedisWebhooks(store.client, keys)
    begin_run(runs, "still running")
    take(webhooks)
    mark_ms = int(webhooks.ended(OPS, 1).mark.partition("-")[0])
    end_run(runs, "long ago", at_ms=mark_ms - 86_400_000)
    end_run(runs, "lost", at_ms=mark_ms + 1)
    (store.admin or store.client).xtrim(keys.run_feed, maxlen=0, approximate=False)
    begin_run(runs, "later")
    assert take(webhooks) == ("lost",)
    end_run(runs, "seen", at_ms=mark_ms + 2)
    assert take(webhooks) == ("seen",)
