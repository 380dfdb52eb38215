"""Instances of all resources of a node, as one set."""

from __future__ import annotations

import pytest

from mesh.core.amounts import Amount
from mesh.core.instance_sets import ResourceIdSet, TakenResources
from mesh.core.instances import ResourceIds
from mesh.core.resources import BYTE_RESOURCES, NOTHING, ResourceSet
from mesh.errors import AmountError, LedgerError


def some(**amounts: object) -> ResourceSet:
    return ResourceSet.of(amounts)


def taken_of(node: ResourceIdSet, **amounts: object) -> TakenResources:
    taken = node.acquire(some(**amounts))
    assert taken is not None
    assert node.check() == []
    return taken


def test_s26_a_set_lends_all_of_a_request_or_nothing():
    node = ResourceIdSet(some(cpu=2, gpu=2))
    assert not node.contains(some(cpu=1, gpu=3))
    assert node.acquire(some(cpu=1, gpu=3)) is None
    assert node.to_set() == some(cpu=2, gpu=2)
    taken = taken_of(node, cpu=1, gpu=0.5)
    assert taken.ids == {"cpu": ResourceIds(whole=(0,)), "gpu": ResourceIds(parts=((0, Amount.of(0.5)),))}
    assert taken.bulk == NOTHING
    assert node.to_set() == some(cpu=1, gpu=1.5)


def test_s26_what_comes_back_is_as_it_was():
    node = ResourceIdSet(some(cpu=2, gpu=2, memory="1GiB"))
    holders = [taken_of(node, cpu=1, gpu=0.3, memory="1MiB"), taken_of(node, gpu=0.7), taken_of(node, cpu=1, gpu=1)]
    for taken in holders:
        node.release(taken)
    assert node.to_set() == node.total == some(cpu=2, gpu=2, memory="1GiB")
    assert node.free_ids("gpu") == ResourceIds(whole=(0, 1))


def test_bytes_have_no_numbers():
    node = ResourceIdSet(some(memory="4GiB"))
    assert taken_of(node, memory="3GiB").ids == {}
    assert node.acquire(some(memory="2GiB")) is None
    assert node.to_set() == some(memory="1GiB")


def test_bulk_resources_are_lent_in_any_amount():
    node = ResourceIdSet(some(cpu=4), bulk={"cpu", *BYTE_RESOURCES})
    assert taken_of(node, cpu=1.5) == TakenResources(bulk=some(cpu=1.5))
    assert node.free_ids("cpu") == ResourceIds()


def test_nothing_is_lent_of_what_the_node_has_not():
    node = ResourceIdSet(some(cpu=1))
    assert node.acquire(some(accelerator=1)) is None
    assert node.acquire(NOTHING) == TakenResources()


def test_s26_resources_are_added_changed_and_deleted_in_use():
    node = ResourceIdSet(some(cpu=1))
    node.add_or_update("licence", 20_000)
    taken = taken_of(node, licence=2)
    node.add_or_update("licence", 10_000)
    assert (node.total, node.to_set(), node.backlog("licence")) == (some(cpu=1, licence=1), some(cpu=1), 10_000)
    node.delete("licence")
    assert (node.total, node.backlog("licence")) == (some(cpu=1), 20_000)
    node.release(taken)
    assert (node.total, node.to_set(), node.backlog("licence")) == (some(cpu=1), some(cpu=1), 0)


def test_s26_a_release_is_limited_to_what_the_node_still_has():
    node = ResourceIdSet(some(cpu=2, licence=2))
    taken = taken_of(node, cpu=1, licence=1)
    node.release_constrained(taken, some(cpu=2))
    assert node.to_set() == node.total == some(cpu=2)


def test_s26_everything_can_be_cleared_while_it_is_held():
    node = ResourceIdSet(some(cpu=2, memory="1MiB"))
    taken = taken_of(node, cpu=1, memory="1MiB")
    node.clear()
    assert (node.total, node.to_set()) == (NOTHING, NOTHING)
    assert (node.backlog("cpu"), node.backlog("memory")) == (10_000, 2**20)
    node.release(taken)
    assert (node.to_set(), node.backlog("memory")) == (NOTHING, 0)


def test_memory_lowered_below_its_use_is_not_lent_again_early():
    node = ResourceIdSet(some(memory="4GiB"))
    half, other = taken_of(node, memory="2GiB"), taken_of(node, memory="2GiB")
    node.add_or_update("memory", 2**30)
    node.release(half)
    assert (node.to_set(), node.acquire(some(memory=1))) == (NOTHING, None)
    node.release(other)
    assert node.to_set() == some(memory="1GiB")


def test_s26_holdings_add_up():
    node = ResourceIdSet(some(gpu=2, memory=10))
    both = taken_of(node, gpu=0.5, memory=3).plus(taken_of(node, gpu=0.5))
    assert both == TakenResources(ids={"gpu": ResourceIds(whole=(0,))}, bulk=some(memory=3))
    node.release(both)
    assert node.to_set() == some(gpu=2, memory=10)


@pytest.mark.parametrize(
    "returned",
    [
        pytest.param(TakenResources(ids={"gpu": ResourceIds(whole=(1,))}), id="an instance that nobody holds"),
        pytest.param(TakenResources(ids={"tpu": ResourceIds(whole=(0,))}), id="a resource that nobody holds"),
        pytest.param(TakenResources(bulk=ResourceSet({"memory": 99})), id="more bytes than are held"),
    ],
)
def test_a_wrong_release_changes_nothing(returned):
    node = ResourceIdSet(some(gpu=2, memory=100))
    taken = taken_of(node, gpu=1, memory=50)
    with pytest.raises(LedgerError):
        node.release(TakenResources(ids={**taken.ids, **returned.ids}, bulk=taken.bulk + returned.bulk))
    assert node.to_set() == some(gpu=1, memory=50)
    node.release(taken)
    assert node.to_set() == some(gpu=2, memory=100)


def test_instances_that_are_not_whole_are_refused():
    with pytest.raises(AmountError):
        ResourceIdSet(some(gpu=1.5))
