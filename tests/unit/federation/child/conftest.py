"""Fixtures of child meshes that have begun."""

from __future__ import annotations

import pytest
from child_bed import Federation


@pytest.fixture
def joined():
    federation = Federation()
    federation.heartbeat()
    return federation


@pytest.fixture
def busy():
    """A federation whose stage `s` runs."""
    federation = Federation()
    federation.submit("s", "a:", "b: a")
    federation.heartbeat()
    federation.kinds()
    return federation
