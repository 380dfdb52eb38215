"""Contract of the snapshot's running stages: they are the claims that leases pay for."""

import pytest
from two_teams import A100, LAB, ONE_GPU, ask, gpu, record, target_update

from federation.dispatch import HeldClaim, digest_of
from federation.errors import TooManyClaims
from federation.manual_mesh import ManualMesh
from federation.snapshot import RunningView
from mesh.core.ids import MeshId, NodeId, RunId, StageId
from mesh.core.reasons import Reason
from mesh.core.resources import NOTHING
from mesh.core.values import Encoding, StoredValue
from mesh.stages.messages import NodeCheckpoint, NodeProgress, StageEnded, StageLost, StageResized
from mesh.stages.spec import StageSpec

RUN, ONE, TWO = RunId("r"), StageId("r.1"), StageId("r.2")


def spec(stage=ONE, **fields):
    known = {"run": RUN, "tenant": LAB, "tasks": (), "slot": ONE_GPU, "width": 9, **fields}
    return StageSpec(stage=stage, **known)


def run(store, mesh, stage=ONE, *, slots=1, **fields):
    """Submit a stage, pay for its slots, and claim it with them."""
    store.queue.submit(mesh.record.mesh, spec(stage, **fields))
    ask(mesh, slots)
    return store.queue.claim(mesh.session, stage, mesh.lease(LAB, A100), slots).claim


