"""Webhooks on a real Redis, to real receivers: one that fails first, one that is slow, one that sends garbage, one that redirects."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest
import redis
from ended_runs import end_run
from patience import eventually
from receivers import Answer, Receiver, receiving, sending_bytes

from dag.run.states import RunState
from dag.store.redis_runs import RedisRunStore
from dag.store.redis_webhooks import RedisWebhooks
from dag.webhooks.delivery import WAIT_MS_MAX
from dag.webhooks.webhook import Webhook
from federation.store.redis.fixtures import running_redis
from federation.store.redis.keys import Keys
from mesh.core.clock import ManualClock
from serve_apps.cli.app import run_command
from serve_apps.cli.commands import federation
from serve_apps.root.webhook_sender import WebhookSender

SECRET = f"whsec_{base64.b64encode(b'k' * 32).decode()}"
#: Time of the manual clock; attempts are due by it.
START_MS = 1_700_000_000_000
KEYS = Keys("webhooks")


@pytest.fixture(scope="module")
def server() -> Iterator[redis.Redis]:
    with running_redis() as client:
        yield client


class Bed:
    """Stores, a clock, and senders of one test."""

    def __init__(self, client: redis.Redis, folder: Path, opened: ExitStack) -> None:
        self.client = client
        self.clock = ManualClock(START_MS)
        self.runs, self.store = RedisRunStore(client, KEYS), RedisWebhooks(client, KEYS)
        self._opened = opened
        self._secret = folder / "hook.key"
        self._secret.write_text(f"{SECRET}\n")

    def receiver(self, answer: Answer = lambda _: (204, {})) -> Receiver:
        return self._opened.enter_context(receiving(answer))

    def bytes_at(self, *parts: bytes, is_closed: bool = True) -> str:
        return self._opened.enter_context(sending_bytes(*parts, is_closed=is_closed))

    def webhook(self, name: str, url: str, **fields) -> Webhook:
        return Webhook(name=name, url=url, secret_file=str(self._secret), **{"timeout_ms": 60_000, **fields})

    def sender(self, *webhooks: Webhook) -> WebhookSender:
        """Start a sender that leads, and wait until each webhook has its mark: later ends count."""
        sender = self.idle_sender(*webhooks)
        sender.lead(True)
        eventually(lambda: set(self.store.counts()) == {webhook.name for webhook in webhooks})
        return sender

    def idle_sender(self, *webhooks: Webhook) -> WebhookSender:
        """Start a sender that does not lead."""
        sender = WebhookSender(webhooks, store=self.store, runs=self.runs, clock=self.clock, look_ms=10)
        self._opened.callback(sender.close)
        return sender

    def end(self, name: str, **fields) -> None:
        end_run(self.runs, name, **fields)

    def wait_for(self, name: str, **counts: int) -> None:
        """Wait for these counts of the webhook."""
        eventually(lambda: {key: getattr(self.store.counts()[name], key) for key in counts} == counts)


@pytest.fixture
def bed(server: redis.Redis, tmp_path: Path) -> Iterator[Bed]:
    server.flushall()
    with ExitStack() as opened:
        yield Bed(server, tmp_path, opened)


def test_receiver_gets_a_signed_message_for_each_end(bed):
    receiver = bed.receiver()
    bed.sender(bed.webhook("ops", receiver.url, events=(RunState.FAILED, RunState.CANCELLED), tenant="acme"))
    bed.end("night", state=RunState.FAILED)
    bed.end("fine")
    bed.end("elsewhere", state=RunState.FAILED, tenant="other")
    bed.end("stopped", state=RunState.CANCELLED, tenant="acme")
    bed.wait_for("ops", delivered=2, pending=0, dead=0)
    assert sorted((body["type"], body["data"]["id"], body["data"]["state"]) for body in receiver.bodies()) == [
        ("run.cancelled", "stopped", "CANCELLED"),
        ("run.failed", "night", "FAILED"),
    ]
    for headers, body in receiver.calls:
        content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        expected = base64.b64encode(hmac.new(b"k" * 32, content, hashlib.sha256).digest()).decode()
        assert headers["webhook-signature"] == f"v1,{expected}"
        assert (headers["webhook-timestamp"], headers["content-type"]) == (str(START_MS // 1000), "application/json")


def test_run_that_ends_before_the_first_look_is_sent(bed):
    receiver = bed.receiver()
    bed.end("earlier")
    for run in ("first", "second"):  # The second leader goes on from the mark of the first.
        sender = bed.idle_sender(bed.webhook("ops", receiver.url))
        sender.begin()
        bed.end(run)
    sender.lead(True)
    bed.wait_for("ops", delivered=2, pending=0)
    assert sorted(body["data"]["id"] for body in receiver.bodies()) == ["first", "second"]


def test_receiver_that_fails_first_gets_the_same_message_again(bed):
    receiver = bed.receiver(lambda number: (503, {}) if number <= 2 else (200, {}))
    bed.sender(bed.webhook("ops", receiver.url))
    bed.end("night")
    for failed in (1, 2):
        eventually(lambda failed=failed: len(receiver.calls) == failed and bed.store.counts()["ops"].failure)
        bed.clock.advance(WAIT_MS_MAX)
    bed.wait_for("ops", delivered=1, pending=0)
    assert len(receiver.calls) == 3
    assert len({*receiver.ids()}) == len({body for _, body in receiver.calls}) == 1
    assert bed.store.counts()["ops"].failure == ""


def test_no_attempt_is_made_before_it_is_due(bed):
    failing, other = bed.receiver(lambda _: (500, {"retry-after": "3600"})), bed.receiver()
    bed.sender(bed.webhook("ops", failing.url), bed.webhook("pager", other.url))
    bed.end("first")
    eventually(lambda: bed.store.counts()["ops"].failure)
    bed.clock.advance(3_599_000)
    bed.end("second")
    bed.wait_for("pager", delivered=2)
    eventually(lambda: len(failing.calls) == 2)
    assert [body["data"]["id"] for body in failing.bodies()] == ["first", "second"]
    bed.clock.advance(1_000)
    eventually(lambda: len(failing.calls) == 3)
    assert failing.bodies()[2]["data"]["id"] == "first"


def test_message_is_given_up_after_its_attempts(bed):
    receiver = bed.receiver(lambda _: (500, {}))
    bed.sender(bed.webhook("ops", receiver.url, attempts_max=2))
    bed.end("night")
    eventually(lambda: bed.store.counts()["ops"].failure)
    bed.clock.advance(WAIT_MS_MAX)
    bed.wait_for("ops", dead=1, pending=0, delivered=0)
    assert len(receiver.calls) == 2
    assert bed.store.counts()["ops"].failure == "HTTP 500"


def test_receiver_that_is_gone_gets_no_second_attempt(bed):
    receiver = bed.receiver(lambda _: (410, {}))
    bed.sender(bed.webhook("ops", receiver.url))
    bed.end("night")
    bed.wait_for("ops", dead=1, pending=0)
    assert len(receiver.calls) == 1


def test_slow_and_broken_receivers_hold_up_no_other(bed):
    silent = bed.bytes_at(is_closed=False)
    slow_headers = bed.bytes_at(b"HTTP/1.1 200 OK\r\nx-slow: ", is_closed=False)
    healthy = bed.receiver()
    slow = [bed.webhook(f"slow-{number}", url) for number, url in enumerate((silent, slow_headers))]
    bed.sender(*slow, bed.webhook("ops", healthy.url))
    for number in range(20):
        bed.end(f"r{number}")
    bed.wait_for("ops", delivered=20)
    assert {bed.store.counts()[webhook.name].delivered for webhook in slow} == {0}


@pytest.mark.parametrize(
    ("parts", "failure"),
    [
        pytest.param((b"\x00\xff garbage\r\n\r\n",), "RemoteProtocolError", id="no HTTP"),
        pytest.param((), "RemoteProtocolError", id="a closed connection"),
        pytest.param((b"HTTP/1.1 999999 What\r\n\r\n",), "RemoteProtocolError", id="no status"),
        pytest.param((b"HTTP/1.1 200 OK\r\n", b"x: " + b"y" * 300_000), "RemoteProtocolError", id="a header without end"),
    ],
)
def test_garbage_is_a_failed_attempt(bed, parts, failure):
    bed.sender(bed.webhook("ops", bed.bytes_at(*parts)))
    bed.end("night")
    eventually(lambda: bed.store.counts()["ops"].failure)
    assert failure in bed.store.counts()["ops"].failure
    assert bed.store.counts()["ops"].pending == 1


def test_status_that_comes_too_late_is_a_failed_attempt(bed):
    bed.sender(bed.webhook("ops", bed.bytes_at(b"HTTP/1.1 200 OK\r\nx-slow: ", is_closed=False), timeout_ms=100))
    bed.end("night")
    eventually(lambda: bed.store.counts()["ops"].failure == "no status within 0.1 s")


def test_endless_body_of_a_response_is_not_read(bed):
    url = bed.bytes_at(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n", b"y" * 100_000, is_closed=False)
    bed.sender(bed.webhook("ops", url))
    bed.end("night")
    bed.wait_for("ops", delivered=1)


def test_redirect_is_not_followed(bed):
    inner = bed.receiver()
    outer = bed.receiver(lambda _: (307, {"location": inner.url}))
    bed.sender(bed.webhook("ops", outer.url))
    bed.end("night")
    eventually(lambda: bed.store.counts()["ops"].failure == "HTTP 307; redirects are not followed")
    assert (len(outer.calls), inner.calls) == (1, [])


def test_secret_file_that_is_missing_sends_nothing_unsigned(bed, tmp_path):
    receiver = bed.receiver()
    webhook = bed.webhook("ops", receiver.url)
    (tmp_path / "hook.key").unlink()
    bed.sender(webhook)
    bed.end("night")
    eventually(lambda: "FileNotFoundError" in bed.store.counts()["ops"].failure)
    assert receiver.calls == []
    (tmp_path / "hook.key").write_text(SECRET)
    bed.clock.advance(WAIT_MS_MAX)
    bed.wait_for("ops", delivered=1)


def test_next_process_goes_on_where_the_last_one_ended(bed):
    away = bed.receiver(lambda _: (503, {}))
    first = bed.sender(bed.webhook("ops", away.url))
    bed.end("before")
    eventually(lambda: bed.store.counts()["ops"].failure)
    first.close()
    bed.end("while no root runs")
    bed.clock.advance(WAIT_MS_MAX)
    back = bed.receiver()
    bed.sender(bed.webhook("ops", back.url))
    bed.end("after")
    bed.wait_for("ops", delivered=3, pending=0)
    assert sorted(body["data"]["id"] for body in back.bodies()) == ["after", "before", "while no root runs"]
    assert set(away.ids()) < set(back.ids())


def test_only_the_leader_sends(bed):
    receiver = bed.receiver()
    webhook = bed.webhook("ops", receiver.url)
    other = WebhookSender([webhook], store=bed.store, runs=bed.runs, clock=bed.clock, look_ms=10)
    leader = bed.sender(webhook)
    leader.lead(False)
    bed.end("night")
    other.lead(True)
    bed.wait_for("ops", delivered=1)
    other.close()
    assert len(receiver.calls) == 1


def test_webhook_that_left_the_file_is_forgotten(bed):
    away = bed.receiver(lambda _: (503, {}))
    first = bed.sender(bed.webhook("old", away.url), bed.webhook("ops", away.url))
    bed.end("night")
    eventually(lambda: all(counts.failure for counts in bed.store.counts().values()))
    first.close()
    bed.sender(bed.webhook("ops", away.url))
    assert not bed.client.keys("*old*")


def test_command_lists_the_webhooks_of_the_file(bed, monkeypatch, capsys):
    webhook, quiet = bed.webhook("ops", bed.receiver(lambda _: (410, {})).url), bed.webhook("quiet", "https://hooks.example/")
    bed.sender(webhook)
    bed.end("night")
    bed.wait_for("ops", dead=1)
    monkeypatch.setattr(federation, "root_settings", lambda _: SimpleNamespace(webhooks=(webhook, quiet)))
    monkeypatch.setattr(federation, "running_stores", lambda _: SimpleNamespace(webhooks=bed.store))
    capsys.readouterr()
    assert run_command(["webhooks"]) == 0
    _, ops, other = (line.split() for line in capsys.readouterr().out.splitlines())
    assert ops == ["ops", "*", "0", "0", "1", "HTTP", "410"]
    assert other == ["quiet", "*", "0", "0", "0"]
