"""What was told and is kept for a while: for how long, how much of it, and of which claims."""

from __future__ import annotations

from federation.child.running_stage import RunningStage, StageNote
from federation.child.sent_reports import KEPT_BYTES_MAX, KEPT_MS, SentReport, SentReports
from federation.dispatch import Claim
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.stages.messages import NodeStarted, StageEnded, StageLost

CPU = ResourceSet.of({"cpu": 1})
NOTE = StageNote(claim=7, pool="general", flavor="standard", slots=1, token=3, tenant="lab", slot=CPU)


def claim(stage="s", token=7):
    return Claim(stage=stage, mesh="east", incarnation=1, token=token)


def response(of, number=1, *, messages=(), blobs=None, now_ms=0):
    stage = RunningStage(claim=of, run="r", note=NOTE)
    return SentReport.of(stage, number=number, taken=number, messages=messages, blobs=blobs or {}, now_ms=now_ms)


def kept_of(*batches):
    kept = SentReports()
    for batch in batches:
        kept.keep(batch)
    return kept


def numbers(kept):
    return [batch.number for batch in kept]


def test_words_come_back_as_they_were_told():
    messages = (NodeStarted(stage="s", node="a", attempt=1, started_ms=5), StageEnded(stage="s"))
    assert response(claim(), messages=messages).messages == messages


def test_a_batch_tells_whether_anything_comes_after_it():
    lost = StageLost(stage="s", mesh="east", incarnation=1, reason=Reason.WORKER_LOST)
    started = NodeStarted(stage="s", node="a", attempt=1, started_ms=5)
    assert [response(claim(), messages=(message,)).closes for message in (StageEnded(stage="s"), lost, started)] == [True, True, False]


def test_what_is_old_goes_and_what_is_a_moment_younger_stays():
    kept = kept_of(response(claim(), 1), response(claim(), 2, now_ms=1))
    kept.drop_old(KEPT_MS)
    assert (numbers(kept), [batch.number for batch in kept.of(claim())]) == ([2], [2])


def test_where_there_is_too_much_the_oldest_go():
    half = {"sha": bytes(KEPT_BYTES_MAX // 2 - 100)}
    kept = kept_of(*(response(claim(f"s{number}"), number, blobs=half) for number in range(5)))
    assert numbers(kept) == [3, 4]
    assert kept.of(claim("s0")) == ()


def test_of_what_is_larger_than_all_that_may_be_kept_nothing_is():
    kept = kept_of(response(claim(), 1, blobs={"sha": bytes(KEPT_BYTES_MAX + 1)}))
    assert numbers(kept) == []
    kept.keep(response(claim(), 2))
    assert numbers(kept) == [2]


def test_of_a_claim_that_is_not_ours_any_more_nothing_is_kept_and_of_others_all():
    kept = kept_of(response(claim("s"), 1), response(claim("t"), 2), response(claim("s"), 3))
    kept.drop(claim("s", token=8))
    assert numbers(kept) == [1, 2, 3]
    kept.drop(claim("s"))
    assert (numbers(kept), kept.of(claim("s"))) == ([2], ())


def test_a_stage_that_is_claimed_anew_tells_nothing_more_of_its_earlier_claim():
    kept = kept_of(response(claim(token=7), 1), response(claim("t"), 2), response(claim(token=9), 3))
    assert (numbers(kept), kept.of(claim(token=7))) == ([2, 3], ())


def test_room_comes_free_with_what_goes():
    half = {"sha": bytes(KEPT_BYTES_MAX // 2 - 100)}
    kept = kept_of(response(claim("s"), 1, blobs=half), response(claim("t"), 2, blobs=half))
    kept.drop(claim("s"))
    kept.keep(response(claim("u"), 3, blobs=half))
    assert numbers(kept) == [2, 3]
    kept.clear()
    for number in (4, 5):
        kept.keep(response(claim(f"v{number}"), number, blobs=half))
    assert numbers(kept) == [4, 5]
