"""Contract of demands: the ledger keeps what was not granted until it is granted or withdrawn."""

import pytest
from two_teams import A100, ACME, LAB, ONE_GPU, SHOP, ask, gpu, target_update

from federation.errors import BatchTooLarge
from federation.leases import ROWS_SENT_MAX, WAITED_MS_MAX, LeaseUse, QuotaDemand


def demands_of(ledger):
    return [(demand.tenant, demand.slot["gpu"] // 10_000, demand.slots, demand.priority) for demand in ledger.snapshot().demands]


@pytest.mark.every_form
def test_demand_lasts_until_it_is_granted_or_withdrawn(ledger, west, east, store):
    ask(west, 6)
    ask(east, 5, SHOP, priority=3)
    (demand,) = ledger.snapshot().demands
    assert (demand.mesh, demand.tenant, demand.slot, demand.slots, demand.priority) == ("east", SHOP, ONE_GPU, 3, 3)
    assert west.heartbeat().others_wait
    assert not east.heartbeat().others_wait
    store.advance(1_000)
    assert ledger.snapshot().demands[0].waiting_ms >= 1_000
    west.release(LAB, A100, gpu(3))
    assert ask(east, 3, SHOP, priority=3).slots == 3
    assert ledger.snapshot().demands == ()
    ask(east, 9, SHOP)
    east.heartbeat(demands=())
    assert ledger.snapshot().demands == ()


def test_demands_of_each_priority_and_size_are_kept_apart(ledger, west, east):
    ask(west, 8)
    ask(east, 3, SHOP, priority=3)
    ask(east, 4, SHOP, priority=-2)
    ask(east, 1, SHOP, priority=3, slot=gpu(2))
    assert sorted(demands_of(ledger)) == [(SHOP, 1, 3, 3), (SHOP, 1, 4, -2), (SHOP, 2, 1, 3)]


def test_request_keeps_the_reported_demand_minus_its_grant(ledger, west, east):
    ask(west, 7)
    east.heartbeat(demands=(QuotaDemand(tenant=SHOP, flavor=A100, slot=ONE_GPU, slots=20, beyond=7),))
    assert ask(east, 2, SHOP).slots == 1
    assert demands_of(ledger) == [(SHOP, 1, 19, 0)]
    ask(east, 1, SHOP)
    assert demands_of(ledger) == [(SHOP, 1, 19, 0)]
    assert ledger.snapshot().demands[0].beyond == 7
    ask(east, 25, SHOP)
    assert demands_of(ledger) == [(SHOP, 1, 25, 0)]


def test_reported_waiting_time_counts_up_to_a_week(ledger, west, store):
    def waits(waited_ms):
        west.heartbeat(demands=(QuotaDemand(tenant=LAB, flavor=A100, slot=ONE_GPU, waited_ms=waited_ms),))
        return ledger.snapshot().demands[0].waiting_ms // 10_000

    assert waits(None) == 0
    assert waits(90_000) == 9
    assert waits(20_000) == 2
    store.advance(30_000)
    assert waits(None) == 5
    assert waits(10**12) == WAITED_MS_MAX // 10_000


def test_later_request_keeps_the_age_of_a_demand(ledger, west, east):
    ask(west, 8)
    east.heartbeat(demands=(QuotaDemand(tenant=SHOP, flavor=A100, slot=ONE_GPU, waited_ms=90_000),))
    demand = QuotaDemand(tenant=SHOP, flavor=A100, slot=ONE_GPU, waited_ms=1_000)
    ledger.acquire(east.session, (demand,))
    assert ledger.snapshot().demands[0].waiting_ms // 10_000 == 9


def test_grants_reduce_the_most_urgent_then_oldest_demands(ledger, west, east):
    big = {"tenant": SHOP, "flavor": A100, "slot": gpu(3)}
    small = {"tenant": SHOP, "flavor": A100, "slot": ONE_GPU}
    demands = (
        QuotaDemand(**big, priority=9),
        QuotaDemand(**small, slots=1, priority=1),
        QuotaDemand(**small, slots=20, waited_ms=5_000),
        QuotaDemand(**{**small, "slot": gpu(2)}, slots=1, waited_ms=60_000),
        QuotaDemand(tenant=LAB, flavor=A100, slot=ONE_GPU, slots=2),
    )
    ask(west, 2)
    west.heartbeat(demands=())
    target_update(ledger, ("east", SHOP, 6))
    east.heartbeat(demands=demands)
    assert {(lease.amounts["gpu"] // 10_000, lease.priority) for lease in ledger.snapshot().leases if lease.mesh == "east"} == {(6, 9)}
    assert sorted(demands_of(ledger)) == [(LAB, 1, 2, 0), (SHOP, 1, 20, 0)]
    target_update(ledger, ("east", SHOP, 5))
    east.heartbeat()
    east.obey(SHOP, A100)
    target_update(ledger, ("east", SHOP, 6))
    east.heartbeat()
    assert sorted(demands_of(ledger)) == [(LAB, 1, 2, 0), (SHOP, 1, 19, 0)]


def test_demands_of_a_mesh_are_capped(ledger, west, east):
    ask(west, 8)
    demands = tuple(QuotaDemand(tenant=SHOP, flavor=A100, slot=ONE_GPU, priority=number) for number in range(ROWS_SENT_MAX))
    east.heartbeat(demands=demands)
    ask(east, 1, SHOP, priority=-1)
    assert len(ledger.snapshot().demands) == ROWS_SENT_MAX
    east.heartbeat(demands=demands[1:])
    ask(east, 1, SHOP, priority=-1)
    assert {demand.priority for demand in ledger.snapshot().demands} == {-1, *range(1, ROWS_SENT_MAX)}


def test_lease_has_the_priority_of_its_most_urgent_work(ledger, west):
    def grow(priority, pays_for):
        (lease,) = ledger.snapshot().leases
        demand = QuotaDemand(tenant=LAB, flavor=A100, slot=ONE_GPU, priority=priority, version=lease.version, pays_for=pays_for)
        ledger.acquire(west.session, (demand,))
        return ledger.snapshot().leases[0].priority

    ask(west, 1, priority=4)
    assert grow(-2, 4) == 4
    assert grow(-2, -1) == -1
    assert grow(7, None) == 7


def test_heartbeat_reports_all_demands_of_a_mesh(ledger, west):
    west.heartbeat(
        demands=(QuotaDemand(tenant=LAB, flavor=A100, slot=ONE_GPU, slots=2), QuotaDemand(tenant=SHOP, flavor=A100, slot=ONE_GPU))
    )
    west.heartbeat()
    assert [(demand.tenant, demand.slots) for demand in ledger.snapshot().demands] == [(LAB, 2), (SHOP, 1)]
    west.heartbeat(demands=(QuotaDemand(tenant=SHOP, flavor=A100, slot=ONE_GPU),))
    assert [demand.tenant for demand in ledger.snapshot().demands] == [SHOP]
    west.leave()
    assert ledger.snapshot().demands == ()


def test_reported_lease_use_changes_priority_but_not_version(ledger, west, east):
    def send(*lease_uses):
        response = west.heartbeat(
            lease_uses=tuple(LeaseUse(tenant=tenant, flavor=A100, priority=priority) for tenant, priority in lease_uses)
        )
        assert response.leases == ()
        return {lease.tenant: (lease.priority, lease.version) for lease in ledger.snapshot().leases}

    ask(west, 2, priority=4)
    ask(west, 1, SHOP, priority=1)
    versions = {lease.tenant: lease.version for lease in ledger.snapshot().leases}
    assert send((LAB, 9)) == {LAB: (9, versions[LAB]), SHOP: (1, versions[SHOP])}
    assert send((LAB, -3), (SHOP, 2), (ACME, 5)) == {LAB: (-3, versions[LAB]), SHOP: (2, versions[SHOP])}
    assert send() == {LAB: (-3, versions[LAB]), SHOP: (2, versions[SHOP])}
    assert ledger.history()[-1].verb == "grant"
    assert ask(west, 1, priority=0).slots == 1
    assert {lease.tenant: lease.priority for lease in ledger.snapshot().leases} == {LAB: 0, SHOP: 2}


def test_reported_lease_use_counts_before_its_growth(ledger, west):
    ask(west, 2, priority=4)
    target_update(ledger, ("west", LAB, 3))
    west.heartbeat(
        demands=(QuotaDemand(tenant=LAB, flavor=A100, slot=ONE_GPU, priority=2),),
        lease_uses=(LeaseUse(tenant=LAB, flavor=A100, priority=-1),),
    )
    assert [lease.priority for lease in ledger.snapshot().leases] == [2]


def test_mesh_reports_no_more_leases_than_its_limit(ledger, west):
    with pytest.raises(BatchTooLarge):
        west.heartbeat(lease_uses=(LeaseUse(tenant=LAB, flavor=A100, priority=1),) * (ROWS_SENT_MAX + 1))
