"""A real Prometheus scrapes a running federation: series, queries of the board, and alerts that fire."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from federation_bed import LIMIT_S, eventually, submit, wait_for
from monitoring import MONITORING, STRANGER, TARGETS, Prometheus, for_all, named_in, needs_prometheus, scraping

import dag
from dag.run.states import RunState
from dag.store.remote import Client
from federation.api_keys import EVERYBODY, Role
from federation.store.redis.key_ring import RedisKeyRing
from mesh.core.clock import SystemClock
from mesh.core.reasons import Reason
from serve_apps.processes.stores import Stores
from serve_apps.requests.auth import issue
from serve_apps.standalone.stack import Stack

pytestmark = [pytest.mark.ray, needs_prometheus, pytest.mark.usefixtures("nothing_left")]

#: Nodes that fail for good: one more than the alert allows.
LETTERS = 101


def wait_for_file(path: str) -> str:
    while not Path(path).exists():
        time.sleep(0.01)
    return "done"


def fail(number: int) -> None:
    raise ValueError(number)


@pytest.fixture(scope="module")
def prometheus(stack: Stack, stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    key = issue(RedisKeyRing(stores.client, stores.keys), EVERYBODY, SystemClock().wall_ms(), role=Role.VIEWER)
    with scraping(stack.address, key, tmp_path_factory.mktemp("prometheus")) as running:
        yield running


def drop_all(stores: Stores) -> None:
    """Drop all dead letters."""
    while letters := stores.runs.dead(1000):
        stores.runs.drop_dead(tuple(letter.letter for letter in letters))


def succeed() -> None:
    return None


@pytest.fixture
def busy(nothing_left: None, client: Client, tmp_path: Path) -> Iterator[None]:
    """Let a stage end, another one run, and a third one wait behind it."""
    submit(client, dag.bind(succeed)).result(LIMIT_S)
    running = submit(client, dag.bind(wait_for_file, str(tmp_path / "go")), tenant="acme/narrow")
    wait_for(running, lambda event: event.kind == "stage" and event.after == "RUNNING")
    waiting = submit(client, dag.bind(wait_for_file, str(tmp_path / "go")), tenant="acme/narrow")
    wait_for(waiting, lambda event: event.reason is Reason.QUOTA_EXHAUSTED)
    yield
    (tmp_path / "go").touch()
    assert (running.result(LIMIT_S), waiting.result(LIMIT_S)) == ("done", "done")


@pytest.mark.usefixtures("busy")
def test_every_metric_of_board_and_alerts_is_scraped(prometheus: Prometheus) -> None:
    named = set().union(*(named_in((MONITORING / file).read_text(encoding="utf-8")) for file in ("grafana.json", "alerts.yaml")))
    eventually(lambda: _assert_scraped(prometheus, named))


def _assert_scraped(prometheus: Prometheus, named: set[str]) -> None:
    assert named <= prometheus.names()


@pytest.mark.usefixtures("busy")
def test_every_query_of_the_board_has_an_answer(prometheus: Prometheus) -> None:
    without = {for_all(target["expr"]) for target in TARGETS}
    eventually(lambda: _assert_answered(prometheus, without))


def _assert_answered(prometheus: Prometheus, without: set[str]) -> None:
    """Take the queries that have an answer now out of the set, since some metrics are of the last minute; none may be left."""
    without.difference_update([query for query in without if prometheus.query(query)])
    assert not without


def test_alert_fires_for_a_scrape_that_the_root_refuses(prometheus: Prometheus) -> None:
    alerts = eventually(lambda: _firing(prometheus, "ScheduleMeshRootDown"))
    assert [alert["labels"]["instance"] for alert in alerts] == [STRANGER]
    assert alerts[0]["annotations"]["summary"] == f"The root at {STRANGER} does not answer, or refuses the scrape."


def test_alert_fires_while_a_run_is_blocked(prometheus: Prometheus, client: Client) -> None:
    assert "ScheduleMeshRunsBlocked" not in prometheus.firing()
    run = submit(client, dag.task(fail, labels={"zone": "moon"}).bind(1), wait_for_capacity=True)
    alerts = eventually(lambda: _firing(prometheus, "ScheduleMeshRunsBlocked"))
    assert [float(alert["value"]) for alert in alerts] == [1]
    run.cancel()
    assert run.wait(LIMIT_S) is RunState.CANCELLED
    eventually(lambda: _assert_quiet(prometheus, "ScheduleMeshRunsBlocked"))


def test_alert_fires_at_many_dead_letters(prometheus: Prometheus, client: Client, stores: Stores) -> None:
    drop_all(stores)  # Earlier tests of this federation have left some.
    eventually(lambda: _assert_quiet(prometheus, "ScheduleMeshDeadLetters"))
    failing = {f"n{number}": dag.task(fail, name=f"n{number}", max_retries=0).bind(number) for number in range(LETTERS)}
    run = submit(client, failing, on_error="continue")
    assert run.wait(LIMIT_S) is RunState.FAILED
    eventually(lambda: _firing(prometheus, "ScheduleMeshDeadLetters"))
    drop_all(stores)
    eventually(lambda: _assert_quiet(prometheus, "ScheduleMeshDeadLetters"))


@pytest.mark.faults
@pytest.mark.slow
def test_alert_fires_for_a_mesh_without_heartbeat(prometheus: Prometheus, stack: Stack) -> None:
    asleep = stack.children["west"].pid
    os.kill(asleep, signal.SIGSTOP)
    try:
        alerts = eventually(lambda: _firing(prometheus, "ScheduleMeshMeshDown"))
    finally:
        os.kill(asleep, signal.SIGCONT)
    assert [alert["labels"]["mesh"] for alert in alerts] == ["west"]
    eventually(lambda: _assert_quiet(prometheus, "ScheduleMeshMeshDown"))


def _firing(prometheus: Prometheus, name: str) -> list[dict[str, dict[str, str]]]:
    alerts = prometheus.firing()
    assert name in alerts
    return alerts[name]


def _assert_quiet(prometheus: Prometheus, name: str) -> None:
    assert name not in prometheus.firing()
