"""Order and circles of a graph."""

import pytest

from dag.errors import CycleError
from dag.spec.graph import Graph, circle_in_words, circles, topological_order

DIAMOND = Graph({"end": ("left", "right"), "left": ("start",), "right": ("start",), "start": (), "alone": ()})


def test_needs_come_first_and_the_given_order_breaks_ties():
    assert topological_order(DIAMOND) == ("start", "left", "right", "end", "alone")
    assert topological_order(Graph(dict.fromkeys("bca", ()))) == ("b", "c", "a")


def test_edges_are_counted_and_followers_are_in_order():
    assert DIAMOND.edge_count() == 4
    assert DIAMOND.followers()["start"] == ["left", "right"]


def test_a_graph_without_circle_has_none():
    assert list(circles(DIAMOND)) == []


@pytest.mark.parametrize(
    ("needs", "circle"),
    [
        pytest.param({"a": ("a",)}, ("a",), id="a node that needs itself"),
        pytest.param({"a": ("b",), "b": ("a",)}, ("a", "b"), id="two that need each other"),
        pytest.param(
            {"x": (), "b": ("a",), "c": ("b",), "a": ("c", "x")},
            ("b", "c", "a"),
            id="three, reported along the flow from the first in the spec",
        ),
    ],
)
def test_a_cycle_is_reported_node_by_node(needs, circle):
    assert list(circles(Graph(needs))) == [circle]
    with pytest.raises(CycleError, match=" -> ".join((*circle, circle[0]))):
        topological_order(Graph(needs))


def test_each_knot_gives_one_circle():
    assert list(circles(Graph({"d": ("c",), "c": ("d",), "b": ("a", "d"), "a": ("b",)}))) == [("d", "c"), ("b", "a")]


def test_a_long_cycle_is_found_and_abbreviated():
    count = 20_000
    (circle,) = circles(Graph({str(index): (str((index - 1) % count),) for index in range(count)}))
    assert len(circle) == count
    words = circle_in_words(circle)
    assert words.startswith("the graph runs in a circle: 0 -> 1 -> 2 -> ")
    assert words.endswith(" -> 19999 -> 0")
    assert "(19981 more)" in words
