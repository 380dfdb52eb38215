"""Deadlines of acting on the ledger's last answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.child.deadlines import Deadlines, Permission


@pytest.mark.parametrize(
    ("since_ms", "permission"),
    [
        pytest.param(14_999, Permission.PROVED, id="before T1 all work continues"),
        pytest.param(15_000, Permission.NO_ADMISSION, id="from T1 on no work begins"),
        pytest.param(21_999, Permission.NO_ADMISSION, id="until T2 running work continues"),
        pytest.param(22_000, Permission.STOPPING, id="from T2 on running work is asked to stop"),
        pytest.param(29_700, Permission.OVER, id="at T3 no work may be left"),
    ],
)
def test_session_of_thirty_seconds_has_three_deadlines(since_ms: int, permission: Permission):
    assert Deadlines.of(30_000).permission(since_ms) is permission


@given(ttl_ms=st.integers(100, 10**7), since_ms=st.integers(0, 2 * 10**7))
def test_permission_ends_at_its_deadline_and_before_the_ttl(ttl_ms: int, since_ms: int):
    deadlines = Deadlines.of(ttl_ms)
    change_ms = deadlines.next_change_ms(since_ms)
    if change_ms is None:
        assert deadlines.permission(since_ms) is Permission.OVER
    else:
        assert deadlines.permission(since_ms + change_ms - 1) == deadlines.permission(since_ms) < deadlines.permission(since_ms + change_ms)
    assert deadlines.over_ms < ttl_ms
