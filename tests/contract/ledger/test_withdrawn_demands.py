"""Contract of demands whose stages leave the queue: the ledger withdraws what is wanted for them alone, at once."""

import pytest
from two_teams import A100, LAB, ONE_GPU, SHOP, ask, gpu, target_update

from federation.leases import QuotaDemand
from mesh.core.ids import FlavorName, MeshId, RunId, StageId
from mesh.core.resources import NOTHING
from mesh.core.shapes import Gang
from mesh.stages.spec import StageSpec, TaskSpec

RUN, WEST = RunId("r"), MeshId("west")


def queue(store, name, *, width=1, slot=ONE_GPU, tenant=LAB, priority=0, gang=None):
    stage = StageId(f"{RUN}.{name}")
    tasks = () if gang is None else (TaskSpec(node="n", attempt=1, function="call:m:f", inputs=(), resources=slot, gang=gang),)
    store.queue.submit(WEST, StageSpec(stage=stage, run=RUN, tenant=tenant, tasks=tasks, slot=slot, width=width, priority=priority))
    return stage


def want(mesh, *demands):
    """Report the mesh's demand: slots, and what differs from whole GPUs for the lab."""
    common = {"tenant": LAB, "flavor": A100, "slot": ONE_GPU}
    mesh.heartbeat(demands=tuple(QuotaDemand(**{**common, **but}, slots=slots) for slots, but in demands))


def claim(store, mesh, stage, slots=1):
    assert store.queue.claim(mesh.session, stage, mesh.lease(LAB, A100), slots) is not None


def slots_of(ledger):
    return [demand.slots for demand in ledger.snapshot().demands]


@pytest.mark.every_form
def test_stage_that_starts_with_fewer_slots_wants_no_more(ledger, west, east, store):
    ask(west, 6)
    ask(east, 1)
    stage = queue(store, "wide", width=4)
    ask(west, 4)
    assert slots_of(ledger) == [3]
    claim(store, west, stage)
    assert slots_of(ledger) == []
    assert not east.heartbeat().others_wait


@pytest.mark.parametrize("way", ["claimed", "cancelled", "forgotten"])
def test_alike_stages_keep_their_demand(ledger, west, store, way):
    ask(west, 1)
    goes, stays = queue(store, "goes", width=3), queue(store, "stays", width=2)
    want(west, (5, {"beyond": 4}))
    if way == "claimed":
        claim(store, west, goes)
    elif way == "cancelled":
        store.queue.cancel(goes)
    else:
        store.queue.forget(RUN, ())
    assert slots_of(ledger) == ([] if way == "forgotten" else [2])
    assert [demand.beyond for demand in ledger.snapshot().demands] == ([] if way == "forgotten" else [0])
    store.queue.cancel(stays)
    assert slots_of(ledger) == []


def test_demand_within_what_others_could_use_stays_whole(ledger, west, store):
    stage = queue(store, "goes")
    queue(store, "stays", width=9)
    want(west, (4, {"beyond": 5}))
    store.queue.cancel(stage)
    assert [(demand.slots, demand.beyond) for demand in ledger.snapshot().demands] == [(4, 5)]


def test_stage_withdraws_only_demand_of_its_kind(ledger, west, store):
    stage = queue(store, "goes")
    others = [{"tenant": SHOP}, {"priority": 1}, {"slot": gpu(2)}, {"slot": gpu(2), "whole": gpu(3)}]
    want(west, (1, {}), *((2, other) for other in others))
    store.queue.cancel(stage)
    assert slots_of(ledger) == [2] * len(others)


def test_stage_withdraws_its_demand_of_every_flavor(ledger, west, store):
    stage = queue(store, "goes")
    want(west, (1, {}), (1, {"flavor": FlavorName("h100")}))
    store.queue.cancel(stage)
    assert slots_of(ledger) == []


