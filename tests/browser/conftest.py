"""Chromium and a served root, shared by the tests of the browser page; a new tab for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from sharing import SHARING

from federation.api_keys import Role
from mesh.core.ids import TenantPath
from serve_apps.browser.page_files import page_files
from serve_apps.gateway_fixtures import RESEARCH
from serve_apps.page_fixtures import Scene, chromium, entering, running_chromium, scene
from serve_apps.requests.auth import issue

#: Longest wait for anything on the page: a busy machine may need it.
PATIENCE_MS = 20_000


@dataclass(frozen=True, slots=True)
class Screen:
    """A served root and a running Chromium."""

    scene: Scene
    browser: Any  #: playwright's, which is imported where Chromium is.

    @property
    def http(self) -> httpx.Client:
        """Client with the key of the scene. Within this process nothing else may call the root: playwright has the event loop."""
        return httpx.Client(base_url=self.scene.address, headers={"Authorization": f"Bearer {self.scene.key}"})

    def key(self, tenant: str = RESEARCH, role: Role = Role.VIEWER) -> str:
        """Return a new key."""
        return issue(self.scene.world.keys, TenantPath(tenant), self.scene.world.clock.wall_ms(), role=role)


@contextmanager
def running() -> Iterator[Screen]:
    """Serve the scene and run Chromium within the block."""
    from playwright.sync_api import expect  # Half a second, which machines without Chromium save.

    expect.set_options(timeout=PATIENCE_MS)
    with scene() as served, running_chromium() as browser:
        yield Screen(served, browser)


@pytest.fixture
def screen() -> Screen:
    """The shared root and Chromium."""
    if chromium() is None:
        pytest.skip("this machine has no Chromium: `apt-get install chromium`")
    if not page_files():
        pytest.skip("the browser page is not built: `make page`")
    return SHARING.get("chromium", "page", running)


@pytest.fixture
def problems() -> list[str]:
    """Problems on the console of a tab; a test that provokes an error clears the list."""
    return []


@pytest.fixture
def open_page(screen: Screen, problems: list[str]) -> Iterator[Callable[..., Any]]:
    """Open a tab of its own at a part of the page. At the end no tab may have an error in its console."""
    opened = []

    def open_at(part: str = "#/runs", *, key: str | None = None, theme: str = "light", width: int = 1_280, height: int = 900) -> Any:
        context = screen.browser.new_context(viewport={"width": width, "height": height}, reduced_motion="reduce")
        opened.append(context)
        context.set_default_timeout(PATIENCE_MS)
        context.add_init_script(entering(screen.scene.key if key is None else key, theme))
        page = context.new_page()
        page.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: problems.append(error.stack or str(error)))
        page.goto(f"{screen.scene.address}/{part}")
        return page

    yield open_at
    for context in opened:
        context.close()
    assert problems == []


@pytest.fixture
def submit(screen: Screen) -> Callable[..., str]:
    """Submit a run of one node as research, and return its id."""

    def submit_as(run: str) -> str:
        spec = {"spec": "dag/1", "id": run, "tenant": RESEARCH, "nodes": {"a": {"call": "examples.hello.hello:greet", "args": ["x"]}}}
        with screen.http as http:
            http.post("/v1/runs", json={**spec, "outputs": {"a": {"$ref": "a"}}}).raise_for_status()
        return run

    return submit_as
