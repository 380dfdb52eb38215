"""The benchmark of the way from `bind` to plans measures what it says."""

from benchmarks import compiling


def test_every_step_of_every_graph_takes_time():
    found = compiling.measure(1, sizes=(100,))
    assert [(side.graph, side.nodes) for side in found] == [(name, 100) for name in compiling.GRAPHS]
    assert all(side.us_a_node["compile"] > 0 and side.parts_ms["door"] > 0 for side in found)
    document = compiling.as_json(found)
    assert [side["us_a_node"] for side in document["sides"]] == [side.us_a_node for side in found]
    assert compiling.table(found).row_count == len(found[0].us_a_node) + len(found[0].parts_ms) + 2
