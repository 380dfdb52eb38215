"""Contract of named victims: a plan names the stages that it stops, and the lease carries them to its mesh."""

import pytest
from two_teams import A100, LAB, ONE_GPU, ask, record, target_update

from federation.dispatch import Notification, NotificationKind
from federation.leases import VICTIMS_MAX
from federation.manual_mesh import ManualMesh
from mesh.core.ids import MeshId, RunId, StageId
from mesh.stages.spec import StageSpec


def reported_victims(mesh):
    """Return the victims that the mesh hears of with its next heartbeat; None if it hears nothing."""
    return {lease.tenant: lease.victims for lease in mesh.heartbeat().leases}.get(LAB)


@pytest.mark.every_form
def test_lowered_lease_names_victims_until_it_has_shrunk(ledger, west):
    ask(west, 4)
    target_update(ledger, ("west", LAB, 2), victims=(11, 2**53 - 1))
    assert reported_victims(west) == (11, 2**53 - 1)
    assert ledger.snapshot().leases[0].victims == (11, 2**53 - 1)
    west.obey(LAB, A100)
    assert (west.lease(LAB, A100).victims, ledger.snapshot().leases[0].victims) == ((), ())


@pytest.mark.parametrize("how", ["released", "given back", "taken at the deadline"])
def test_victims_go_when_the_lease_need_not_shrink(ledger, west, store, how):
    ask(west, 4)
    target_update(ledger, ("west", LAB, 2), victims=(11,))
    west.heartbeat()
    if how == "released":
        west.release(LAB, A100, ONE_GPU.times(2))
    elif how == "given back":
        target_update(ledger, ("west", LAB, 4))
    else:
        store.advance(store.ttl_ms)
        west.heartbeat()
        store.advance(store.grace_ms + 1)
        ledger.sweep()
    west.heartbeat()
    assert west.lease(LAB, A100).victims == ()


def test_victims_of_plans_add_up_while_the_lease_shrinks(ledger, west):
    ask(west, 4)
    target_update(ledger, ("west", LAB, 3), victims=(11,))
    target_update(ledger, ("west", LAB, 2), victims=(12, 11))
    assert reported_victims(west) == (11, 12)
    target_update(ledger, ("west", LAB, 3))
    assert reported_victims(west) == (11, 12)


def test_plan_may_name_victims_without_a_new_target(ledger, west, store):
    ask(west, 4)
    cursor, _ = store.queue.notifications(MeshId("west"), "", 0)
    before = west.lease(LAB, A100)
    target_update(ledger, ("west", LAB, 4, 4), victims=(11,))
    assert store.queue.notifications(MeshId("west"), cursor, 0)[1] == (Notification(kind=NotificationKind.PLAN, subject=""),)
    assert reported_victims(west) == (11,)
    lease = west.lease(LAB, A100)
    assert (lease.target, lease.shrink_ms, lease.token) == (before.target, None, before.token)
    assert lease.version > before.version


def test_victims_without_a_reduction_stay_until_the_next_target(ledger, west):
    ask(west, 4)
    target_update(ledger, ("west", LAB, 4), victims=(11,))
    target_update(ledger, ("west", LAB, 4), victims=(12,))
    assert reported_victims(west) == (11, 12)
    target_update(ledger, ("west", LAB, 4), victims=(12,))
    assert reported_victims(west) is None, "it names nobody new"
    ask(west, 1)
    assert west.lease(LAB, A100).victims == (11, 12)
    target_update(ledger, ("west", LAB, 3), victims=(13,))
    assert reported_victims(west) == (13,)


def test_lease_names_the_last_victims_of_too_many(ledger, west):
    ask(west, 4)
    target_update(ledger, ("west", LAB, 1), victims=tuple(range(1, VICTIMS_MAX + 10)))
    assert reported_victims(west) == tuple(range(1, VICTIMS_MAX + 1))
    target_update(ledger, ("west", LAB, 0), victims=(1_000,))
    assert reported_victims(west) == (*range(2, VICTIMS_MAX + 1), 1_000)


def test_missing_lease_names_no_victims(ledger, west):
    target_update(ledger, ("west", LAB, 0), victims=(11,))
    assert (reported_victims(west), ledger.snapshot().leases) == (None, ())


def test_named_stage_is_leaving_while_its_lease_names_it(ledger, west, store):
    tokens = []
    for name in ("r.1", "r.2"):
        store.queue.submit(MeshId("west"), StageSpec(stage=StageId(name), run=RunId("r"), tenant=LAB, tasks=(), slot=ONE_GPU, width=1))
        ask(west)
        tokens.append(store.queue.claim(west.session, StageId(name), west.lease(LAB, A100)).claim.token)
    target_update(ledger, ("west", LAB, 1), victims=(tokens[1],))
    assert [row.is_leaving for row in ledger.snapshot().running] == [False, True]
    target_update(ledger, ("west", LAB, 2))
    assert [row.is_leaving for row in ledger.snapshot().running] == [False, False]


def test_recovered_session_hears_of_the_victims(ledger, west):
    ask(west, 4)
    target_update(ledger, ("west", LAB, 2), victims=(11,))
    successor = ManualMesh(ledger, record("west"), adopt=west.session.incarnation)
    assert successor.lease(LAB, A100).victims == (11,)


def test_restored_lease_names_no_victims(ledger, west, store):
    ask(west, 4)
    before = store.keep()
    target_update(ledger, ("west", LAB, 2), victims=(11,))
    west.heartbeat()
    store.advance(1)
    store.lose(before)
    west.claim_all()
    assert west.lease(LAB, A100).victims == ledger.snapshot().leases[0].victims == ()
