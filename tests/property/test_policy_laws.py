"""Laws of all node policies: independent scores, picks that fit, gangs that fit or are not placed."""

from __future__ import annotations

import random
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.core.task_spec import Weights
from mesh.policies.catalogue import POLICIES, node_policy
from mesh.policies.fragmentation import CommonShapes, fragmentation
from mesh.policies.gang import STRATEGIES, place_all
from mesh.policies.policy import NodeDemand, NodeScoringView
from mesh.policies.policy_fixtures import demand, node, view

SHAPES = CommonShapes.of([[10_000, 0, 0], [20_000, 10_000, 2**30], [80_000, 40_000, 2**33]], [5, 2, 1])
NAMES = [*POLICIES, "least_busy+binpack", "2*weighted+spread"]


@st.composite
def rows(draw: st.DrawFn):
    cpu, gpu, memory = draw(st.integers(0, 16)), draw(st.integers(0, 4)), draw(st.integers(0, 64))
    return node(
        cpu=(draw(st.integers(0, cpu)), cpu),
        gpu=(draw(st.integers(0, gpu)), gpu),
        memory=(f"{draw(st.integers(0, memory))}GiB", f"{memory}GiB"),
        busy=draw(st.integers(0, 40)),
        of_job=draw(st.integers(0, 9)),
        local_bytes=draw(st.sampled_from([0, 1, 2**20, 2**40])),
        is_named=draw(st.booleans()),
    )


demands = st.builds(
    demand,
    cpu=st.integers(0, 8),
    gpu=st.integers(0, 2),
    memory=st.integers(0, 8).map("{}GiB".format),
    role=st.sampled_from(["", "leader", "actors"]),
    names_node=st.booleans(),
    elsewhere=st.booleans(),
    is_urgent=st.booleans(),
    common=st.sampled_from([None, SHAPES]),
    top_k_absolute=st.integers(1, 4),
    weights=st.builds(Weights, *[st.floats(0, 2)] * 4),
)
clusters = st.lists(rows(), min_size=1, max_size=8)


def part(nodes: NodeScoringView, place: slice) -> NodeScoringView:
    arrays = {field.name: getattr(nodes, field.name)[place] for field in fields(NodeScoringView) if field.name != "resources"}
    return NodeScoringView(resources=nodes.resources, **arrays)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20)
@given(cluster=clusters, wanted=demands)
def test_a_rows_score_is_its_own_and_the_view_stays_as_it_was(name: str, cluster: list, wanted: NodeDemand):
    nodes = view(*cluster)
    before = {field.name: np.copy(getattr(nodes, field.name)) for field in fields(NodeScoringView) if field.name != "resources"}
    whole = node_policy(name).score(wanted, nodes)
    assert whole.dtype == np.float64
    assert not np.isnan(whole).any()
    for row in range(len(cluster)):
        (alone,) = node_policy(name).score(wanted, part(nodes, slice(row, row + 1)))
        assert alone == pytest.approx(whole[row], rel=1e-12, abs=1e-12)
    assert all((getattr(nodes, name) == array).all() for name, array in before.items())


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20)
@given(cluster=clusters, wanted=demands, seed=st.integers(0, 99))
def test_a_pick_fits_and_exists_whenever_a_row_fits(name: str, cluster: list, wanted: NodeDemand, seed: int):
    nodes = view(*cluster)
    fits = (nodes.free >= wanted.wanted).all(axis=1)
    scores = np.where(fits, node_policy(name).score(wanted, nodes), -np.inf)
    row = node_policy(name).pick(scores, wanted, random.Random(seed).randrange)
    assert (row is None) == bool((scores == -np.inf).all())
    assert row is None or fits[row]


@settings(max_examples=50)
@given(
    cluster=clusters,
    members=st.lists(demands, min_size=1, max_size=6),
    strategy=st.sampled_from(STRATEGIES),
    name=st.sampled_from(["gang", "spread", "hybrid", "weighted"]),
)
def test_a_placed_gang_fits_at_once_and_keeps_its_strategy(cluster: list, members: list[NodeDemand], strategy: str, name: str):
    nodes = view(*cluster)
    placed = place_all(members, nodes, node_policy(name), lambda _: 0, strategy=strategy)
    if placed is None:
        return
    taken = np.zeros_like(nodes.free)
    for row, member in zip(placed, members, strict=True):
        taken[row] += member.wanted
    assert (taken <= nodes.free).all()
    assert strategy != "STRICT_PACK" or len(set(placed)) == 1
    assert strategy != "STRICT_SPREAD" or len(set(placed)) == len(placed)


@settings(max_examples=50)
@given(
    free=st.lists(st.tuples(st.integers(0, 64), st.integers(0, 8)), min_size=1, max_size=8),
    shapes=st.lists(st.tuples(st.integers(1, 16), st.integers(0, 8)), min_size=1, max_size=4),
)
def test_the_index_is_from_0_to_1_and_0_on_a_single_node(free: list[tuple[int, int]], shapes: list[tuple[int, int]]):
    assert 0.0 <= fragmentation(free, shapes) <= 1.0
    assert fragmentation([np.sum(free, axis=0)], shapes) == 0.0


@settings(max_examples=20)
@given(cluster=clusters, wanted=demands)
def test_the_fragmentation_term_is_between_0_and_1(cluster: list, wanted: NodeDemand):
    nodes = view(*cluster)
    fits = (nodes.free >= wanted.wanted).all(axis=1)
    weights = Weights(availability=0.0, fragmentation=1.0, locality=0.0, contention=0.0)
    wanted = NodeDemand(wanted=wanted.wanted, weights=weights, common=wanted.common)
    added = -node_policy("weighted").score(wanted, nodes)[fits]
    assert ((added >= -1e-9) & (added <= 1 + 1e-9)).all()
