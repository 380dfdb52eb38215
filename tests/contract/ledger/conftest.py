"""Fixtures of the ledger's contract: the ledger of every store, with the tree of two teams in force, and two meshes."""

import pytest
from two_teams import record, tree

from federation.manual_mesh import ManualMesh


@pytest.fixture
def ledger(store):
    """Of the store; its tree is `two_teams.tree()`."""
    store.ledger.configure(tree())
    return store.ledger


@pytest.fixture
def west(ledger) -> ManualMesh:
    """A mesh that has joined."""
    return ManualMesh(ledger, record("west"))


@pytest.fixture
def east(ledger) -> ManualMesh:
    """Another one."""
    return ManualMesh(ledger, record("east"))
