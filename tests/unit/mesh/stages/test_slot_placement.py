"""Placement of slots on nodes: policies, selectors, use by others, nodes that come and go."""

from __future__ import annotations

import pytest

from mesh.core.pools import PoolLedger, PoolSpec
from mesh.core.reasons import Reason
from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.seen_nodes import NodeSeen
from mesh.core.shapes import Gang
from mesh.plugins import Plugin, Plugins
from mesh.policies.catalogue import BUILT_INS, Catalogue, UnknownPolicy, with_plugins
from mesh.stages.slot_placement import SlotPlacement, check_policy


def cpu(count):
    return ResourceSet.of({"cpu": count})


ONE = cpu(1)


def node(name, cpus, free=None, **labels):
    return NodeSeen(node=name, total=cpu(cpus), labels=labels, available=cpu(cpus if free is None else free))


def placement(*nodes, capacity=8, policy="binpack", catalogue=BUILT_INS, **selector):
    pools = PoolLedger((PoolSpec(pool="p", capacity=cpu(capacity), policy=policy, selector=selector),))
    made = SlotPlacement(pools, catalogue=catalogue)
    made.see(nodes)
    return made


def placed(made, stage="s", slot=ONE, most=8):
    made.place(stage, "p", slot, most)
    assert list(made.check()) == []
    return made.nodes_of(stage)


def test_binpack_fills_one_node_before_the_next():
    made = placement(node("a", 4), node("b", 4))
    first = placed(made, "s", most=3)
    assert len(set(first)) == 1
    assert placed(made, "t", most=2).count(first[0]) == 1


def test_spread_uses_all_nodes():
    assert set(placed(placement(node("a", 4), node("b", 4), policy="spread"), most=2)) == {"a", "b"}


def test_a_selector_admits_nodes_with_its_labels_only():
    made = placement(node("a", 4, zone="east"), node("b", 4, zone="west"), zone="in(west, north)")
    assert made.copies("p", ONE) == 4
    assert placed(made) == ("b",) * 4
    assert not made.fits("p", ONE)
    assert made.refusal("p", ONE)[0] is Reason.NODES_BUSY


def test_a_selector_that_no_node_matches_is_named():
    made = placement(node("a", 8, zone="east"), zone="west")
    assert made.refusal("p", ONE) == (Reason.NO_NODE_FITS, "no node of the mesh has the labels of pool p: zone=west")


def test_free_capacity_in_parts_holds_no_whole_slot():
    made = placement(node("a", 4), node("b", 4))
    placed(made, "s", cpu(3), 2)
    assert not made.fits("p", cpu(2))
    words = "one slot takes 2 cpu, and 2 nodes of the mesh would hold it when empty; none has that much free"
    assert made.refusal("p", cpu(2)) == (Reason.NODES_BUSY, words)


def test_use_by_others_counts_once_two_looks_agree():
    made = placement(node("a", 8))
    assert not made.see((node("a", 8, free=1),))
    assert made.fits("p", cpu(4))
    assert made.see((node("a", 8, free=1),))
    assert not made.fits("p", cpu(4))
    made.see((node("a", 8),))
    assert made.see((node("a", 8),))
    assert made.fits("p", cpu(4))


def test_released_slots_can_be_placed_again():
    made = placement(node("a", 8))
    placed(made, "s")
    made.keep("s", 2)
    assert placed(made, "t", most=9) == ("a",) * 6
    made.release("s")
    assert placed(made, "u", most=9) == ("a",) * 2


def test_further_slots_of_a_stage_are_added_to_the_first():
    made = placement(node("a", 8))
    placed(made, most=2)
    assert len(placed(made, most=3)) == 5


def test_a_node_that_left_counts_again_when_it_is_back():
    made = placement(node("a", 4), node("b", 4))
    everywhere = placed(made)
    assert sorted(everywhere) == ["a"] * 4 + ["b"] * 4
    assert made.see((node("a", 4),))
    assert list(made.check()) == []
    made.see((node("a", 4), node("b", 4)))
    assert not made.fits("p", ONE)
    made.release("s")
    assert list(made.check()) == []
    assert made.fits("p", cpu(4))


