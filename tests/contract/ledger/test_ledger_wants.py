"""What every lease ledger promises of wants: what was not granted is remembered until it is granted or withdrawn."""

from two_teams import A100, LAB, ONE_GPU, SHOP, ask, gpu

from federation.leases import Want


def test_what_was_not_granted_is_wanted_until_it_is_granted_or_withdrawn(ledger, west, east, store):
    ask(west, 6)
    ask(east, 5, SHOP, priority=3)
    (want,) = ledger.snapshot().wants
    assert (want.mesh, want.tenant, want.slot, want.slots, want.priority) == ("east", SHOP, ONE_GPU, 3, 3)
    assert west.beat().others_want
    assert not east.beat().others_want
    store.advance(1_000)
    assert ledger.snapshot().wants[0].waiting_ms >= 1_000
    west.release(LAB, A100, gpu(3))
    assert ask(east, 3, SHOP).slots == 3
    assert ledger.snapshot().wants == ()
    ask(east, 9, SHOP)
    east.beat(wants=())
    assert ledger.snapshot().wants == ()


def test_a_want_stands_when_less_urgent_work_is_refused_the_same_lease(ledger, west, east):
    ask(west, 6)
    ask(east, 5, SHOP, priority=3)
    ask(east, 9, SHOP, priority=2)
    assert [(want.slots, want.priority) for want in ledger.snapshot().wants] == [(3, 3)]
    ask(east, 4, SHOP, priority=4)
    assert [(want.slots, want.priority) for want in ledger.snapshot().wants] == [(4, 4)]


def test_a_lease_is_as_urgent_as_the_most_urgent_work_that_it_pays_for(ledger, west):
    def grow(priority, pays_for):
        (lease,) = ledger.snapshot().leases
        want = Want(tenant=LAB, flavor=A100, slot=ONE_GPU, priority=priority, version=lease.version, pays_for=pays_for)
        ledger.acquire(west.session, (want,))
        return ledger.snapshot().leases[0].priority

    ask(west, 1, priority=4)
    assert grow(-2, 4) == 4
    assert grow(-2, -1) == -1
    assert grow(7, None) == 7


def test_a_heartbeat_tells_all_that_a_mesh_wants(ledger, west):
    west.beat(wants=(Want(tenant=LAB, flavor=A100, slot=ONE_GPU, slots=2), Want(tenant=SHOP, flavor=A100, slot=ONE_GPU)))
    west.beat()
    assert [(want.tenant, want.slots) for want in ledger.snapshot().wants] == [(LAB, 2), (SHOP, 1)]
    west.beat(wants=(Want(tenant=SHOP, flavor=A100, slot=ONE_GPU),))
    assert [want.tenant for want in ledger.snapshot().wants] == [SHOP]
    west.leave()
    assert ledger.snapshot().wants == ()
