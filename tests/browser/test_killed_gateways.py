"""Gateways are killed under fifty clients while pages are open: nothing accepted is lost, and the pages catch up by themselves."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from patience import PATIENCE_S

from federation.api_keys import Role
from federation.store.redis.fixtures import running_redis
from federation.store.redis.key_ring import RedisKeyRing
from federation.tenants import TenantTree
from mesh.core.clock import SystemClock
from mesh.core.ids import TenantPath
from serve_apps.browser.page_files import page_files
from serve_apps.gateway_fixtures import RESEARCH, TENANTS, spec_of
from serve_apps.page_fixtures import chromium, entering, running_chromium
from serve_apps.processes.stores import Stores, open_stores
from serve_apps.replica_fixtures import LEASE_GRACE_MS, LEASE_TTL_MS, Replicas
from serve_apps.requests.auth import issue

pytestmark = [pytest.mark.faults, pytest.mark.slow]

CLIENTS, RUNS_EACH = 50, 4
#: Accepted runs of a round after which a gateway is killed: most clients wait for an answer then.
KILLED_AT = 60
PAGE_MS_MAX = 60_000


@dataclass(slots=True)
class Root:
    """A root on a real Redis, in processes of its own."""

    replicas: Replicas
    stores: Stores

    def key(self, role: Role = Role.SUBMITTER) -> str:
        ring = RedisKeyRing(self.stores.client, self.stores.keys)
        return issue(ring, TenantPath(RESEARCH), SystemClock().wall_ms(), role=role)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Root]:
    with running_redis() as server:
        url = f"unix://{server.connection_pool.connection_kwargs['path']}"
        stores = open_stores(url, lease_ttl_ms=LEASE_TTL_MS, lease_grace_ms=LEASE_GRACE_MS, founding=True)
        stores.ledger.configure(TenantTree(TENANTS))
        replicas = Replicas(tmp_path, url)
        try:
            yield Root(replicas, stores)
        finally:
            replicas.close()
            stores.client.close()


@dataclass(slots=True)
class Crowd:
    """Clients that each submit runs one after the other, and repeat what got no answer under the same idempotency key."""

    address: str
    keys: list[str]
    accepted: dict[str, str] = field(default_factory=dict)  #: Run by idempotency key.
    repeats: int = 0
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def submit(self, client: int, numbers: range) -> None:
        with httpx.Client(base_url=self.address, headers={"Authorization": f"Bearer {self.keys[client]}"}, timeout=PATIENCE_S) as http:
            for number in numbers:
                self._submit(http, f"client-{client}-{number}")

    def _submit(self, http: httpx.Client, key: str) -> None:
        while True:
            try:
                answer = http.post("/v1/runs", json=spec_of("a", tenant=RESEARCH), headers={"Idempotency-Key": key})
            except httpx.TransportError:
                with self._changed:
                    self.repeats += 1
                continue
            answer.raise_for_status()
            with self._changed:
                self.accepted[key] = answer.json()["id"]
                self._changed.notify_all()
            return

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.accepted) >= count, PATIENCE_S), f"{len(self.accepted)} runs were accepted"


@pytest.fixture
def browser() -> Iterator[Any]:
    if chromium() is None:
        pytest.skip("this machine has no Chromium: `apt-get install chromium`")
    if not page_files():
        pytest.skip("the browser page is not built: `make page`")
    with running_chromium() as running:
        yield running


def test_killed_gateways_lose_no_run_and_open_pages_catch_up(root: Root, browser: Any) -> None:
    from playwright.sync_api import expect

    expect.set_options(timeout=PAGE_MS_MAX)
    first, second = (root.replicas.start("gateway") for _ in range(2))
    root.replicas.start("coordinator")
    crowd = Crowd(root.replicas.address, [root.key() for _ in range(CLIENTS)])
    operator = root.key(Role.OPERATOR)
    with httpx.Client(base_url=root.replicas.address, headers={"Authorization": f"Bearer {operator}"}, timeout=PATIENCE_S) as http:
        http.post("/v1/runs", json=spec_of("a", "b", id="watched", tenant=RESEARCH)).raise_for_status()
    pages = [_open(browser, root.replicas.address, operator, part) for part in ("#/runs", "#/runs/watched", "#/events")]
    runs, watched, events = pages
    for page in (runs, events):
        expect(page.locator(".live")).to_be_visible()
    expect(watched.locator(".canvas-frame[data-ready=true]")).to_be_visible()

    with ThreadPoolExecutor(CLIENTS) as threads:
        for number, gateway in enumerate((first, second)):
            numbers = range(number * RUNS_EACH, (number + 1) * RUNS_EACH)
            submitted = [threads.submit(crowd.submit, client, numbers) for client in range(CLIENTS)]
            crowd.wait_for(number * CLIENTS * RUNS_EACH + KILLED_AT)
            gateway.kill()
            for one in submitted:
                one.result()
            if gateway is first:
                root.replicas.start("gateway")  # As Serve does; then the other one dies, so no stream has its first gateway.

    everything = {*crowd.accepted.values(), "watched"}
    assert crowd.repeats > 0, "no request was cut off"
    assert len(everything) == 2 * CLIENTS * RUNS_EACH + 1
    assert {kept.run for kept in root.stores.runs.list(TenantPath(RESEARCH), limit=2 * len(everything))} == everything
    with httpx.Client(base_url=root.replicas.address, headers={"Authorization": f"Bearer {operator}"}, timeout=PATIENCE_S) as http:
        for key, run in crowd.accepted.items():
            if key.endswith("-0"):
                again = http.post("/v1/runs", json=spec_of("a", tenant=RESEARCH), headers={"Idempotency-Key": key})
                assert again.json()["id"] == run
        http.post("/v1/runs/watched/cancel").raise_for_status()
    expect(watched.locator(".run-head .badge")).to_contain_text("CANCELLED")
    expect(runs.get_by_text(f"{len(everything)} runs")).to_be_visible()
    expect(events.locator("tbody tr").filter(has_text="watched").first).to_contain_text("CANCEL")
    for page in pages:
        expect(page.get_by_text("Reconnecting")).to_have_count(0)


def _open(browser: Any, address: str, key: str, part: str) -> Any:
    context = browser.new_context(viewport={"width": 1_280, "height": 900})
    context.set_default_timeout(PAGE_MS_MAX)
    context.add_init_script(entering(key))
    page = context.new_page()
    page.goto(f"{address}/{part}")
    return page
