"""Distinct sizes of nodes."""

from hypothesis import given
from hypothesis import strategies as st

from mesh.core.node_sizes import SIZES_MAX, NodeSize, sizes_of
from mesh.core.resources import ResourceSet

LARGE, SMALL = ResourceSet.of({"cpu": 4}), ResourceSet.of({"cpu": 2, "gpu": 1})
TOTALS = st.builds(lambda cpu, gpu: ResourceSet({"cpu": cpu, "gpu": gpu}), st.integers(0, 9), st.integers(0, 9))


def test_nodes_of_one_size_are_counted():
    assert sizes_of([SMALL, LARGE, SMALL]) == (NodeSize(total=LARGE, nodes=1), NodeSize(total=SMALL, nodes=2))
    assert sizes_of([]) == ()


@given(st.lists(TOTALS, max_size=120))
def test_each_node_fits_a_reported_size_and_is_counted_once(totals):
    sizes = sizes_of(totals)
    assert len(sizes) <= SIZES_MAX
    assert sum(size.nodes for size in sizes) == len(totals)
    assert all(any(total <= size.total for size in sizes) for total in totals)
    if len(set(totals)) <= SIZES_MAX:
        assert {size.total for size in sizes} == set(totals)
