"""Contract of sessions: heartbeats renew them, and sweeps end expired ones."""

from dataclasses import replace

import pytest
from two_teams import ACME, LAB, SHOP, ask, gpu, gpus, record

from federation.errors import ForeignLedger, SessionExpired, SessionLost, SessionUnknown, StaleHeartbeat
from federation.leases import HeartbeatReport, Session
from federation.manual_mesh import ManualMesh
from mesh.core.ids import MeshId


def test_session_reports_its_time_to_live(west, store):
    assert west.session.ttl_ms == store.ttl_ms


def test_a_session_never_known_is_unknown(ledger, west):
    stranger = replace(west.session, mesh=MeshId("nowhere"))
    with pytest.raises(SessionUnknown):
        ledger.heartbeat(stranger, record("nowhere"), HeartbeatReport(number=1))
    ledger.leave(stranger)


def test_session_is_bound_to_the_ledger_that_it_joined(ledger, west):
    with pytest.raises(ForeignLedger):
        ledger.heartbeat(replace(west.session, ledger="another"), record(), HeartbeatReport(number=1))


def test_a_session_that_has_run_out_may_not_acquire(ledger, west, store):
    store.advance(store.ttl_ms + 1)
    with pytest.raises(SessionExpired):
        ask(west)
    assert [view.alive for view in ledger.snapshot().meshes] == [False]


def test_late_heartbeat_before_the_sweep_revives_the_session(ledger, west, store):
    ask(west, 2)
    store.advance(store.ttl_ms + 1)
    assert ledger.sweep().meshes == ()
    west.heartbeat()
    assert ask(west).slots == 1
    assert gpus(ledger, LAB) == 3


def test_a_sweep_spares_sessions_within_the_grace(ledger, west, store):
    ask(west)
    store.advance(store.ttl_ms + store.grace_ms - 60_000)
    swept = ledger.sweep()
    assert (swept.meshes, swept.leases) == ((), 0)
    assert gpus(ledger, LAB) == 1


@pytest.mark.every_form
def test_sweep_revokes_only_overdue_sessions(ledger, west, store):
    ask(west, 2)
    ask(west, 1, SHOP)
    store.advance(store.ttl_ms)
    east = ManualMesh(ledger, record("east"))
    ask(east, 2)
    store.advance(store.grace_ms + 1)
    swept = ledger.sweep()
    assert (swept.meshes, swept.leases, swept.is_more_due) == (("west",), 2, False)
    assert (gpus(ledger, LAB), gpus(ledger, SHOP), gpus(ledger, ACME)) == (2, 0, 2)
    with pytest.raises(SessionLost):
        west.heartbeat()
    assert ledger.sweep().meshes == ()


def test_sweep_stops_at_its_budget_and_reports_more_due(ledger, store):
    for name in "abc":
        ask(ManualMesh(ledger, record(name)))
    store.advance(store.ttl_ms + store.grace_ms + 1)
    first = ledger.sweep(limit=1)
    assert (first.meshes, first.is_more_due) == (("a",), True)
    assert ledger.sweep(limit=5).meshes == ("b", "c")


def test_repeated_sweeps_end_every_overdue_session(ledger, store):
    for name in "abcd":
        ManualMesh(ledger, record(name))
    store.advance(store.ttl_ms + store.grace_ms + 1)
    ended = []
    while (swept := ledger.sweep(limit=1)).is_more_due:
        ended += swept.meshes
    assert [*ended, *swept.meshes] == [*"abcd"]


def test_a_swept_mesh_stays_visible_and_may_join_again(ledger, west, store):
    store.advance(store.ttl_ms + store.grace_ms + 1)
    ledger.sweep()
    assert [(view.record.mesh, view.alive) for view in ledger.snapshot().meshes] == [("west", False)]
    ManualMesh(ledger, record())
    assert [view.alive for view in ledger.snapshot().meshes] == [True]


def test_mesh_absent_for_a_day_is_forgotten(ledger, west, store):
    ask(west, 2)
    ManualMesh(ledger, record("east"))
    for days in range(100):
        store.advance(900_001)
        ledger.sweep()
        if days == 50:
            ManualMesh(ledger, record("east"))
    assert [view.record.mesh for view in ledger.snapshot().meshes] == ["east"]
    with pytest.raises(SessionUnknown):
        west.heartbeat()
    store.restart()
    west.claim_all()  # The recovering ledger accepts unknown sessions; it has itself seen these leases revoked.
    assert gpus(ledger, ACME) == 0


def test_a_session_never_given_out_by_anybody_is_of_no_use(ledger):
    made_up = Session(mesh=MeshId("west"), incarnation=7, ttl_ms=1)
    with pytest.raises(ForeignLedger):
        ledger.heartbeat(made_up, record(), HeartbeatReport(number=1))


def test_a_heartbeat_that_a_later_one_has_overtaken_is_stale(ledger, west, store):
    late = replace(west.session)
    west.heartbeat()
    west.heartbeat()
    store.advance(store.ttl_ms - 1)
    with pytest.raises(StaleHeartbeat):
        ledger.heartbeat(late, record(), HeartbeatReport(number=1))
    store.advance(2)
    assert [view.alive for view in ledger.snapshot().meshes] == [False]


def test_repeated_heartbeat_is_answered_and_renews_nothing(ledger, west, store):
    west.heartbeat()
    store.advance(store.ttl_ms - 1)
    ledger.heartbeat(west.session, record(), HeartbeatReport(number=1))
    store.advance(2)
    assert [view.alive for view in ledger.snapshot().meshes] == [False]


def test_heartbeat_repeats_each_change_until_acknowledged(ledger, west):
    ask(west, 3)
    ask(west, 1, SHOP)
    ledger.revoke(tenant=LAB)
    unseen = west.session
    for _ in range(2):
        west.number += 1
        response = ledger.heartbeat(unseen, record(), HeartbeatReport(number=west.number))
        assert [(lease.tenant, lease.target) for lease in response.leases] == [(LAB, gpu(0))]
    assert west.heartbeat().leases != ()
    assert west.heartbeat().leases == ()
