"""Laws of `split`, on random graphs and placements."""

from __future__ import annotations

from itertools import count

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from dag.run.stages import split
from dag.spec.graph import Graph, topological_order

NODES = [f"n{index}" for index in range(14)]
MESHES = ["east", "north", "west"]


@st.composite
def placed_graphs(draw):
    """Return nodes in topological order, their edges, and a mesh for each."""
    count = draw(st.integers(1, len(NODES)))
    names = draw(st.permutations(NODES[:count]))
    pairs = [(names[low], names[high]) for high in range(count) for low in range(high)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=40)) if pairs else []
    return names, edges, {node: draw(st.sampled_from(MESHES)) for node in names}


def stages_of(order, edges, mesh_of):
    return split(order, edges, mesh_of, map(str, count(1)))


def stage_of(stages):
    return {node: stage for stage in stages for node in stage.nodes}


@given(placed_graphs())
def test_every_node_is_in_exactly_one_stage_and_in_order(graph):
    order, edges, mesh_of = graph
    stages = stages_of(order, edges, mesh_of)
    assert sorted(node for stage in stages for node in stage.nodes) == sorted(order)
    for stage in stages:
        assert {mesh_of[node] for node in stage.nodes} == {stage.mesh}
        assert list(stage.nodes) == sorted(stage.nodes, key=order.index)


@given(placed_graphs())
def test_stages_form_no_circle(graph):
    order, edges, mesh_of = graph
    of = stage_of(stages_of(order, edges, mesh_of))
    view = nx.DiGraph()
    for low, high in edges:
        if of[low] is not of[high]:
            view.add_edge((of[low].mesh, of[low].level), (of[high].mesh, of[high].level))
            assert of[low].level < of[high].level
    assert nx.is_directed_acyclic_graph(view)


@given(placed_graphs())
def test_a_level_is_the_least_that_the_placement_allows(graph):
    order, edges, mesh_of = graph
    of = stage_of(stages_of(order, edges, mesh_of))
    view = nx.DiGraph(edges)
    view.add_nodes_from(order)
    for low, high in edges:
        view.edges[low, high]["border"] = int(mesh_of[low] != mesh_of[high])
    most = nx.dag_longest_path_length(view, weight="border") if edges else 0
    assert max(stage.level for stage in of.values()) == most


@given(placed_graphs())
def test_the_width_is_between_one_and_what_could_run_at_once(graph):
    order, edges, mesh_of = graph
    for stage in stages_of(order, edges, mesh_of):
        inside = nx.DiGraph(edges).subgraph(stage.nodes).copy()
        inside.add_nodes_from(stage.nodes)
        widest = max(len(nodes) for nodes in nx.antichains(inside))
        assert 1 <= stage.width <= widest


@given(placed_graphs(), st.randoms(use_true_random=False))
def test_the_order_of_the_edges_does_not_matter(graph, random_stream):
    order, edges, mesh_of = graph
    shuffled = random_stream.sample(edges, len(edges))
    assert stages_of(order, shuffled, mesh_of) == stages_of(order, edges, mesh_of)


@given(placed_graphs())
def test_the_topological_order_is_valid_and_stable(graph):
    order, edges, _ = graph
    needs = {node: tuple(low for low, high in edges if high == node) for node in sorted(order)}
    view = nx.DiGraph(edges)
    view.add_nodes_from(needs)
    assert list(topological_order(Graph(needs))) == list(nx.lexicographical_topological_sort(view))
