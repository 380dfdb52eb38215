"""Child meshes that have begun."""

from __future__ import annotations

import pytest
from child_bed import Federation


@pytest.fixture
def joined():
    federation = Federation()
    federation.beat()
    return federation


@pytest.fixture
def busy():
    """Stage `s` runs."""
    federation = Federation()
    federation.submit("s", "a:", "b: a")
    federation.beat()
    federation.words()
    return federation
