from __future__ import annotations

import pytest

from federation.errors import BatchTooLarge, EpochChanged, LeaseLost, LedgerLearning, SessionLost, StoreUnavailable, TooManyClaims
from federation.guard import Guard
from federation.leases import Session
from federation.tenure import Tenure


class Watched:
    """A guard, and what it has done."""

    def __init__(self):
        self.tenure = Tenure(session=Session(mesh="east", incarnation=1, ttl_ms=30_000), due_ms=700)
        self.why = []
        self.guard = Guard(mesh="east", tenure=self.tenure, lose=self.why.append)

    def meets(self, error):
        def work():
            raise error

        self.guard(work)
        return self.why, self.tenure.due_ms


@pytest.fixture
def watched():
    return Watched()


@pytest.mark.parametrize("error", [StoreUnavailable("gone"), LedgerLearning("it learns"), LeaseLost("revoked"), TooManyClaims("end some")])
def test_what_is_not_answered_now_changes_nothing(watched, error):
    assert watched.meets(error) == ([], 700)


def test_another_epoch_makes_a_heartbeat_due_at_once(watched):
    assert watched.meets(EpochChanged("it restarted", epoch=2, learn_ms=9)) == ([], 0)


def test_a_session_that_is_lost_is_lost_for_the_reason_that_was_told_and_the_mesh_joins_at_once(watched):
    assert watched.meets(SessionLost("swept")) == (["swept"], 0)


def test_without_a_session_nobody_is_asked(watched):
    watched.tenure.end()
    assert watched.meets(SessionLost("never asked")) == ([], 700)


def test_what_is_refused_for_good_is_for_the_caller_to_deal_with(watched):
    with pytest.raises(BatchTooLarge):
        watched.meets(BatchTooLarge("1001 rows in one call"))
