"""What holds for all tests of this folder."""

import pytest

from federation.store.testing import ANSWER_MS_MAX
from serve_apps.processes import stores


@pytest.fixture(autouse=True)
def _stores_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real server may take as long as a busy machine lets it wait."""
    monkeypatch.setattr(stores, "ANSWER_MS_MAX", ANSWER_MS_MAX)
