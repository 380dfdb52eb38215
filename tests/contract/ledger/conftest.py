"""Fixtures of the ledger's contract: the ledger of every store, with the tree of two teams in force, and two meshes."""

import pytest
from two_teams import record, tree

from federation.manual_mesh import ManualMesh


@pytest.fixture
def ledger(store):
    """The store's ledger with the tree `two_teams.tree()`."""
    store.ledger.configure(tree())
    return store.ledger


@pytest.fixture
def west(ledger) -> ManualMesh:
    """A joined mesh."""
    return ManualMesh(ledger, record("west"))


@pytest.fixture
def east(ledger) -> ManualMesh:
    """Another joined mesh."""
    return ManualMesh(ledger, record("east"))
