"""What holds for all tests of this folder."""

from collections.abc import Iterator

import pytest
import redis

from federation.store.redis.fixtures import ANSWER_MS_MAX
from serve_apps.processes import stores


@pytest.fixture(autouse=True)
def _stores_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real server may take as long as a busy machine lets it wait."""
    monkeypatch.setattr(stores, "ANSWER_MS_MAX", ANSWER_MS_MAX)


@pytest.fixture(autouse=True)
def _stores_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process keeps its stores to its end; a connection that a test leaves open is found, as a warning, in whichever test comes later."""
    connect, opened = stores.connect, list[redis.Redis]()

    def noted(url: str, *, timeout_ms: int) -> redis.Redis:
        opened.append(connect(url, timeout_ms=timeout_ms))
        return opened[-1]

    monkeypatch.setattr(stores, "connect", noted)
    yield
    for client in opened:
        client.close()