def test_slots_of_an_earlier_process_are_charged():
    made = placement(node("a", 8))
    made.find("s", cpu(3), ("a", "a", "gone"))
    assert list(made.check()) == []
    assert placed(made, "t") == ("a",) * 2


@pytest.mark.parametrize(
    ("made", "slot"),
    [
        pytest.param(placement(), ONE, id="unknown nodes"),
        pytest.param(placement(node("a", 4), capacity=9), ONE, id="a mesh that may grow"),
        pytest.param(placement(node("a", 8)), NOTHING, id="a slot of nothing"),
    ],
)
def test_ray_places_what_has_no_known_node(made, slot):
    assert made.fits("p", slot)
    assert made.place("s", "p", slot, 5) == 5
    assert made.nodes_of("s") == ()


@pytest.mark.parametrize("policy", ["weighted", "binpack", "spread", "random", "hybrid", "0.7*least_busy+0.3*binpack"])
def test_policies_that_place_slots_are_accepted(policy):
    check_policy(policy)
    assert len(placed(placement(node("a", 4), node("b", 4), policy=policy))) == 8


@pytest.mark.parametrize("policy", ["locality", "gang", "node_affinity", "0.5*job_affinity+0.5*binpack", "best"])
def test_other_policies_are_refused_by_name(policy):
    with pytest.raises(UnknownPolicy):
        check_policy(policy)


def largest(_demand, view):
    return view.total[:, 0] / 50_000


def test_a_plugin_that_a_pool_names_chooses_the_node():
    plugins = Plugins([Plugin(name="largest", score=largest)], now_ms=lambda: 0.0)
    made = placement(node("small", 3), node("large", 5), policy="largest", catalogue=Catalogue(plugins.policies))
    assert placed(made, most=2) == ("large", "large")


def test_a_plugin_that_fails_later_is_replaced_at_once():
    fails_later = lambda demand, view: 1 / 0 if view.busy.any() else largest(demand, view)  # noqa: E731
    plugins = Plugins([Plugin(name="mine", score=fails_later)], now_ms=lambda: 0.0)
    made = placement(node("small", 3), node("large", 5), policy="0.9*mine+0.1*spread", catalogue=Catalogue(plugins.policies))
    assert placed(made, most=4) == ("large", "small", "small", "large")
    assert [one.hook for one in plugins.fenced] == ["score"]


@pytest.mark.parametrize("policy", ["mine", "0.7*mine+0.3*binpack"])
def test_policies_may_name_plugins(policy):
    check_policy(policy, with_plugins(["mine"]))
    with pytest.raises(UnknownPolicy):
        check_policy(policy)


# -- GPUs by instance --------------------------------------------------------------------------------------------------


def gpu(count):
    return ResourceSet.of({"gpu": count})


def gpu_placement(*gpus_of_nodes):
    made = SlotPlacement(PoolLedger((PoolSpec(pool="p", capacity=gpu(sum(gpus_of_nodes)), policy="binpack"),)))
    made.see([NodeSeen(node=f"n{number}", total=gpu(n), labels={}, available=gpu(n)) for number, n in enumerate(gpus_of_nodes)])
    return made


@pytest.mark.parametrize(("size", "copies"), [(0.6, 3), (0.5, 6), (1, 3), (2, 1), (1.5, 0)])
def test_slots_with_gpus_are_counted_by_instance(size, copies):
    made = gpu_placement(2, 1)
    assert made.copies("p", gpu(size)) == copies
    assert len(placed(made, slot=gpu(size))) == copies


def test_gpus_in_parts_are_named_as_the_reason():
    made = gpu_placement(2)
    for stage in "abc":
        placed(made, stage, gpu(0.5), 1)
    made.release("a")
    words = "one slot takes 1 gpu, and 2 GPUs are partly used; a whole one is free on no node of the mesh"
    assert made.refusal("p", gpu(1)) == (Reason.INSTANCES_FRAGMENTED, words)
    assert not made.fits("p", gpu(1))
    made.release("c")
    assert placed(made, "d", gpu(1), 2) == ("n0",)


