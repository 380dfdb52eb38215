"""Contract of releases: quota returns to every node of the tree, once."""

import pytest
from two_teams import A100, LAB, SHOP, ask, gpu, gpus

from federation.leases import LeaseAck


def test_release_returns_quota_to_every_node(ledger, west):
    ask(west, 6)
    west.release(LAB, A100)
    assert (ledger.snapshot().usage, ledger.snapshot().leases) == ({}, ())


def test_part_of_a_lease_may_be_released(ledger, west):
    ask(west, 6)
    west.release(LAB, A100, gpu(2))
    assert (gpus(ledger, LAB), west.lease(LAB, A100).held) == (2, gpu(2))


def test_second_or_outdated_release_changes_nothing(ledger, west):
    ask(west, 2)
    old = west.lease(LAB, A100)
    ask(west, 2)
    response = ledger.release(west.session, (LeaseAck(tenant=LAB, flavor=A100, version=old.version, amounts=gpu(0)),))
    assert (response.leases, gpus(ledger, LAB)) == ((), 4)
    west.release(LAB, A100, gpu(3))
    assert west.release(LAB, A100, gpu(3)).recovery_ms == 0
    assert gpus(ledger, LAB) == 3


def test_giving_back_more_than_is_held_keeps_what_is_held(ledger, west):
    ask(west, 2)
    west.release(LAB, A100, gpu(5))
    assert gpus(ledger, LAB) == 2


def test_a_mesh_cannot_give_back_the_lease_of_another(ledger, west, east):
    ask(west)
    ledger.release(east.session, (LeaseAck(tenant=LAB, flavor=A100, version=west.lease(LAB, A100).version, amounts=gpu(0)),))
    assert gpus(ledger, LAB) == 1


@pytest.mark.every_form
def test_leaving_gives_everything_back_and_is_harmless_again(ledger, west):
    ask(west, 3)
    ask(west, 3, SHOP)
    west.leave()
    west.leave()
    assert (ledger.snapshot().usage, ledger.snapshot().meshes) == ({}, ())
