"""Named dimensions: positions of ranks, slices, neighbours and errors of shapes."""

import pytest

from mesh.actors.dimensions import Dimensions
from mesh.actors.errors import ShapeError

MESH = Dimensions({"pipeline": 2, "tensor": 3})


def test_s1_ranks_run_row_by_row_through_the_named_dimensions():
    assert [MESH.coordinates(rank) for rank in MESH] == [{"pipeline": stage, "tensor": place} for stage in range(2) for place in range(3)]
    assert [MESH.rank(pipeline=stage, tensor=place) for stage in range(2) for place in range(3)] == list(range(6))


def test_s1_pipeline_tensor_and_sequence_make_one_mesh():
    mesh = Dimensions({"pipeline": 2, "tensor": 2, "sequence": 2})
    assert mesh.count == 8
    assert mesh.where({"pipeline": 1, "sequence": 0}) == ((4, 6), Dimensions({"tensor": 2}))


@pytest.mark.parametrize(
    ("choices", "ranks", "sizes"),
    [
        pytest.param({}, (0, 1, 2, 3, 4, 5), {"pipeline": 2, "tensor": 3}, id="nothing chosen is the whole"),
        pytest.param({"tensor": 0}, (0, 3), {"pipeline": 2}, id="a coordinate takes its dimension away"),
        pytest.param({"tensor": -1}, (2, 5), {"pipeline": 2}, id="a negative coordinate counts from the end"),
        pytest.param({"tensor": [0, 2]}, (0, 2, 3, 5), {"pipeline": 2, "tensor": 2}, id="several coordinates keep their dimension"),
        pytest.param({"tensor": slice(1, None)}, (1, 2, 4, 5), {"pipeline": 2, "tensor": 2}, id="a range keeps its dimension"),
        pytest.param({"pipeline": 1, "tensor": 2}, (5,), {}, id="all coordinates leave one member without dimensions"),
    ],
)
def test_a_slice_has_the_ranks_and_dimensions_that_remain(choices, ranks, sizes):
    assert MESH.where(choices) == (ranks, Dimensions(sizes))


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        pytest.param(
            lambda: MESH.where({"tensr": 0}), "no dimension 'tensr'; this group is pipeline=2 x tensor=3", id="an unknown dimension"
        ),
        pytest.param(
            lambda: MESH.where({"tensor": 3}), "tensor=3 is out of range: tensor has 3 places, 0 to 2", id="a place beyond the end"
        ),
        pytest.param(lambda: MESH.where({"tensor": []}), "tensor=[] selects no rank: tensor has 3 places", id="no place at all"),
        pytest.param(lambda: MESH.where({"tensor": [1, -2]}), "contains a duplicate", id="one place twice"),
        pytest.param(lambda: MESH.rank(tensor=1), "pipeline must be given too", id="a missing coordinate"),
        pytest.param(lambda: MESH.rank(pipeline=0, tensor=True), "tensor=True is out of range", id="a truth value for a place"),
        pytest.param(lambda: MESH.coordinates(6), "no rank 6; this group is pipeline=2 x tensor=3, with ranks 0 to 5", id="a rank beyond"),
        pytest.param(lambda: MESH.neighbour(0, "sequence"), "no dimension 'sequence'", id="a neighbour along nothing"),
        pytest.param(lambda: Dimensions.of(8, {"pipeline": 2, "tensor": 3}), "needs 6 members, got 8", id="too many members"),
        pytest.param(lambda: Dimensions({"tensor": 0}), "a size of at least 1", id="a dimension without places"),
    ],
)
def test_a_shape_error_names_the_dimension_and_its_size(ask, message):
    with pytest.raises(ShapeError) as caught:
        ask()
    assert message in str(caught.value)


def test_neighbours_are_one_step_along_a_dimension():
    assert MESH.neighbour(1, "pipeline") == 4
    assert MESH.neighbour(4, "pipeline") is None
    assert MESH.neighbour(4, "pipeline", wrap=True) == 1
    assert MESH.neighbour(3, "tensor", -1) is None
    assert MESH.neighbour(3, "tensor", -1, wrap=True) == 5


def test_a_process_group_differs_in_one_dimension_only():
    assert MESH.peers(4, "tensor") == (3, 4, 5)
    assert MESH.peers(4, "pipeline") == (1, 4)
    assert MESH.lanes("pipeline") == ((0, 3), (1, 4), (2, 5))


def test_a_group_without_a_shape_is_a_row_and_may_be_empty():
    row = Dimensions.of(3, None)
    assert row.is_flat
    assert row.coordinates(2) == {"rank": 2}
    assert Dimensions.of(0, None).count == 0
    assert list(Dimensions.of(0, None)) == []


def test_the_shape_of_a_single_member_has_no_dimension():
    assert Dimensions({}).count == 1
    assert Dimensions({}).coordinates(0) == {}
    assert str(Dimensions({})) == "a single member"
