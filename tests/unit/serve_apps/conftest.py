"""Fixtures for all tests of this folder."""

from collections.abc import Iterator

import pytest
import redis

from federation.store.redis.fixtures import ANSWER_MS_MAX
from serve_apps.processes import stores


@pytest.fixture(autouse=True)
def _stores_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let real servers take as long as a busy machine needs."""
    monkeypatch.setattr(stores, "ANSWER_MS_MAX", ANSWER_MS_MAX)


@pytest.fixture(autouse=True)
def _stores_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the stores that a process keeps to its end, before a later test gets the warning."""
    connect, opened = stores.connect, list[redis.Redis]()

    def noted(url: str, *, timeout_ms: int) -> redis.Redis:
        opened.append(connect(url, timeout_ms=timeout_ms))
        return opened[-1]

    monkeypatch.setattr(stores, "connect", noted)
    yield
    for client in opened:
        client.close()
