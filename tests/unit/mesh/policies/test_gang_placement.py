"""Placement of all members of a gang, or of none."""

from __future__ import annotations

import numpy as np
import pytest

from mesh.policies.catalogue import node_policy
from mesh.policies.gang import STRATEGIES, place_all
from mesh.policies.policy import NodeDemand, NodeScoringView
from mesh.policies.policy_fixtures import demand, node, view


def first(count: int) -> int:
    """Random generator that always returns 0."""
    return 0


def placed(demands: list[NodeDemand], nodes: NodeScoringView, name: str = "gang", strategy: str = "") -> tuple[int, ...] | None:
    return place_all(demands, nodes, node_policy(name), first, strategy=strategy)


def test_s37_a_gang_that_does_not_fit_as_a_whole_gets_nothing():
    assert placed([demand(cpu=4)] * 3, view(node(cpu=(8, 8)), node(cpu=(3, 8)))) is None


def test_s37_a_gang_that_fits_gets_a_node_for_each_member():
    assert placed([demand(cpu=1), demand(cpu=8), demand(gpu=1)], view(node(cpu=(8, 8)), node(cpu=(1, 1), gpu=(1, 1)))) == (1, 0, 1)


def test_s37_members_of_a_gang_are_placed_by_their_policy():
    nodes = view(node(cpu=(8, 8)), node(cpu=(8, 8)))
    assert placed([demand(cpu=1)] * 4, nodes, "job_affinity") == (0, 0, 0, 0)
    assert placed([demand(cpu=1)] * 4, nodes, "job_anti_affinity") == (0, 1, 0, 1)
    assert placed([demand(cpu=1)] * 4, nodes, "spread") == (0, 1, 0, 1)


def test_a_gang_leaves_the_view_as_it_was():
    nodes = view(node(cpu=(8, 8)), node(cpu=(8, 8)))
    before = nodes.free.copy()
    placed([demand(cpu=2)] * 3, nodes)
    assert (nodes.free == before).all()
    assert not nodes.busy.any()
    assert not nodes.of_job.any()


def test_packing_finds_what_the_members_own_policy_misses():
    nodes = view(node(cpu=(4, 4)), node(cpu=(3, 3)))
    assert placed([demand(cpu=3), demand(cpu=2), demand(cpu=2)], nodes, "least_busy") == (1, 0, 0)


@pytest.mark.parametrize(
    ("strategy", "rows"),
    [
        pytest.param("STRICT_PACK", None, id="three of two CPUs are too much for any one node"),
        pytest.param("STRICT_SPREAD", None, id="two nodes are too few for three"),
        pytest.param("PACK", (0, 0, 1), id="pack begins the next node when the first is full"),
        pytest.param("SPREAD", (0, 1, 0), id="spread comes back when nodes run out"),
    ],
)
def test_strategies_of_placement_groups_are_kept(strategy: str, rows: tuple[int, ...] | None):
    assert placed([demand(cpu=2)] * 3, view(node(cpu=(5, 5)), node(cpu=(5, 5))), "spread", strategy) == rows


def test_strict_pack_takes_one_node_for_all():
    assert placed([demand(cpu=2)] * 2, view(node(cpu=(3, 8)), node(cpu=(8, 8))), "binpack", "STRICT_PACK") == (1, 1)


def test_no_members_need_no_nodes():
    assert placed([], view(node(cpu=(8, 8)))) == ()


def test_an_unknown_strategy_error_lists_the_known_ones():
    with pytest.raises(ValueError, match=f"must be one of {', '.join(STRATEGIES[1:])}"):
        placed([demand(cpu=1)], view(node(cpu=(8, 8))), strategy="LOOSE")


def test_gpus_are_placed_before_memory_and_memory_before_cpus():
    nodes = view(node(cpu=(8, 8), gpu=(1, 1), memory=("8GiB", "8GiB")))
    seen: list[tuple[int, ...]] = []

    def score(wanted: NodeDemand, rows: NodeScoringView) -> np.ndarray:
        seen.append(tuple(int(amount > 0) for amount in wanted.wanted))
        return np.zeros(len(rows.total))

    place_all([demand(cpu=1), demand(memory="1GiB"), demand(gpu=1)], nodes, type(node_policy("spread"))("own", score), first)
    assert seen == [(0, 1, 0), (0, 0, 1), (1, 0, 0)]
