"""Contract of a ledger's recovery: it learns from meshes what they hold before it grants anything."""

from dataclasses import replace

import pytest
from two_teams import A100, ACME, LAB, SHOP, ask, gpu, gpus, record, target_update

from federation.errors import EpochChanged, ForgedReceipt, HoldingsRequired, LedgerRecovering
from federation.leases import HeartbeatReport, Lease, TargetUpdate
from federation.manual_mesh import ManualMesh
from mesh.core.ids import MeshId
from mesh.core.reasons import Reason


def learning(store, ledger, *meshes):
    """Restart the server and let every mesh report its leases."""
    store.restart()
    for mesh in meshes:
        mesh.claim_all()


def test_calls_of_an_earlier_epoch_fail_after_a_restart(ledger, west, store):
    ask(west, 2)
    store.restart()
    for late in (lambda: west.heartbeat(claims=()), lambda: ask(west), lambda: west.release(LAB, A100)):
        with pytest.raises(EpochChanged) as changed:
            late()
    assert changed.value.epoch > west.session.epoch
    assert 0 < changed.value.recovery_ms <= store.ttl_ms + store.grace_ms
    assert gpus(ledger, LAB) == 2


def test_recovering_ledger_grants_and_revokes_nothing(ledger, west, east, store):
    ask(west, 2)
    ask(east, 2)
    learning(store, ledger, west)
    assert ask(west).reason is Reason.LEDGER_RECOVERING
    with pytest.raises(LedgerRecovering):
        target_update(ledger, ("west", LAB, 3))
    store.advance(store.ttl_ms + store.grace_ms - 60_000)
    swept = ledger.sweep()
    assert (swept.meshes, swept.leases) == ((), 0)
    assert swept.recovery_ms > 0
    assert gpus(ledger, LAB) == 4
    store.advance(60_001)
    assert ledger.sweep().meshes == ("east", "west")


