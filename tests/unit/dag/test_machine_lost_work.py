"""Work that a preemption has lost, as the run machine records it for bills."""

import pytest
from machine_bed import NOW_MS, Driven

from mesh.core.reasons import Reason
from mesh.core.values import Encoding, StoredValue
from mesh.stages.messages import NodeCheckpoint

CPU_MS = 10_000
HOUR = 3_600_000


def running(*nodes, **fields):
    """Return a run whose first node has run since the millisecond 1."""
    run = Driven(*(nodes or ("a",)), **fields)
    run.place(**{"_".join(nodes or ("a",)): "east"})
    run.take(run.started("a"), run.begun("a"))
    return run


def lost(change) -> dict:
    return {each.stage: dict(each.resources) for each in change.lost}


@pytest.mark.parametrize("reason", [Reason.QUOTA_RECLAIMED, Reason.PREEMPTED_WITHIN_TENANT, Reason.MESH_LEFT])
def test_a_preempted_attempt_is_lost_since_its_start(reason):
    run = running()
    stage = run.stage("a").stage
    change = run.take(run.lost("a", reason), after_ms=HOUR)
    assert lost(change) == {stage: {"cpu": CPU_MS * (NOW_MS + HOUR - 1)}}
    assert [each.at_ms for each in change.lost] == [NOW_MS + HOUR]
    assert run.take().lost == ()


@pytest.mark.parametrize("reason", [Reason.LEASE_EXPIRED, Reason.WORKER_LOST])
def test_what_nobody_has_preempted_is_not_lost_work(reason):
    run = running()
    assert run.take(run.lost("a", reason), after_ms=HOUR).lost == ()


def test_a_checkpoint_saves_what_was_done_before():
    run = running()
    stage = run.stage("a").stage
    kept = StoredValue(sha256="a" * 64, size_bytes=1, encoding=Encoding.JSON)
    run.take(NodeCheckpoint(**run.attempt("a"), number=1, stored=kept), after_ms=HOUR)
    assert lost(run.take(run.lost("a", Reason.QUOTA_RECLAIMED), after_ms=HOUR + 5)) == {stage: {"cpu": CPU_MS * 5}}


def test_an_attempt_that_has_not_begun_loses_nothing():
    run = Driven("a", "b:a")
    run.place(a_b="east")
    run.take(run.started("a"), run.begun("a"))
    stage = run.stage("a").stage
    assert lost(run.take(run.lost("a", Reason.QUOTA_RECLAIMED), after_ms=5)) == {stage: {"cpu": CPU_MS * (NOW_MS + 5 - 1)}}
