"""Contract of joining again: the earlier session is fenced or resumed."""

from dataclasses import replace

import pytest
from two_teams import A100, LAB, SHOP, ask, gpu, gpus, record, target_update

from federation.dispatch import Notification, NotificationKind
from federation.errors import LedgerRecovering, SessionExpired, SessionSuperseded, SessionUnknown
from federation.leases import Granted
from federation.manual_mesh import ManualMesh
from mesh.core.ids import MeshId, PoolName
from mesh.core.reasons import Reason
from mesh.preemption.stage_preemption import PreemptionLimits
from mesh.stages.stage_settings import DEFAULT_SETTINGS, NodeWeights, QueueRules, StageSettings


def test_second_join_fences_the_first_session_until_it_expires(store, ledger, west):
    ask(west, 3)
    again = ManualMesh(ledger, record("west"))
    assert again.session.incarnation > west.session.incarnation
    for late in (west.heartbeat, lambda: ask(west), lambda: west.release(LAB, A100)):
        with pytest.raises(SessionSuperseded):
            late()
    west.leave()
    assert [view.incarnation for view in ledger.snapshot().meshes] == [again.session.incarnation]
    assert (gpus(ledger, LAB), again.leases) == (3, {})
    assert [lease.incarnation for lease in ledger.snapshot().leases] == [west.session.incarnation]
    ask(again)
    store.advance(store.ttl_ms)
    again.heartbeat()
    store.advance(store.grace_ms + 1)
    assert ledger.sweep().leases == 1
    assert gpus(ledger, LAB) == 1


def test_record_keeps_the_settings_that_the_mesh_follows(ledger, west):
    def reported():
        return {view.record.mesh: view.record.settings for view in ledger.snapshot().meshes}

    assert reported() == {"west": DEFAULT_SETTINGS}
    limits = PreemptionLimits(threshold=-1_500_000, lost_work_per_s=1_000, per_minute_max=3, protected_pools=(PoolName("p"),))
    settings = StageSettings(
        weights=NodeWeights(contention=7), preemption=limits, queues={LAB: QueueRules(priority=-2, aging_per_s=10_000)}
    )
    west.record = replace(west.record, settings=settings)
    west.heartbeat()
    assert reported() == {"west": settings}
    ManualMesh(ledger, replace(record("east"), settings=settings))
    assert reported() == {"east": settings, "west": settings}


def test_targets_of_the_earlier_session_are_freed(ledger, west, east, store):
    ask(west, 1)
    target_update(ledger, ("west", LAB, 8))
    assert ask(east, 1, SHOP).reason is Reason.QUOTA_EXHAUSTED
    cursor, _ = store.queue.notifications(MeshId("east"), "", 0)
    ManualMesh(ledger, record("west"))
    assert store.queue.notifications(MeshId("east"), cursor, 0)[1] == (Notification(kind=NotificationKind.STAGE, subject=""),)
    assert ask(east, 8, SHOP) == Granted(slots=7)
    assert [(view.amounts, view.target) for view in ledger.snapshot().leases if view.incarnation] == [(gpu(1), gpu(1))]
    assert ledger.audit() == ()


@pytest.mark.every_form
def test_new_agent_takes_over_the_leases_of_a_named_session(ledger, west):
    ask(west, 3)
    successor = ManualMesh(ledger, record("west"), adopt=west.session.incarnation)
    assert successor.lease(LAB, A100) == west.lease(LAB, A100)
    assert gpus(ledger, LAB) == 3
    successor.release(LAB, A100, gpu(1))
    assert gpus(ledger, LAB) == 1


def test_resumed_session_is_fenced(ledger, west):
    ManualMesh(ledger, record("west"), adopt=west.session.incarnation)
    for late in (west.heartbeat, lambda: ask(west), lambda: west.release(LAB, A100)):
        with pytest.raises(SessionSuperseded):
            late()


def test_unknown_superseded_or_expired_session_is_not_resumed(store, ledger, west):
    ask(west, 3)
    with pytest.raises(SessionUnknown):
        ledger.join(record("nowhere"), adopt=west.session.incarnation)
    with pytest.raises(SessionSuperseded):
        ledger.join(record("west"), adopt=west.session.incarnation - 1)
    store.advance(store.ttl_ms)
    with pytest.raises(SessionExpired):
        ledger.join(record("west"), adopt=west.session.incarnation)
    assert [view.incarnation for view in ledger.snapshot().meshes] == [west.session.incarnation]
    assert gpus(ledger, LAB) == 3


def test_resume_whose_answer_was_lost_may_be_repeated(ledger, west):
    ask(west, 2)
    first = ManualMesh(ledger, record("west"), adopt=west.session.incarnation)
    second = ManualMesh(ledger, record("west"), adopt=west.session.incarnation)
    assert second.session.incarnation > first.session.incarnation
    assert second.lease(LAB, A100).held == gpu(2)
    with pytest.raises(SessionSuperseded):
        first.heartbeat()
    second.heartbeat()
    with pytest.raises(SessionSuperseded):
        ledger.join(record("west"), adopt=west.session.incarnation)


def test_later_join_prevents_resuming_the_earlier_session(ledger, west):
    ManualMesh(ledger, record("west"), adopt=west.session.incarnation)
    ManualMesh(ledger, record("west"))
    with pytest.raises(SessionSuperseded):
        ledger.join(record("west"), adopt=west.session.incarnation)


def test_no_session_is_resumed_while_the_ledger_recovers(ledger, west, store):
    ask(west, 2)
    store.restart()
    with pytest.raises(LedgerRecovering):
        ledger.join(record("west"), adopt=west.session.incarnation)
    assert west.claim_all().recovery_ms > 0
