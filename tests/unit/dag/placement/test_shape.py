"""Metrics of graphs: levels, components, fusion, cuts."""

from __future__ import annotations

from dag.placement.shape import border_levels, components, cut_edges, distinct_transfers, shape_of

LADDER = [(), (0,), (0,), (1, 2), (3,), ()]


def test_a_graph_has_its_levels_components_and_chains():
    shape = shape_of(range(6), LADDER)
    assert shape._asdict() == {"tasks": 6, "edges": 5, "components": 2, "levels": 4, "width": 2, "linear_edges": 1}


def test_a_chain_of_ten_thousand_is_walked_without_recursion():
    needs = [(), *((node,) for node in range(9_999))]
    assert shape_of(range(10_000), needs).linear_edges == 9_999


def test_needs_outside_connect_nothing():
    assert len(set(components(["b", "c"], {"b": ["a"], "c": ["a"]}).values())) == 2


def test_a_level_rises_at_each_border():
    needs = {"a": (), "b": ("a",), "c": ("b",), "d": ("a", "c")}
    at = {"a": "east", "b": "west", "c": "west", "d": "east"}
    assert border_levels("abcd", needs, at) == {"a": 0, "b": 1, "c": 1, "d": 2}


def test_an_object_crosses_once_for_all_its_readers():
    at = ["east", "west", "west", "east"]
    assert cut_edges([(), (0,), (0,), (0,)], at) == 2
    assert distinct_transfers([("x", 0, 1), ("x", 0, 2), ("x", 0, 3)], {"x": 7}, at) == (1, 7)
