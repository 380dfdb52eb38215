"""Policies by name: aliases, combinations, and policies that users add."""

from __future__ import annotations

import re

import numpy as np
import pytest

from mesh.policies.catalogue import ALIASES, POLICIES, Catalogue, UnknownPolicy, chosen, node_policy
from mesh.policies.policy import Policy, highest
from mesh.policies.policy_fixtures import demand, node, view

NODES = view(node(cpu=(2, 8), busy=3), node(cpu=(8, 8)), node(cpu=(5, 8), busy=1))


def test_s13_the_defaults_of_the_seed_are_there_under_its_names():
    assert [node_policy(name).name for name in ("least_busy", "binpacking", "priority")] == ["least_busy", "binpack", "priority"]


@pytest.mark.parametrize("name", [*POLICIES, *ALIASES])
def test_every_name_leads_to_a_policy_that_scores_each_row(name: str):
    assert node_policy(name).score(demand(cpu=1, names_node=True), NODES).shape == (3,)


@pytest.mark.parametrize("name", sorted(name for name, found in POLICIES.items() if found.pick is highest and name != "weighted"))
def test_what_can_be_combined_scores_from_0_to_1(name: str):
    scores = node_policy(name).score(demand(cpu=1), NODES)
    assert ((scores >= 0) & (scores <= 1)).all()


def test_s13_a_combination_is_the_weighted_mean_of_its_parts():
    wanted = demand(cpu=1)
    least_busy, binpack = node_policy("least_busy").score(wanted, NODES), node_policy("binpack").score(wanted, NODES)
    assert node_policy("least_busy+binpacking").score(wanted, NODES) == pytest.approx((least_busy + binpack) / 2)
    assert node_policy("3*least_busy + 1*binpack").score(wanted, NODES) == pytest.approx((3 * least_busy + binpack) / 4)


def test_s13_a_combination_leaves_the_scores_of_its_parts_alone():
    first = node_policy("weighted+spread").score(demand(cpu=1), NODES)
    assert (node_policy("weighted+spread").score(demand(cpu=1), NODES) == first).all()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        pytest.param("bestest", r"there is no policy 'bestest'; policies: binpack, .*weighted, and sums", id="an unknown name"),
        pytest.param("binpak", r"there is no policy 'binpak'; did you mean binpack\?", id="a slip of a letter"),
        pytest.param("least_busy+spred", r"policy 'spred' cannot be combined; did you mean spread\?", id="a slip in a part"),
        pytest.param("least_busy+bestest", r"policy 'bestest' cannot be combined; these can: binpack,", id="an unknown part"),
        pytest.param("hybrid+binpack", r"policy 'hybrid' cannot be combined", id="a part with a pick of its own"),
        pytest.param("x*binpack", r"weight 'x' must be a positive", id="a weight that is no number"),
        pytest.param("-1*binpack", r"weight '-1' must be a positive", id="a negative weight"),
        pytest.param("nan*binpack", r"weight 'nan' must be a positive", id="a weight that is not a number"),
        pytest.param("", r"there is no policy ''", id="no name at all"),
    ],
)
def test_an_invalid_name_is_explained(name: str, words: str):
    with pytest.raises(UnknownPolicy) as caught:
        node_policy(name)
    assert re.search(words, str(caught.value))


def test_s33_locality_is_the_default_without_any_named_policy():
    assert chosen("", "hybrid", has_local_bytes=True) == "locality"
    assert chosen("", "DEFAULT", has_local_bytes=True) == "locality"
    assert chosen("", "hybrid", has_local_bytes=False) == "hybrid"
    assert chosen("spread", "hybrid", has_local_bytes=True) == "spread"
    assert chosen("", "binpack", has_local_bytes=True) == "binpack"


def test_s13_an_added_policy_is_found_and_can_be_combined():
    added = Policy("mine", lambda _, view: np.linspace(0, 1, len(view.total)))
    catalogue = Catalogue({"mine": added})
    assert catalogue.policy("mine") is added
    assert catalogue.policy("mine+spread").score(demand(cpu=1), NODES)[1] == pytest.approx((0.5 + 1.0) / 2)
    assert "mine" in catalogue.names


@pytest.mark.parametrize("name", ["hybrid", "binpacking", "a+b", "2*a", ""])
def test_an_added_policy_cannot_shadow_a_built_in_one(name: str):
    with pytest.raises(UnknownPolicy, match="choose another name"):
        Catalogue({name: POLICIES["spread"]})
