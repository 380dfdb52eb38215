"""Instances of a node by holder: never glued, returned to whom they belong, and others' use by total."""

from __future__ import annotations

import pytest

from mesh.core.node_instances import NodeInstances, copies_on_instances
from mesh.core.resources import NOTHING, ResourceSet
from mesh.errors import LedgerError


def gpus(count: float, **more: object) -> ResourceSet:
    return ResourceSet.of({"gpu": count, **more})


def node_of(**totals: int) -> NodeInstances:
    node = NodeInstances()
    for name, count in totals.items():
        node.set_total(name, count * 10_000)
    return node


def held(node: NodeInstances) -> dict[str, dict[int, float]]:
    assert list(node.check()) == []
    return {each.holder: {number: units / 10_000 for _, number, units in each.parts} for each in node.holdings()}


@pytest.fixture
def halved() -> NodeInstances:
    """Return a node with two GPUs, each half used."""
    node = node_of(gpu=2)
    for holder in ("a", "gone", "b"):
        node.hold(holder, gpus(0.5))
    node.release("gone", gpus(0.5))
    return node


def test_s26_two_halves_are_no_whole_gpu(halved):
    assert held(halved) == {"a": {0: 0.5}, "b": {1: 0.5}}
    assert not halved.fits(gpus(1))
    assert (halved.whole("gpu"), halved.largest("gpu"), halved.partly_free("gpu")) == (0, 5_000, 2)


def test_s26_a_release_returns_the_holders_own_instance(halved):
    halved.hold("c", gpus(0.25))
    halved.release("b", gpus(0.5))
    assert held(halved) == {"a": {0: 0.5}, "c": {0: 0.25}}
    halved.hold("whole", gpus(1))
    assert held(halved)["whole"] == {1: 1.0}


def test_a_run_that_lacks_a_gpu_gets_it_when_one_is_whole(halved):
    halved.hold("late", gpus(1))
    assert held(halved)["late"] == {}
    halved.release("a", gpus(0.5))
    assert held(halved)["late"] == {0: 1.0}


def test_a_total_for_several_runs_may_lie_in_parts(halved):
    halved.hold("reserved", gpus(1), in_parts=True)
    assert held(halved)["reserved"] == {0: 0.5, 1: 0.5}
    halved.release("reserved", gpus(1))
    assert halved.largest("gpu") == 5_000


def test_use_by_others_is_whole_gpus_first_then_a_part():
    node = node_of(gpu=3)
    node.hold("a", gpus(0.25))
    node.set_foreign(gpus(1.5))
    assert held(node) == {"a": {0: 0.25}, "foreign": {0: 0.5, 1: 1.0}}
    node.set_foreign(NOTHING)
    assert held(node) == {"a": {0: 0.25}}


def test_use_by_others_beyond_the_free_gpus_is_lacking(halved):
    halved.set_foreign(gpus(2))
    assert held(halved)["foreign"] == {0: 0.5, 1: 0.5}
    halved.release("a", gpus(0.5))
    assert held(halved)["foreign"] == {0: 1.0, 1: 0.5}


def test_nobody_releases_what_another_holds(halved):
    with pytest.raises(LedgerError, match="c holds"):
        halved.release("c", gpus(0.5))


def test_a_part_of_what_a_holder_has_is_released_whole_first():
    node = node_of(gpu=2)
    node.hold("s", gpus(1))
    node.hold("s", gpus(0.5))
    node.release("s", gpus(1.25))
    assert held(node) == {"s": {1: 0.25}}


def test_all_resources_are_found_or_none(halved):
    halved.set_total("TPU", 40_000)
    halved.hold("both", gpus(1, TPU=4))
    assert held(halved)["both"] == {}
    assert halved.whole("TPU") == 40_000


def test_a_lower_total_takes_effect_as_holders_release():
    node = node_of(gpu=2)
    node.hold("a", gpus(1))
    node.hold("b", gpus(1))
    node.set_total("gpu", 10_000)
    assert (node.whole("gpu"), node.fits(gpus(0.5))) == (0, False)
    node.release("b", gpus(1))
    assert (node.whole("gpu"), held(node)) == (0, {"a": {0: 1.0}})


def test_a_part_of_a_gpu_that_joins_numbers_them_anew():
    node = NodeInstances()
    node.set_total("gpu", 5_000)
    node.hold("a", gpus(0.5))
    node.set_total("gpu", 20_000)
    assert (held(node), node.whole("gpu")) == ({"a": {0: 0.5}}, 10_000)


def test_a_restored_node_gives_the_same_instances(halved):
    halved.hold("late", gpus(1))
    again = node_of(gpu=2)
    again.remember(halved.holdings())
    for holder, amount in (("late", 1), ("b", 0.5), ("a", 0.5)):  # Best fit would put both halves on one GPU.
        again.hold(holder, gpus(amount))
    assert held(again) == held(halved)


def test_stopped_holders_leave_a_whole_gpu_or_not(halved):
    halved.hold("c", gpus(0.25))
    assert halved.fits_without(gpus(1), ["b"])
    assert not halved.fits_without(gpus(1), ["a"])
    assert halved.fits_without(gpus(1), ["a", "c"])


@pytest.mark.parametrize(
    ("slot", "copies"),
    [
        pytest.param(gpus(0.6), 2, id="one slot a gpu"),
        pytest.param(gpus(0.5), 4, id="two slots a gpu"),
        pytest.param(gpus(1), 2, id="whole gpus"),
        pytest.param(ResourceSet.of({"cpu": 1}), None, id="no gpus"),
        pytest.param(gpus(1, TPU=1), 0, id="a resource that is not there"),
    ],
)
def test_copies_on_an_empty_node_share_no_gpu_in_parts(slot, copies):
    assert copies_on_instances(slot, gpus(2)) == copies