def test_missing_part_of_a_slot_belongs_to_its_stages(ledger, west, store):
    first, second = queue(store, "first", slot=gpu(3)), queue(store, "second", slot=gpu(3))
    want(west, (1, {"slot": gpu(1), "whole": gpu(3)}), (1, {"slot": gpu(3)}))
    assert {(demand.slot, demand.whole) for demand in ledger.snapshot().demands} == {(gpu(1), gpu(3)), (gpu(3), NOTHING)}
    store.queue.cancel(first)
    assert [demand.slot for demand in ledger.snapshot().demands] == [gpu(1)]
    store.queue.cancel(second)
    assert slots_of(ledger) == []


def test_asking_for_a_missing_part_is_withdrawn_too(ledger, west, east, store):
    ask(east, 6)
    ask(west, 2)
    stage = queue(store, "goes", slot=gpu(4))
    version = west.lease(LAB, A100).version
    demand = QuotaDemand(tenant=LAB, flavor=A100, slot=gpu(2), whole=gpu(4), version=version)
    ledger.acquire(west.session, (demand,))
    assert [(demand.slot, demand.whole) for demand in ledger.snapshot().demands] == [(gpu(2), gpu(4))]
    store.queue.cancel(stage)
    assert slots_of(ledger) == []


def test_stage_wants_a_slot_or_a_part_of_one(ledger, west, east, store):
    ask(east, 6)
    ask(west, 2)
    queue(store, "goes", slot=gpu(4))
    want(west, (1, {"slot": gpu(4)}))

    def ask_for(**about):
        version = west.lease(LAB, A100).version
        ledger.acquire(west.session, (QuotaDemand(tenant=LAB, flavor=A100, version=version, **about),))
        return [(demand.slot, demand.slots) for demand in ledger.snapshot().demands]

    assert ask_for(slot=gpu(2), whole=gpu(4)) == [(gpu(2), 1)]
    assert ask_for(slot=gpu(4)) == [(gpu(4), 1)]


@pytest.mark.every_form
def test_demand_of_a_gang_is_its_own(ledger, west, east, store):
    ask(east, 6)
    ask(west, 2)
    gang = queue(store, "gang", slot=gpu(2), gang=Gang(size=2, bundle=ONE_GPU), priority=-1)
    plain = queue(store, "plain", slot=gpu(2), priority=-1)
    wanted = {"slot": gpu(2), "priority": -1}
    want(west, (1, {**wanted, "gang_size": 2}))
    version = west.lease(LAB, A100).version
    ledger.acquire(west.session, (QuotaDemand(tenant=LAB, flavor=A100, version=version, **wanted),))
    assert {(one.gang_size, one.priority, one.slots) for one in ledger.snapshot().demands} == {(2, -1, 1), (0, -1, 1)}
    store.queue.cancel(plain)
    assert [one.gang_size for one in ledger.snapshot().demands] == [2]
    ledger.acquire(west.session, (QuotaDemand(tenant=LAB, flavor=A100, version=version, gang_size=2, **wanted),))
    assert [(one.gang_size, one.slots) for one in ledger.snapshot().demands] == [(2, 1)]
    store.queue.cancel(gang)
    assert slots_of(ledger) == []


@pytest.mark.every_form
def test_growth_meets_the_demand_of_a_gang(ledger, west, east, store):
    ask(east, 8)
    want(west, (1, {"slot": gpu(2), "gang_size": 2}))
    target_update(ledger, ("east", LAB, 6), ("west", LAB, 2))
    east.heartbeat()
    east.obey(LAB, A100)
    west.heartbeat()
    assert west.lease(LAB, A100).held == gpu(2)
    assert slots_of(ledger) == []


@pytest.mark.every_form
def test_demand_is_as_old_as_its_oldest_stage(ledger, west, store):
    ask(west, 8)
    queue(store, "one")
    for created_ms, oldest_ms in ((900, 900), (400, 400), (700, 400)):
        version = west.lease(LAB, A100).version
        demand = QuotaDemand(tenant=LAB, flavor=A100, slot=ONE_GPU, version=version, created_ms=created_ms)
        ledger.acquire(west.session, (demand,))
        assert [demand.created_ms for demand in ledger.snapshot().demands] == [oldest_ms]
    want(west, (1, {"created_ms": 700}))
    assert [demand.created_ms for demand in ledger.snapshot().demands] == [700]