def running(store):
    """Return the running stages, each with its GPUs and whether it leaves."""
    return [(row.stage, row.amounts["gpu"] // 10_000, row.is_leaving) for row in store.ledger.snapshot().running]


@pytest.mark.every_form
def test_snapshot_has_a_claimed_stage_with_all_its_slots(store, west):
    before = store.ledger.snapshot().at_ms
    store.queue.submit(MeshId("west"), spec(priority=-3))
    store.advance(5_000)
    claim = run(store, west, slots=3)
    store.advance(7_000)
    snapshot = store.ledger.snapshot()
    (row,) = snapshot.running
    assert row == RunningView(
        stage=ONE,
        mesh=MeshId("west"),
        tenant=LAB,
        flavor=A100,
        amounts=gpu(3),
        priority=-3,
        token=claim.token,
        since_ms=row.since_ms,
        created_ms=row.created_ms,
        slots=3,
    )
    assert before <= row.created_ms
    assert row.created_ms + 5_000 <= row.since_ms <= snapshot.at_ms - 7_000


@pytest.mark.every_form
def test_snapshot_tells_when_a_stage_last_saved(store, west):
    claim = run(store, west)
    assert store.ledger.snapshot().running[0].saved_ms is None
    for batch in (1, 2):
        store.advance(5_000)
        store.queue.report(claim, batch, (checkpoint(batch),))
    store.queue.report(claim, 3, (NodeProgress(stage=ONE, node=NodeId("a"), attempt=1, progress=5_000),))
    snapshot = store.ledger.snapshot()
    (row,) = snapshot.running
    assert row.saved_ms is not None
    assert row.since_ms + 10_000 <= row.saved_ms <= snapshot.at_ms
    assert (row.amounts, row.token) == (gpu(1), claim.token)


def checkpoint(number):
    stored = StoredValue(sha256=f"{number:064}", size_bytes=1, encoding=Encoding.PICKLE)
    return NodeCheckpoint(stage=ONE, node=NodeId("a"), attempt=1, number=number, stored=stored)


@pytest.mark.every_form
def test_snapshot_has_the_slots_that_a_stage_last_reported(store, west):
    claim = run(store, west, slots=2)
    store.queue.report(claim, 1, (StageResized(stage=ONE, slots=5), StageResized(stage=ONE, slots=3)))
    before = store.ledger.snapshot().running[0]
    assert (before.amounts, before.slots, before.token, before.priority) == (gpu(3), 3, claim.token, 0)
    store.queue.report(claim, 2, (checkpoint(1), StageResized(stage=ONE, slots=1)))
    after = store.ledger.snapshot().running[0]
    assert (after.amounts, after.slots, after.priority) == (gpu(1), 1, 0)
    assert after.saved_ms is not None


@pytest.mark.every_form
def test_victims_of_a_shrinking_lease_give_slots_back(store, west):
    wide, single = run(store, west, slots=4), run(store, west, TWO)
    ask(west, 1)

    def marked():
        return {row.stage: (row.is_leaving, row.retiring) for row in store.ledger.snapshot().running}

    target_update(store.ledger, (west.record.mesh, LAB, 4), wait_ms=0, victims=(wide.token,))
    assert marked() == {ONE: (False, 1), TWO: (False, 0)}  # The idle unit of the lease goes first.
    store.queue.report(wide, 1, (StageResized(stage=ONE, slots=3),))
    assert marked() == {ONE: (False, 0), TWO: (False, 0)}
    target_update(store.ledger, (west.record.mesh, LAB, 1), wait_ms=0, victims=(wide.token, single.token))
    assert marked() == {ONE: (False, 2), TWO: (True, 0)}
    target_update(store.ledger, (west.record.mesh, LAB, 0), wait_ms=0, victims=(wide.token, single.token))
    assert marked() == {ONE: (True, 0), TWO: (True, 0)}


@pytest.mark.every_form
def test_victims_for_their_own_tenant_stop_whole(store, west):
    wide = run(store, west, slots=4)
    target_update(store.ledger, (west.record.mesh, LAB, 4), victims=(wide.token,))
    assert [(row.is_leaving, row.retiring) for row in store.ledger.snapshot().running] == [(True, 0)]


def test_a_shrunk_stage_leaves_its_lease_to_others(store, west):
    claim = run(store, west, slots=3)
    store.queue.report(claim, 1, (StageResized(stage=ONE, slots=1),))
    store.queue.submit(west.record.mesh, spec(TWO))
    assert store.queue.claim(west.session, TWO, west.lease(LAB, A100), 5) is not None  # With three slots it would be refused.


def test_snapshot_has_no_queued_or_unpaid_stage(store, west):
    store.queue.submit(MeshId("west"), spec(slot=NOTHING))
    store.queue.submit(MeshId("west"), spec(TWO))
    assert store.queue.claim(west.session, ONE, None, 2) is not None
    assert running(store) == []


def test_running_stages_are_sorted_by_mesh_and_claim(store, west, east):
    for mesh, stage in ((west, TWO), (east, StageId("r.3")), (west, ONE)):
        run(store, mesh, stage)
    assert running(store) == [("r.3", 1, False), (TWO, 1, False), (ONE, 1, False)]


@pytest.mark.every_form
def test_cancelled_stage_is_leaving_until_it_has_ended(store, west):
    claim = run(store, west)
    for _ in range(2):
        store.queue.cancel(ONE)
        assert running(store) == [(ONE, 1, True)]
    store.queue.report(claim, 1, (StageEnded(stage=ONE),))
    store.queue.cancel(ONE)
    assert running(store) == []


@pytest.mark.parametrize("way", ["ended", "lost", "overdue", "forgotten", "left", "expired", "superseded"])
def test_running_stage_goes_with_its_claim(store, west, way):
    claim = run(store, west, deadline_ms=100_000)
    assert running(store) == [(ONE, 1, False)]
    if way == "ended":
        store.queue.report(claim, 1, (StageEnded(stage=ONE),))
    elif way == "lost":
        lost = StageLost(stage=ONE, mesh=claim.mesh, incarnation=claim.incarnation, reason=Reason.WORKER_LOST)
        store.queue.report(claim, 1, (lost,))
    elif way == "overdue":
        store.advance(100_001)
        store.queue.take_back_overdue()
    elif way == "forgotten":
        store.queue.forget(RUN, ())
    elif way == "left":
        west.leave()
    elif way == "expired":
        store.advance(store.ttl_ms + store.grace_ms + 1)
        store.ledger.sweep()
    else:
        ManualMesh(store.ledger, record("west"))
    assert running(store) == []


def test_recovered_session_keeps_its_running_stages(store, west):
    run(store, west, slots=2)
    before = store.ledger.snapshot().running
    ManualMesh(store.ledger, record("west"), adopt=west.session.incarnation)
    assert store.ledger.snapshot().running == before


def test_running_stages_survive_a_restart_of_the_server(store, west):
    run(store, west, slots=2)
    store.restart()
    west.claim_all()
    assert running(store) == [(ONE, 2, False)]


def test_restored_claim_is_running_with_all_its_slots(store, west):
    store.queue.submit(MeshId("west"), spec())
    ask(west, 3)
    kept = store.keep()
    claim = store.queue.claim(west.session, ONE, west.lease(LAB, A100), 3).claim
    store.advance(1)
    store.lose(kept)
    west.claim_all()
    assert running(store) == []
    held = HeldClaim(claim=claim, spec=digest_of(spec()), lease=west.lease(LAB, A100), is_whole=True, slots=3)
    store.queue.resume(west.session, (held,))
    assert [(row.token, row.amounts) for row in store.ledger.snapshot().running] == [(claim.token, gpu(3))]


def test_repeated_claim_keeps_the_slots_of_the_first(store, west):
    run(store, west, slots=2)
    store.queue.claim(west.session, ONE, west.lease(LAB, A100), 1)
    assert running(store) == [(ONE, 2, False)]


@pytest.mark.every_form
def test_all_slots_count_against_twice_the_lease(store, west):
    ask(west, 2)
    for stage in (ONE, TWO):
        store.queue.submit(MeshId("west"), spec(stage))
    with pytest.raises(TooManyClaims):
        store.queue.claim(west.session, ONE, west.lease(LAB, A100), 5)
    first = store.queue.claim(west.session, ONE, west.lease(LAB, A100), 3).claim
    with pytest.raises(TooManyClaims):
        store.queue.claim(west.session, TWO, west.lease(LAB, A100), 2)
    store.queue.report(first, 1, (StageEnded(stage=ONE),))
    assert store.queue.claim(west.session, TWO, west.lease(LAB, A100), 2) is not None
    assert running(store) == [(TWO, 2, False)]


@pytest.mark.every_form
def test_running_stage_is_as_old_as_its_run(store, west):
    run(store, west, created_ms=77)
    assert [row.created_ms for row in store.ledger.snapshot().running] == [77]
