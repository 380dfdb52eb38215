"""Fixtures of explanations: a ledger in memory without meshes."""

import pytest
from outlook_bed import TREE

from federation.store.memory.store import MemoryStore
from mesh.core.clock import ManualClock


@pytest.fixture
def store():
    store = MemoryStore(clock=ManualClock(1_700_000_000_000), ttl_ms=30_000, grace_ms=10_000)
    store.configure(TREE)
    return store
