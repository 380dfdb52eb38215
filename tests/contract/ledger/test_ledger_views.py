"""Contract of the ledger's views: the snapshot, the history of a lease, the audit."""

from dataclasses import replace

import pytest
from two_teams import A100, LAB, SHOP, ask, gpu, record, tree

from federation.leases import Lease
from federation.manual_mesh import ManualMesh
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.ids import FlavorName, MeshId, TenantPath
from mesh.core.resources import ResourceSet


def test_snapshot_returns_the_tree_records_and_leases(ledger, west, store):
    ask(west, 2, priority=4)
    west.record = replace(record(), cluster_answers=False, tenants=("acme",))
    store.advance(5_000)
    west.heartbeat()
    store.advance(30_000)
    snapshot = ledger.snapshot()
    assert snapshot.tree == tree()
    (view,) = snapshot.meshes
    assert (view.record, view.incarnation, view.alive) == (west.record, west.session.incarnation, True)
    assert 30_000 <= view.heartbeat_age_ms < 60_000
    (held,) = snapshot.leases
    assert (held.lease, held.amounts, held.target, held.priority) == ("west:acme/lab:a100", gpu(2), gpu(2), 4)
    assert (held.token, held.version) == (west.lease(LAB, A100).token, west.lease(LAB, A100).version)
    assert snapshot.tree.recompute(snapshot.leases) == snapshot.usage
    assert (snapshot.epoch, snapshot.recovery_ms) == (west.session.epoch, 0)


def test_an_empty_ledger_has_an_empty_snapshot(store):
    snapshot = store.ledger.snapshot()
    assert (snapshot.usage, snapshot.meshes, snapshot.leases, list(snapshot.tree.tenants)) == ({}, (), (), [])


def test_lease_history_holds_every_change(ledger, west, east):
    ask(west, 2)
    ask(east, 1, SHOP)
    ledger.revoke(mesh=MeshId("west"))
    west.heartbeat()
    west.obey(LAB, A100)
    assert [(lease_event.verb, lease_event.lease.held) for lease_event in ledger.history(mesh=MeshId("west"))] == [
        ("grant", gpu(2)),
        ("revoke", gpu(2)),
        ("shrink", gpu(0)),
    ]
    assert [lease_event.verb for lease_event in ledger.history(tenants=[SHOP])] == ["grant"]
    assert [lease_event.verb for lease_event in ledger.history(tenants={SHOP, LAB})] == ["grant", "grant", "revoke", "shrink"]
    assert len(ledger.history(limit=1)) == 1


def test_epoch_is_read_by_itself_as_it_began(ledger, west, store):
    assert ledger.epoch() == west.session.epoch
    store.restart()
    west.claim_all()
    assert ledger.epoch() == west.session.epoch == ledger.snapshot().epoch


def test_history_holds_epochs(ledger, west, store):
    store.restart()
    west.claim_all()
    (lease_event,) = ledger.history()
    assert (lease_event.verb, lease_event.lease) == ("epoch", None)
    assert "restarted" in lease_event.why


@pytest.mark.every_form
def test_an_audit_of_a_sound_ledger_finds_nothing(ledger, west, east):
    ask(west, 5)
    ask(east, 2, SHOP)
    west.release(LAB, A100, gpu(1))
    assert ledger.audit() == ()


def test_names_may_hold_what_a_pattern_would_take_for_a_command(store):
    key = (FlavorName("a-100.%d"), "node:10.0.0.1")
    path = TenantPath('%s "x"/ü')
    store.ledger.configure(TenantTree([Tenant(path=path, parent=None, quotas={key: Quota(nominal=5)})]))
    mesh = ManualMesh(store.ledger, record("m%s"))
    assert mesh.acquire(path, key[0], ResourceSet({key[1]: 2}), 9).slots == 2
    assert store.ledger.snapshot().usage == {(path, *key): 4}
    assert mesh.lease(path, key[0]).held == ResourceSet({key[1]: 4})


def test_a_lease_for_people_has_a_name(west):
    ask(west)
    assert isinstance(west.lease(LAB, A100), Lease)
    assert west.lease(LAB, A100).lease == "west:acme/lab:a100"
