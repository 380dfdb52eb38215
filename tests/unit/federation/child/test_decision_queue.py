"""Execution of admission decisions, and precedence of heartbeats."""

from __future__ import annotations

from itertools import pairwise

from child_bed import CPU, Federation, pool, slow

from federation.dispatch import EXPLAINED_MAX
from federation.errors import SessionLost
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet


def test_unanswered_explanation_delays_no_other_and_is_repeated():
    federation = Federation()
    federation.flaky.down = {"explain"}
    federation.submit("huge", slot=ResourceSet.of({"cpu": 9}))
    federation.submit("s")
    federation.heartbeat()
    assert federation.running() == {"s"}
    federation.flaky.down = set()
    federation.heartbeat()
    assert ("huge", "stage_waiting") in federation.kinds()


def test_stage_is_explained_once_for_each_reason():
    federation = Federation(pool("general", 8), quota=6)
    words = slow(federation, "explain", 0)
    two = ResourceSet.of({"cpu": 2})
    for number in range(20):
        federation.submit(f"s{number}", slot=two if number % 3 else CPU)
    for _ in range(12):
        federation.heartbeat()
        federation.work()
        federation.notifications()
    reasons = [(stage, reason) for _, stages, reason, _ in words for stage in stages]
    assert len({stage for stage, _ in reasons}) > 10
    assert all(
        later[1] is not earlier[1] for stage, _ in reasons for earlier, later in pairwise([each for each in reasons if each[0] == stage])
    )


def test_a_stage_that_comes_back_to_the_queue_is_explained_anew():
    federation = Federation(quota=1)
    federation.submit("s")
    federation.submit("t")
    federation.heartbeat()
    words = slow(federation, "explain", 0)
    federation.flaky.down = {"claim"}
    federation.work()  # It is the turn of `t`, and its claim is not answered.
    federation.submit("urgent", priority=9)
    federation.flaky.down = set()
    federation.heartbeat()
    assert federation.running() == {"urgent"}
    assert [(stages, reason) for _, stages, reason, _ in words] == [(("t",), Reason.QUOTA_EXHAUSTED)]


def test_reason_lost_by_the_store_is_resent():
    federation = Federation(quota=1)
    federation.submit("s")
    federation.heartbeat()
    federation.submit("t")
    federation.submit("huge", slot=ResourceSet.of({"cpu": 9}))
    before = federation.store.copied()
    federation.heartbeat()
    reasons = {stage.stage: stage.reason for stage in federation.store.waiting("east")}
    assert reasons == {"t": Reason.QUOTA_EXHAUSTED, "huge": Reason.POOL_TOO_SMALL}
    federation.store.lose_writes(before)
    assert {stage.reason for stage in federation.store.waiting("east")} == {Reason.WAITING_IN_QUEUE}
    federation.heartbeat(8)  # At first the ledger recovers, and grants nothing.
    assert {stage.stage: stage.reason for stage in federation.store.waiting("east")} == reasons


def test_heartbeat_interrupts_a_long_round():
    federation = Federation(quota=1)
    federation.submit("s")
    federation.heartbeat()
    questions = slow(federation, "acquire", 50)
    for number in range(60):  # Sixty shapes: each needs its own request.
        federation.submit(f"t{number}", slot=ResourceSet({"cpu": 1_000 + number}))
    federation.heartbeat()
    assert 0 < len(questions) < 30
    assert federation.child.due_in_ms() == 0
    federation.heartbeat(6)
    assert "t59" in {stage.stage for stage in federation.store.waiting("east") if stage.reason is not None}
    assert federation.running() == {"s"}


def test_heartbeat_goes_before_explanations():
    federation = Federation(quota=1)
    federation.submit("s")
    federation.heartbeat()
    words = slow(federation, "explain", 50)
    for number in range(60):  # Sixty shapes, each with its own reason.
        federation.submit(f"t{number}", slot=ResourceSet({"cpu": 50_000 + number}))
    federation.heartbeat()
    assert 0 < len(words) < 30
    federation.heartbeat(6)
    assert len(words) == 60


def test_equal_explanations_are_batched_up_to_a_limit():
    federation = Federation(quota=1)
    federation.submit("s")
    federation.heartbeat()
    words = slow(federation, "explain", 0)
    for number in range(EXPLAINED_MAX + 7):
        federation.submit(f"t{number}")
    federation.heartbeat()
    assert [len(stages) for _, stages, _, _ in words] == [EXPLAINED_MAX, 7]


def test_decisions_of_a_lost_session_are_void(joined):
    def lose(*_args, **_named):
        raise SessionLost("swept")

    joined.submit("s")
    joined.submit("t")
    joined.store.report = lose  # The first start is reported, and the answer is that the session is gone.
    before = joined.view().incarnation
    joined.notifications()
    assert joined.running() == set()
    joined.heartbeat()
    assert joined.view().incarnation > before
