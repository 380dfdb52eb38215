from dataclasses import replace

import pytest

from federation.child.lease_accounting import LeaseAccounting, Overdraft
from federation.leases import Lease, LedgerResponse
from mesh.core.ids import FlavorName, MeshId, StageId, TenantPath
from mesh.core.resources import NOTHING, ResourceSet

KEY = (TenantPath("lab"), FlavorName("red"))
CPU = ResourceSet.of({"cpu": 1})
NEVER_MS = 10**9


def response(held, *, target=None, version=1) -> LedgerResponse:
    amounts = ResourceSet.of({"cpu": held})
    target_update = amounts if target is None else ResourceSet.of({"cpu": target})
    return LedgerResponse(
        leases=(Lease(tenant=KEY[0], mesh=MeshId("m"), flavor=KEY[1], held=amounts, target=target_update, token=1, version=version),)
    )


@pytest.fixture
def accounting() -> LeaseAccounting:
    """Four held CPUs, one of them spent."""
    made = LeaseAccounting()
    made.apply(response(4))
    made.spend(StageId("s"), KEY, CPU, 0)
    return made


def test_unspent_lease_may_be_spent(accounting):
    assert accounting.room(KEY, CPU) == 3
    assert accounting.room((TenantPath("other"), KEY[1]), CPU) == 0


def test_no_more_may_be_spent_than_the_ledger_aims_at(accounting):
    accounting.apply(response(4, target=2, version=2))
    assert accounting.room(KEY, CPU) == 1


def test_an_older_version_changes_nothing(accounting):
    accounting.apply(response(9, version=1))
    assert accounting.room(KEY, CPU) == 3


def test_offered_lease_is_unspendable_until_answered(accounting):
    (offer,) = accounting.offer_idle(100, 100)
    assert (offer.amounts, offer.version) == (CPU, 1)
    assert accounting.room(KEY, CPU) == 0
    assert accounting.offer_idle(100, NEVER_MS) == (offer,)
    accounting.apply(response(1, version=2), [KEY])
    assert accounting.offer_idle(100, 0) == ()


def test_offers_are_capped_and_earlier_offers_go_first():
    accounting, keys = LeaseAccounting(), [(TenantPath(f"t{number}"), KEY[1]) for number in range(3)]
    leases = (Lease(tenant=tenant, mesh=MeshId("m"), flavor=flavor, held=CPU, target=CPU, token=1, version=1) for tenant, flavor in keys)
    accounting.apply(LedgerResponse(leases=tuple(leases)))
    assert [offer.tenant for offer in accounting.offer_idle(0, 0, keep=keys[0], most=1)] == ["t1"]
    assert [accounting.room(key, CPU) for key in keys] == [1, 0, 1]
    assert [offer.tenant for offer in accounting.offer_idle(0, 0, most=2)] == ["t1", "t0"]


def test_recently_used_lease_is_kept(accounting):
    assert accounting.offer_idle(99, 100) == ()
    assert accounting.offer_idle(100, 100, keep=KEY) == ()


def test_lease_growing_by_plan_is_kept_until_complete(accounting):
    accounting.apply(response(4, target=6, version=2))
    assert accounting.offer_idle(NEVER_MS, 0) == ()


def test_growing_lease_without_demand_is_released(accounting):
    accounting.apply(response(4, target=6, version=2))
    assert accounting.offer_idle(NEVER_MS, 0, None, lambda _key: True) == ()
    (offer,) = accounting.offer_idle(NEVER_MS, 0, None, lambda key: key != KEY)
    assert offer.amounts == CPU


def test_lease_missing_from_a_requested_answer_is_gone(accounting):
    accounting.put_back(StageId("s"), 0)
    accounting.apply(LedgerResponse(), [KEY])
    assert (accounting.lease(KEY), accounting.claims()) == (None, ())


def test_stage_without_its_lease_is_over_the_limit(accounting):
    accounting.apply(LedgerResponse(), [KEY])
    assert accounting.overdrawn() == (Overdraft(NOTHING, {"s": CPU}, 0),)


def test_a_lease_that_is_gone_waits_for_no_young_work(accounting):
    lease = replace(response(4, target=0, version=2).leases[0], shrink_ms=9_000)
    accounting.apply(LedgerResponse(leases=(lease,)), patient_ms=lambda left_ms: left_ms - 1_000)
    assert [over.patient_ms for over in accounting.overdrawn()] == [8_000]
    accounting.apply(LedgerResponse(), [KEY])
    assert accounting.overdrawn() == (Overdraft(NOTHING, {"s": CPU}, 0),)


def test_victims_of_a_lease_that_need_not_shrink_are_displaced(accounting):
    named = replace(response(4, version=2).leases[0], victims=(7, 8))
    accounting.apply(LedgerResponse(leases=(named,)))
    assert (accounting.displaced(), accounting.overdrawn()) == ({KEY: {7, 8}}, ())
    accounting.apply(LedgerResponse(leases=(replace(named, version=3, target=NOTHING),)))
    assert (accounting.displaced(), [over.victims for over in accounting.overdrawn()]) == ({}, [{7, 8}])
    assert accounting.check() == []


def test_recovering_ledger_gets_no_victims(accounting):
    accounting.apply(LedgerResponse(leases=(replace(response(4, version=2).leases[0], victims=(7,)),)))
    assert [lease.victims for lease in accounting.claims()] == [()]


def test_ack_is_sent_only_when_the_target_is_met(accounting):
    accounting.apply(response(4, target=0, version=2))
    assert accounting.acks() == ()
    assert [over.limit for over in accounting.overdrawn()] == [NOTHING]
    assert accounting.put_back(StageId("s"), 0) == KEY
    (ack,) = accounting.acks()
    assert (ack.version, ack.amounts) == (2, NOTHING)


def test_demand_names_the_lease_version_it_saw(accounting):
    assert accounting.demand(KEY, CPU, 2, 0).version == 1
    assert accounting.demand((TenantPath("other"), KEY[1]), CPU, 2, 0).version == 0