def test_work_continues_while_the_ledger_recovers(ledger, west, store):
    ask(west, 2)
    learning(store, ledger, west)
    assert west.response.recovery_ms > 0
    west.release(LAB, A100, gpu(1))
    assert gpus(ledger, LAB) == 1
    with pytest.raises(HoldingsRequired):
        west.heartbeat()
    west.number += 1
    for _ in range(4):
        store.advance(store.ttl_ms // 2)
        response = west.claim_all()
    assert (response.recovery_ms, gpus(ledger, LAB)) == (0, 1)
    assert ask(west).slots == 1


@pytest.mark.every_form
def test_a_lost_grant_comes_back_as_a_claim(ledger, west, east, store):
    ask(west)
    kept = store.keep()
    ask(west, 4)
    ask(east, 2, SHOP)
    store.lose(kept)
    assert gpus(ledger, ACME) == 1
    west.claim_all()
    east.claim_all()
    assert (gpus(ledger, LAB), gpus(ledger, SHOP), gpus(ledger, ACME)) == (5, 2, 7)
    assert ledger.audit() == ()


def test_lease_of_a_lost_plan_is_resent_to_an_obedient_mesh(ledger, west, store):
    ask(west, 3)
    kept = store.keep()
    planner = ledger.elect("p", store.ttl_ms)
    ledger.plan_apply(planner, ledger.snapshot().version, (TargetUpdate(mesh=MeshId("west"), tenant=LAB, flavor=A100, target=gpu(2)),))
    west.heartbeat()
    planned = west.lease(LAB, A100)
    assert (planned.held, planned.target) == (gpu(3), gpu(2))
    store.lose(kept)
    west.claim_all()
    lease = west.lease(LAB, A100)
    assert (lease.held, lease.target, lease.version > planned.version) == (gpu(3), gpu(3), True)


def test_a_lost_session_comes_back_with_its_claims(ledger, west, store):
    kept = store.keep()
    east = ManualMesh(ledger, record("east"))
    ask(east, 2)
    store.lose(kept)
    east.claim_all()
    assert gpus(ledger, LAB) == 2
    assert [view.incarnation for view in ledger.snapshot().meshes if view.record.mesh == "east"] == [east.session.incarnation]


def test_lost_release_is_corrected_when_the_mesh_reports(ledger, west, store):
    ask(west, 3)
    kept = store.keep()
    west.release(LAB, A100)
    store.lose(kept)
    assert gpus(ledger, LAB) == 3
    west.claim_all()
    assert gpus(ledger, LAB) == 0


def given_back(west) -> Lease:
    """Return a lease as it was before its release."""
    ask(west, 4)
    lease = west.lease(LAB, A100)
    west.release(LAB, A100)
    return lease


def claim(mesh, *leases) -> None:
    mesh.leases = {(lease.tenant, lease.flavor): lease for lease in leases}
    mesh.claim_all()


def test_old_receipt_restores_nothing_seen_released(ledger, west, east, store):
    old = given_back(west)
    ask(east, 8)
    store.restart()
    claim(west, old)
    claim(west, old)
    assert (gpus(ledger, ACME), ledger.audit()) == (8, ())


def test_old_receipt_restores_nothing_in_a_later_session(ledger, west, store):
    old = given_back(west)
    again = ManualMesh(ledger, record("west"))
    store.restart()
    claim(again, old)
    assert gpus(ledger, LAB) == 0
    again.leave()
    claim(again, old)
    claim(again, old)
    assert gpus(ledger, LAB) == 0


def test_old_receipt_restores_nothing_released_while_recovering(ledger, west, store):
    old = given_back(west)
    ask(west, tenant=SHOP)
    store.restart()
    claim(west, west.lease(SHOP, A100))
    west.release(SHOP, A100)
    claim(west, old)
    assert gpus(ledger, ACME) == 0


def test_lost_leases_return_despite_changes_while_recovering(ledger, west, store):
    ask(west, 1, SHOP)
    kept = store.keep()
    ask(west, 3)
    lost = west.lease(LAB, A100)
    store.lose(kept)
    ledger.revoke(tenant=SHOP)
    store.restart()
    claim(west, west.lease(SHOP, A100), lost)
    assert gpus(ledger, LAB) == 3


def test_leases_of_a_resumed_session_return_after_total_loss(ledger, west, store):
    kept = store.keep()
    east = ManualMesh(ledger, record("east"))
    ask(east, 2)
    successor = ManualMesh(ledger, record("east"), adopt=east.session.incarnation)
    store.lose(kept)
    successor.claim_all()
    successor.claim_all()
    assert gpus(ledger, LAB) == 2


def test_restored_leases_may_exceed_quota_and_block_growth(ledger, west, east, store):
    ask(west, 5)
    kept = store.keep()
    west.release(LAB, A100)
    ask(east, 6)
    store.lose(kept)
    east.claim_all()
    assert gpus(ledger, ACME) == 11
    store.advance(store.ttl_ms)
    east.claim_all()
    assert ask(east).reason is Reason.LEDGER_RECOVERING
    store.advance(store.grace_ms + 1)
    east.claim_all()
    ledger.sweep()
    assert (gpus(ledger, ACME), ask(east, 5).slots) == (6, 2)


def test_tokens_do_not_repeat_after_lost_writes(ledger, west, store):
    kept = store.keep()
    ask(west)
    lost = west.lease(LAB, A100).token
    store.lose(kept)
    west.leases.clear()
    west.claim_all()
    store.advance(store.ttl_ms)
    west.claim_all()
    store.advance(store.grace_ms + 1)
    west.claim_all()
    ask(west)
    assert west.lease(LAB, A100).token > lost


def test_unknown_token_proves_lost_writes(ledger, west, store):
    ahead = replace(west.session, mark=west.session.incarnation + 30_000_000)
    if store.believes_tokens:
        with pytest.raises(EpochChanged):
            ledger.heartbeat(ahead, record(), HeartbeatReport(number=1))
        assert ledger.snapshot().recovery_ms > 0
    else:
        ledger.heartbeat(ahead, record(), HeartbeatReport(number=1))
        ManualMesh(ledger, record(), seen=ahead.mark)
        assert ledger.snapshot().recovery_ms == 0


def test_a_clock_that_is_set_back_begins_an_epoch(ledger, west, store):
    ask(west, 2)
    store.advance(-60_000)
    with pytest.raises(EpochChanged):
        west.heartbeat()
    west.claim_all()
    assert ask(west).reason is Reason.LEDGER_RECOVERING


def test_a_claim_that_the_root_has_not_signed_is_refused(ledger, west, store):
    ask(west, 1)
    store.restart()
    west.claim_all()
    if west.lease(LAB, A100).receipt:
        larger = replace(west.lease(LAB, A100), held=gpu(8))
        with pytest.raises(ForgedReceipt):
            west.heartbeat(claims=(larger,))
    assert gpus(ledger, LAB) == 1