def test_slots_that_join_a_stage_keep_their_gpus():
    made = gpu_placement(2)
    placed(made, "s", gpu(0.6), 1)
    placed(made, "s+", gpu(0.6), 1)
    made.join("s", "s+")
    assert list(made.check()) == []
    made.release("s")
    assert list(made.check()) == []
    assert len(placed(made, "t", gpu(1))) == 2


THREE = (node("a", 2), node("b", 3), node("c", 4))


@pytest.mark.parametrize(
    ("strategy", "size", "gangs", "distinct"),
    [("PACK", 4, 2, 1), ("SPREAD", 3, 3, 3), ("STRICT_PACK", 3, 2, 1), ("STRICT_SPREAD", 3, 2, 3)],
    ids=["pack", "spread", "strict pack", "strict spread"],
)
def test_gangs_are_placed_by_their_strategy(strategy, size, gangs, distinct):
    made, gang = placement(*THREE, capacity=9), Gang(size=size, bundle=ONE, strategy=strategy)
    nodes = placed(made, slot=gang)
    assert (len(nodes) // size, made.copies("p", gang)) == (gangs, gangs)
    assert len(set(nodes[:size])) == distinct
    assert not made.fits("p", gang)


def test_a_gang_holds_the_nodes_of_all_bundles_or_none():
    made, gang = placement(node("a", 2), node("b", 2), capacity=4), Gang(size=3, bundle=ONE)
    placed(made, "s", cpu(2), 1)
    assert placed(made, "t", gang) == ()
    words = "3 bundles of 1 cpu each, 2 have a node; the gang starts when all have one"
    assert made.refusal("p", gang) == (Reason.NODES_BUSY, words)
    made.release("s")
    assert len(placed(made, "t", gang)) == 3


def test_bundles_that_no_nodes_hold_together_are_counted():
    gang = Gang(size=3, bundle=ONE, strategy="STRICT_SPREAD")
    words = "3 bundles of 1 cpu each on nodes of their own, 2 would have a node of pool p when all are empty"
    assert placement(node("a", 4), node("b", 4)).refusal("p", gang) == (Reason.NO_NODE_FITS, words)


@pytest.mark.parametrize(
    ("strategy", "size", "gpus", "copies"),
    [
        ("PACK", 3, 0.6, 0),
        ("STRICT_PACK", 3, 0.6, 0),
        ("STRICT_PACK", 2, 0.6, 1),
        ("PACK", 2, 0.6, 1),
        ("STRICT_PACK", 2, 0.5, 2),
        ("PACK", 1, 1.5, 0),
    ],
)
def test_bundles_of_a_gang_share_no_gpu_in_parts(strategy, size, gpus, copies):
    total = ResourceSet.of({"gpu": 2})
    made = SlotPlacement(PoolLedger((PoolSpec(pool="p", capacity=total),)))
    made.see([NodeSeen(node="a", total=total, labels={}, available=total)])
    gang = Gang(size=size, bundle=ResourceSet.of({"gpu": gpus}), strategy=strategy)
    assert (made.copies("p", gang), made.fits("p", gang)) == (copies, copies > 0)
    if not copies:
        assert made.refusal("p", gang)[0] is Reason.NO_NODE_FITS
    assert len(placed(made, slot=gang)) == copies * size


def test_gangs_go_back_whole():
    made, gang = placement(*THREE, capacity=9), Gang(size=2, bundle=ONE, strategy="STRICT_SPREAD")
    nodes = placed(made, slot=gang, most=3)
    made.withdraw("s", tuple(reversed(nodes[2:4])))
    assert made.nodes_of("s") == (*nodes[:2], *nodes[4:])
    made.keep("s", 1)
    assert made.nodes_of("s") == nodes[:2]
    made.withdraw("s", ("a", "nowhere"))
    assert made.nodes_of("s") == nodes[:2]
    assert list(made.check()) == []
