"""Fixtures of the ledger's contract: the ledger of every store, with the tree of two teams in force, and two meshes."""

import pytest
from two_teams import record, tree

from federation.testing import HandMesh


@pytest.fixture
def ledger(store):
    """Of the store; its tree is `two_teams.tree()`."""
    store.ledger.configure(tree())
    return store.ledger


@pytest.fixture
def west(ledger) -> HandMesh:
    """A mesh that has joined."""
    return HandMesh(ledger, record("west"))


@pytest.fixture
def east(ledger) -> HandMesh:
    """Another one."""
    return HandMesh(ledger, record("east"))
