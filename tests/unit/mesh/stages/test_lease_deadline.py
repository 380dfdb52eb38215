"""Deadline until which the work on a node may continue."""

from mesh.stages.lease_deadline import DeadlineState, LeaseDeadline, Renewal


def renewal(incarnation: int = 1, clock_ms: int = 0, stop_after_ms: int = 22_000, kill_after_ms: int = 29_700) -> Renewal:
    return Renewal(incarnation=incarnation, clock_ms=clock_ms, stop_after_ms=stop_after_ms, kill_after_ms=kill_after_ms)


def test_nothing_may_run_before_the_first_proof():
    assert LeaseDeadline().verdict(0) is DeadlineState.KILL


def test_work_goes_on_then_is_asked_to_stop_then_is_killed():
    deadline = LeaseDeadline()
    assert deadline.accept(renewal(clock_ms=1_000), now_ms=1_500)
    verdicts = [deadline.verdict(at_ms) for at_ms in (22_999, 23_000, 30_699, 30_700)]
    assert verdicts == [DeadlineState.GO_ON, DeadlineState.STOP, DeadlineState.STOP, DeadlineState.KILL]


def test_a_proof_counts_from_its_stamp_however_late_it_comes():
    deadline = LeaseDeadline()
    deadline.accept(renewal(clock_ms=0), now_ms=60_000)
    assert deadline.verdict(60_000) is DeadlineState.KILL


def test_an_older_proof_that_comes_later_takes_nothing_away():
    deadline = LeaseDeadline()
    deadline.accept(renewal(clock_ms=3_000), now_ms=3_000)
    assert deadline.accept(renewal(clock_ms=0), now_ms=4_000)
    assert deadline.verdict(24_000) is DeadlineState.GO_ON


def test_the_proof_of_an_earlier_session_is_refused():
    deadline = LeaseDeadline()
    deadline.accept(renewal(incarnation=2), now_ms=0)
    assert not deadline.accept(renewal(incarnation=1, clock_ms=5_000), now_ms=5_000)
    assert deadline.verdict(22_000) is DeadlineState.STOP


def test_a_new_session_starts_from_its_own_renewal():
    deadline = LeaseDeadline()
    deadline.accept(renewal(incarnation=1, clock_ms=10_000), now_ms=10_000)
    assert deadline.accept(renewal(incarnation=2, clock_ms=10_000, stop_after_ms=1_000, kill_after_ms=2_000), now_ms=10_000)
    assert deadline.verdict(11_000) is DeadlineState.STOP


def test_a_stamp_from_the_future_is_refused():
    deadline = LeaseDeadline()
    assert not deadline.accept(renewal(clock_ms=1), now_ms=0)
    assert deadline.verdict(0) is DeadlineState.KILL


def test_killing_never_comes_before_stopping():
    deadline = LeaseDeadline()
    deadline.accept(renewal(stop_after_ms=5_000, kill_after_ms=1_000), now_ms=0)
    assert deadline.verdict(4_999) is DeadlineState.GO_ON
    assert deadline.verdict(5_000) is DeadlineState.KILL


def test_a_renewal_covers_its_session_and_recovered_ones():
    assert [renewal(incarnation=5).covers(session) for session in (0, 4, 5)] == [False, False, True]
    recovered = Renewal(incarnation=9, clock_ms=0, stop_after_ms=1, kill_after_ms=1, since=5)
    assert [recovered.covers(session) for session in (4, 5, 7, 9)] == [False, True, True, True]
