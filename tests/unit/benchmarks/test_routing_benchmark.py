"""The benchmark of routing measures what it says."""

from benchmarks import routing


def test_every_node_of_every_graph_is_placed():
    found = routing.measure(1, meshes=12, nodes=40)
    assert [(side.kinds, side.inputs) for side in found] == list(routing.GRAPHS)
    assert {(side.meshes, side.nodes, side.placed) for side in found} == {(12, 40, 40)}
    assert all(side.place_ms > 0 for side in found)


def test_json_and_table_hold_the_same_metrics():
    found = routing.measure(1, meshes=3, nodes=5)
    document = routing.as_json(found)
    assert document["name"] == "routing"
    assert [side["place_ms"] for side in document["sides"]] == [side.place_ms for side in found]
    assert routing.table(found).row_count == len(found)
