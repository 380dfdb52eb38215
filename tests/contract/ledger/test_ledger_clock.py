"""Contract of the ledger's clock: a jump ends no session, and steady time counts in full."""

import pytest
from two_teams import LAB, ask, gpus, record, tree

from federation.manual_mesh import ManualMesh


@pytest.fixture
def careful(careful_store):
    careful_store.ledger.configure(tree())
    return careful_store


def test_a_clock_that_leaps_ahead_ends_no_session(careful):
    west = ManualMesh(careful.ledger, record())
    ask(west, 2)
    for _ in range(2):
        careful.advance(3_600_000)
        assert careful.ledger.sweep().meshes == ()
    west.heartbeat()
    assert gpus(careful.ledger, LAB) == 2


def test_second_clock_jump_within_one_ttl_is_ignored(careful):
    west = ManualMesh(careful.ledger, record())
    for _ in range(1_000):
        careful.advance(3_000)
        careful.ledger.sweep()
    west.heartbeat()
    assert [view.alive for view in careful.ledger.snapshot().meshes] == [True]


def test_steady_time_counts_in_full(careful):
    ManualMesh(careful.ledger, record())
    for _ in range((careful.ttl_ms + careful.grace_ms) // 1_900):
        careful.advance(1_900)
        careful.ledger.sweep()
    careful.advance(1_900)
    careful.ledger.sweep()
    assert [view.alive for view in careful.ledger.snapshot().meshes] == [False]
