"""Choice of each node policy, with its reason."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from mesh.core.reasons import Reason
from mesh.core.task_spec import Weights
from mesh.policies import hybrid, node_affinity, weighted
from mesh.policies.catalogue import node_policy
from mesh.policies.fragmentation import CommonShapes
from mesh.policies.policy import Draw, FloatArray, NodeDemand, NodeScoringView, PlacementRefused
from mesh.policies.policy_fixtures import demand, node, view


def first(count: int) -> int:
    """Random generator that always returns 0."""
    return 0


def chosen(name: str, wanted: NodeDemand, nodes: NodeScoringView, draw: Draw = first) -> int | None:
    fits = (nodes.free >= wanted.wanted).all(axis=1)
    found = node_policy(name)
    return found.pick(np.where(fits, found.score(wanted, nodes), -np.inf), wanted, draw)


def reached(name: str, wanted: NodeDemand, nodes: NodeScoringView) -> set[int | None]:
    random_stream = random.Random(7)
    return {chosen(name, wanted, nodes, random_stream.randrange) for _ in range(100)}


# -- Ray's own ---------------------------------------------------------------------------------------------------------


def test_s32_hybrid_packs_below_the_threshold():
    assert chosen("hybrid", demand(cpu=1), view(node(cpu=(6, 10)), node(cpu=(10, 10)))) == 0
    assert chosen("hybrid", demand(cpu=1), view(node(cpu=(5, 10)), node(cpu=(10, 10)))) == 1


def test_s32_hybrid_draws_among_the_best_fifth_of_the_nodes():
    assert reached("hybrid", demand(cpu=1), view(*[node(cpu=(8, 8))] * 10)) == {0, 1}


def test_s32_hybrid_draws_among_the_absolute_count_if_larger():
    assert reached("hybrid", demand(cpu=1, top_k_absolute=4), view(*[node(cpu=(8, 8))] * 10)) == {0, 1, 2, 3}


def test_s32_hybrid_draws_only_among_nodes_with_room():
    assert reached("hybrid", demand(cpu=2, top_k_absolute=3), view(node(cpu=(1, 8)), node(cpu=(2, 8)), node(cpu=(8, 8)))) == {1, 2}


def test_s32_hybrid_prefers_the_submitters_node_among_equals():
    nodes = view(node(cpu=(8, 8)), node(cpu=(5, 8), is_named=True), node(cpu=(8, 8)))
    assert reached("hybrid", demand(cpu=1, top_k_absolute=3), nodes) == {1}
    nodes = view(node(cpu=(8, 8)), node(cpu=(3, 8), is_named=True), node(cpu=(8, 8)))
    assert reached("hybrid", demand(cpu=1, top_k_absolute=2), nodes) == {0, 2}


def test_s32_hybrid_avoids_gpu_nodes_for_cpu_work():
    nodes = view(node(cpu=(8, 8), gpu=(4, 4), is_named=True), node(cpu=(1, 8)))
    assert reached("hybrid", demand(cpu=1, top_k_absolute=2), nodes) == {1}
    assert reached("hybrid", demand(cpu=1, gpu=1), nodes) == {0}
    assert reached("hybrid", demand(cpu=2), nodes) == {0}, "the last resort"


def test_s32_hybrid_sends_work_that_wants_nothing_anywhere():
    nodes = view(node(cpu=(0, 8)), node(cpu=(8, 8), gpu=(1, 1)), node(cpu=(8, 8), is_named=True))
    assert reached("hybrid", demand(), nodes) == {0, 1, 2}


def test_hybrid_counts_a_node_lowered_below_its_use_as_full():
    assert chosen("hybrid", demand(), view(node(cpu=(0, 4)))) == 0
    assert hybrid.score(demand(), view(node(cpu=(0, 4))))[0] == pytest.approx(1.0)


def test_s32_spread_balances_tasks_over_nodes():
    nodes = view(*[node(cpu=(64, 64)) for _ in range(4)])
    went: Counter[int | None] = Counter()
    for _ in range(12):
        row = chosen("spread", demand(cpu=1), nodes)
        went[row] += 1
        nodes.busy[row] += 1
    assert went == {0: 3, 1: 3, 2: 3, 3: 3}


def test_random_takes_every_node_that_has_room():
    assert reached("random", demand(cpu=1), view(node(cpu=(1, 8)), node(cpu=(0, 8)), node(cpu=(8, 8)))) == {0, 2}


@pytest.mark.parametrize("name", ["hybrid", "spread", "random", "power_of_two", "locality", "node_affinity", "binpack", "weighted"])
def test_no_policy_takes_a_node_when_none_has_room(name: str):
    assert chosen(name, demand(cpu=9, names_node=True), view(node(cpu=(8, 8), is_named=True))) is None
    assert node_policy(name).pick(np.zeros(0), demand(cpu=1), first) is None


# -- a named node ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("soft", [False, True], ids=["hard", "soft"])
def test_s32_node_affinity_waits_for_a_busy_named_node(soft: bool):
    nodes = view(node(cpu=(0, 8), is_named=True), node(cpu=(8, 8)))
    settled = node_affinity.settle(demand(cpu=1, soft=soft, names_node=True), nodes.total[0])
    assert isinstance(settled, NodeDemand)
    assert chosen("node_affinity", settled, nodes) is None


@pytest.mark.parametrize(
    ("total", "reason"),
    [
        pytest.param(None, Reason.NAMED_NODE_GONE, id="the named node is gone"),
        pytest.param([10_000, 0, 0], Reason.NAMED_NODE_TOO_SMALL, id="the named node could never hold it"),
    ],
)
def test_s32_node_affinity_fails_hard_work_and_moves_soft_work(total: list[int] | None, reason: Reason):
    named = None if total is None else np.array(total)
    refused = node_affinity.settle(demand(cpu=2, names_node=True), named)
    assert isinstance(refused, PlacementRefused)
    assert refused.reason is reason
    settled = node_affinity.settle(demand(cpu=2, names_node=True, soft=True), named)
    assert isinstance(settled, NodeDemand)
    assert chosen("node_affinity", settled, view(node(cpu=(8, 8)))) == 0


@pytest.mark.parametrize("soft", [False, True], ids=["hard", "soft"])
def test_node_affinity_refuses_work_that_names_no_node(soft: bool):
    refused = node_affinity.settle(demand(cpu=2, soft=soft), None)
    assert isinstance(refused, PlacementRefused)
    assert (refused.reason, "names none" in refused.detail) == (Reason.REQUEST_INVALID, True)


def test_node_affinity_comes_back_when_the_named_node_does():
    nodes = view(node(cpu=(8, 8)), node(cpu=(8, 8), is_named=True))
    away = node_affinity.settle(demand(cpu=2, names_node=True, soft=True), None)
    assert isinstance(away, NodeDemand)
    back = node_affinity.settle(away, nodes.total[1])
    assert isinstance(back, NodeDemand)
    assert chosen("node_affinity", back, nodes) == 1


def test_node_affinity_without_a_name_takes_no_node():
    assert chosen("node_affinity", demand(cpu=1), view(node(cpu=(8, 8)))) is None


# -- where the data is -------------------------------------------------------------------------------------------------


def test_s33_locality_takes_the_node_with_most_argument_bytes():
    nodes = view(node(cpu=(8, 8), local_bytes=10), node(cpu=(1, 8), local_bytes=2**40), node(cpu=(8, 8)))
    assert chosen("locality", demand(cpu=1), nodes) == 1
    assert chosen("locality", demand(cpu=2), nodes) == 0, "it has no room there, and the next one has some bytes"


def test_s33_of_two_nodes_with_as_many_bytes_hybrid_decides():
    nodes = view(node(cpu=(1, 8), local_bytes=2**30), node(cpu=(8, 8), local_bytes=2**30))
    assert chosen("locality", demand(cpu=1), nodes) == 1


def test_s33_one_byte_outweighs_all_that_hybrid_minds():
    nodes = view(node(cpu=(8, 8)), node(cpu=(1, 8), gpu=(1, 1), local_bytes=1))
    assert chosen("locality", demand(cpu=1), nodes) == 1


# -- load --------------------------------------------------------------------------------------------------------------


def test_least_busy_does_not_send_everything_to_the_first_node():
    """A placement counts at once, before any node reports its load."""
    nodes = view(*[node(cpu=(64, 64)) for _ in range(4)])
    went: Counter[int | None] = Counter()
    for _ in range(200):
        row = chosen("least_busy", demand(cpu=1), nodes)
        assert row is not None
        went[row] += 1
        nodes.free[row] -= demand(cpu=1).wanted
    assert went == {0: 50, 1: 50, 2: 50, 3: 50}


def test_least_busy_counts_tasks_when_they_want_nothing():
    assert chosen("least_busy", demand(), view(node(cpu=(8, 8), busy=2), node(cpu=(0, 8), busy=1))) == 1


def test_power_of_two_never_takes_the_worst_of_several():
    assert reached("power_of_two", demand(cpu=1), view(node(cpu=(1, 8)), node(cpu=(5, 8)), node(cpu=(8, 8)))) == {1, 2}


def test_power_of_two_takes_the_only_node():
    assert chosen("power_of_two", demand(cpu=1), view(node(cpu=(0, 8)), node(cpu=(8, 8)))) == 1


def test_s13_priority_keeps_whole_nodes_for_the_urgent():
    nodes = view(node(cpu=(4, 8)), node(cpu=(8, 8)))
    assert chosen("priority", demand(cpu=1), nodes) == 0
    assert chosen("priority", demand(cpu=1, is_urgent=True), nodes) == 1


# -- TY-Arranger's -----------------------------------------------------------------------------------------------------


def test_s37_binpack_takes_the_fullest_node_that_has_room():
    assert chosen("binpack", demand(cpu=2), view(node(cpu=(8, 8)), node(cpu=(1, 8)), node(cpu=(3, 8)))) == 2


def test_s37_binpack_looks_at_requested_resources_only():
    nodes = view(node(cpu=(8, 8), gpu=(2, 4)), node(cpu=(1, 8), gpu=(4, 4)))
    assert chosen("binpack", demand(gpu=1), nodes) == 0


def test_s37_leader_first_spreads_the_leader_and_packs_workers():
    nodes = view(node(cpu=(2, 8)), node(cpu=(8, 8)), node(cpu=(8, 8), gpu=(1, 4)), node(cpu=(8, 8), gpu=(4, 4)))
    assert chosen("leader_first", demand(cpu=1, gpu=1, role="leader"), nodes) == 3
    assert chosen("leader_first", demand(cpu=1, role="actors"), nodes) == 0


def test_s37_leader_first_weighs_gpus_more_for_the_leader():
    nodes = view(node(cpu=(2, 8), gpu=(4, 4)), node(cpu=(8, 8), gpu=(3, 4)))
    assert chosen("leader_first", demand(cpu=1, gpu=1, role="leader"), nodes) == 0


def test_s37_min_fragment_is_one_minus_the_gap_times_the_score():
    nodes = view(node(cpu=(5, 10), memory=("5GiB", "10GiB")), node(cpu=(1, 10), memory=("9GiB", "10GiB")))
    scores = node_policy("min_fragment").score(demand(cpu=1, memory="1GiB"), nodes)
    assert scores == pytest.approx([(1 - 0) * 0.6, (1 - 0.8) * 0.6])


def test_s37_min_fragment_sees_no_gap_without_known_memory():
    assert node_policy("min_fragment").score(demand(cpu=1), view(node(cpu=(5, 10)))) == pytest.approx([0.6])


def test_s37_job_affinity_gathers_and_anti_affinity_scatters():
    nodes = view(node(cpu=(1, 8), of_job=1), node(cpu=(8, 8), of_job=2), node(cpu=(8, 8)))
    assert chosen("job_affinity", demand(cpu=1), nodes) == 1
    assert chosen("job_anti_affinity", demand(cpu=1), nodes) == 2


def test_s37_job_members_count_before_utilization():
    nodes = view(node(cpu=(8, 8), of_job=3_000), node(cpu=(1, 8), of_job=2_999))
    assert chosen("job_affinity", demand(cpu=1), nodes) == 0
    assert chosen("job_anti_affinity", demand(cpu=1), nodes) == 1


# -- the seed's score --------------------------------------------------------------------------------------------------


def only(**term: float) -> Weights:
    return Weights(**{"availability": 0.0, "fragmentation": 0.0, "locality": 0.0, "contention": 0.0, **term})


def term(name: str, wanted: NodeDemand, nodes: NodeScoringView) -> FloatArray:
    """Return one term of the weighted score: the score when all other weights are 0, without its sign."""
    score = weighted.score(replace(wanted, weights=only(**{name: 1.0})), nodes)
    return score if name in ("availability", "locality") else -score


def test_s11_the_weighted_score_is_the_published_formula():
    nodes = view(node(cpu=(4, 8), gpu=(2, 4), memory=("8GiB", "16GiB"), busy=3, local_bytes=2**28), node(cpu=(8, 8), busy=1))
    wanted = demand(cpu=2, weights=Weights(availability=0.3, fragmentation=0.7, locality=0.5, contention=0.2))
    terms = ("availability", "fragmentation", "locality", "contention")
    available, fragmented, local, contended = (term(name, wanted, nodes) for name in terms)
    assert weighted.score(wanted, nodes) == pytest.approx(0.3 * available - 0.7 * fragmented + 0.5 * local - 0.2 * contended)
    assert local[0] == pytest.approx(0.5)
    assert contended == pytest.approx([3 / 12, 1 / 10])
    assert available == pytest.approx([2 / 8, 6 / 8])


@pytest.mark.parametrize(
    ("weights", "row"),
    [
        pytest.param(only(availability=1.0), 1, id="alpha takes the node with most free"),
        pytest.param(only(fragmentation=1.0), 0, id="beta fills the node that is begun"),
        pytest.param(only(locality=1.0), 2, id="gamma takes the node with the arguments"),
        pytest.param(only(contention=1.0), 3, id="delta takes the node with fewest tasks"),
    ],
)
def test_s11_weights_say_which_node_is_best(weights: Weights, row: int):
    nodes = view(node(cpu=(3.5, 8), busy=5), node(cpu=(8, 8), busy=5), node(cpu=(4, 8), busy=5, local_bytes=10), node(cpu=(4, 8), busy=1))
    assert chosen("weighted", demand(cpu=0.5, weights=weights), nodes) == row


def test_s11_fragmentation_counts_lost_copies_of_common_shapes():
    common = CommonShapes.of([[80_000, 80_000, 0], [10_000, 0, 0]])
    whole, begun, no_gpus = node(cpu=(8, 8), gpu=(8, 8)), node(cpu=(4, 8), gpu=(4, 8)), node(cpu=(8, 8))
    added = term("fragmentation", demand(cpu=1, common=common), view(whole, begun, no_gpus))
    assert added[0] == pytest.approx(1.0), "a CPU on a whole GPU node costs the node and itself"
    assert added[1] == added[2] == pytest.approx(0.1)


def test_s11_without_known_shapes_whole_nodes_are_used_last():
    nodes = view(node(cpu=(8, 8)), node(cpu=(7.5, 8)), node(cpu=(4, 8)))
    added = term("fragmentation", demand(cpu=0.5), nodes)
    assert added[0] == pytest.approx(1 / 3), "all that a node of one kind of resource counts for"
    assert added[1] == pytest.approx(0.0), "the eighth is begun already"
    assert 0.0 < added[2] < added[0]


@pytest.mark.parametrize(
    "common", [None, CommonShapes.of([[20_000, 0, 0], [10_000, 10_000, 2**30]])], ids=["nothing known", "shapes known"]
)
def test_s11_each_term_is_from_0_to_1(common: CommonShapes | None):
    random_stream = random.Random(11)
    for _ in range(200):
        rows = [
            node(cpu=(cpu := random_stream.randrange(9), 8), gpu=(gpu := random_stream.randrange(5), 4), busy=random_stream.randrange(30))
            for _ in range(5)
        ]
        wanted = demand(cpu=min(cpu, random_stream.randrange(9)), gpu=min(gpu, random_stream.randrange(5)), common=common)
        nodes = view(*rows)
        fits = (nodes.free >= wanted.wanted).all(axis=1)
        for name in ("availability", "fragmentation", "contention"):
            values = term(name, wanted, nodes)[fits]
            assert ((values >= -1e-9) & (values <= 1 + 1e-9)).all()
