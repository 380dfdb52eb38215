"""Retention of sent reports: their age, their size and their claims."""

from __future__ import annotations

from federation.child.running_stage import RunningStage, StageNote
from federation.child.sent_reports import KEPT_BYTES_MAX, KEPT_MS, SentReport, SentReports
from federation.dispatch import Claim
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.values import Encoding, StoredValue
from mesh.stages.messages import NodeCheckpoint, NodeStarted, StageEnded, StageLost

CPU = ResourceSet.of({"cpu": 1})
NOTE = StageNote(claim=7, pool="general", flavor="standard", slots=1, token=3, tenant="lab", slot=CPU)


def claim(stage="s", token=7):
    return Claim(stage=stage, mesh="east", incarnation=1, token=token)


def sent(of, number=1, *, messages=(), blobs=None, now_ms=0):
    stage = RunningStage(claim=of, run="r", note=NOTE)
    return SentReport.of(stage, number=number, taken=number, messages=messages, blobs=blobs or {}, now_ms=now_ms)


def kept_of(*batches):
    kept = SentReports()
    for batch in batches:
        kept.keep(batch)
    return kept


def numbers(kept):
    return [batch.number for batch in kept]


def test_reports_are_returned_as_sent():
    messages = (NodeStarted(stage="s", node="a", attempt=1, started_ms=5), StageEnded(stage="s"))
    assert sent(claim(), messages=messages).messages == messages


def test_batch_knows_whether_another_follows():
    lost = StageLost(stage="s", mesh="east", incarnation=1, reason=Reason.WORKER_LOST)
    started = NodeStarted(stage="s", node="a", attempt=1, started_ms=5)
    assert [sent(claim(), messages=(message,)).closes for message in (StageEnded(stage="s"), lost, started)] == [True, True, False]


def test_reports_expire_at_their_age():
    kept = kept_of(sent(claim(), 1), sent(claim(), 2, now_ms=1))
    kept.drop_old(KEPT_MS)
    assert (numbers(kept), [batch.number for batch in kept.of(claim())]) == ([2], [2])


def test_oldest_reports_are_dropped_at_the_limit():
    half = {"sha": bytes(KEPT_BYTES_MAX // 2 - 100)}
    kept = kept_of(*(sent(claim(f"s{number}"), number, blobs=half) for number in range(5)))
    assert numbers(kept) == [3, 4]
    assert kept.of(claim("s0")) == ()


def test_report_above_the_limit_is_not_kept():
    kept = kept_of(sent(claim(), 1, blobs={"sha": bytes(KEPT_BYTES_MAX + 1)}))
    assert numbers(kept) == []
    kept.keep(sent(claim(), 2))
    assert numbers(kept) == [2]


def test_reports_of_a_lost_claim_are_dropped():
    kept = kept_of(sent(claim("s"), 1), sent(claim("t"), 2), sent(claim("s"), 3))
    kept.drop(claim("s", token=8))
    assert numbers(kept) == [1, 2, 3]
    kept.drop(claim("s"))
    assert (numbers(kept), kept.of(claim("s"))) == ([2], ())


def test_new_claim_drops_reports_of_the_earlier_one():
    kept = kept_of(sent(claim(token=7), 1), sent(claim("t"), 2), sent(claim(token=9), 3))
    assert (numbers(kept), kept.of(claim(token=7))) == ([2, 3], ())


def checkpoint(node, number):
    stored = StoredValue(sha256=f"{node}{number}", size_bytes=1, encoding=Encoding.PICKLE)
    return (NodeCheckpoint(stage="s", node=node, attempt=1, number=number, stored=stored),)


def test_only_the_newest_checkpoint_of_a_node_keeps_its_bytes():
    quarter = bytes(KEPT_BYTES_MAX // 4)
    nodes = ["a", "a", "b", "a", "a"]
    kept = kept_of(
        *(sent(claim(), at, messages=checkpoint(node, at), blobs={f"{node}{at}": quarter}) for at, node in enumerate(nodes, start=1))
    )
    assert numbers(kept) == [1, 2, 3, 4, 5]
    assert [list(batch.blobs) for batch in kept] == [[], [], ["b3"], [], ["a5"]]


def test_room_comes_free_with_what_goes():
    half = {"sha": bytes(KEPT_BYTES_MAX // 2 - 100)}
    kept = kept_of(sent(claim("s"), 1, blobs=half), sent(claim("t"), 2, blobs=half))
    kept.drop(claim("s"))
    kept.keep(sent(claim("u"), 3, blobs=half))
    assert numbers(kept) == [2, 3]
    kept.clear()
    for number in (4, 5):
        kept.keep(sent(claim(f"v{number}"), number, blobs=half))
    assert numbers(kept) == [4, 5]
