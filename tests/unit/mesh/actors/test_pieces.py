"""Cutting and joining of values."""

import numpy as np
import pytest

from mesh.actors.errors import DispatchError
from mesh.actors.pieces import cut, join, length_along, padded


@pytest.mark.parametrize(
    ("value", "count", "pieces"),
    [
        pytest.param([1, 2, 3, 4, 5], 2, [[1, 2, 3], [4, 5]], id="the first piece gets the one that is left"),
        pytest.param([1, 2], 4, [[1], [2], [], []], id="fewer values than pieces leave the last ones empty"),
        pytest.param([], 2, [[], []], id="nothing gives empty pieces"),
        pytest.param((1, 2, 3), 3, [(1,), (2,), (3,)], id="tuples stay tuples"),
        pytest.param("abcde", 2, ["abc", "de"], id="text"),
        pytest.param(range(4), 2, [range(2), range(2, 4)], id="ranges"),
        pytest.param({"x": [1, 2, 3], "y": "abc"}, 2, [{"x": [1, 2], "y": "ab"}, {"x": [3], "y": "c"}], id="dicts by their values"),
        pytest.param({}, 2, [{}, {}], id="a dict without values"),
    ],
)
def test_values_are_cut_in_order_and_as_even_as_can_be(value, count, pieces):
    assert cut(value, count) == pieces


@pytest.mark.parametrize("axis", [0, 1, -1], ids=lambda axis: f"axis {axis}")
@pytest.mark.parametrize("count", [1, 2, 3, 7], ids=lambda count: f"{count} pieces")
def test_arrays_are_cut_as_numpy_does_it(count, axis):
    array = np.arange(30).reshape(5, 6)
    for own, numpys in zip(cut(array, count, axis), np.array_split(array, count, axis), strict=True):
        np.testing.assert_array_equal(own, numpys)
        assert own.base is not None, "a piece is a view, not a copy"


@pytest.mark.parametrize(
    ("value", "axis", "message"),
    [
        pytest.param(7, 0, "int cannot be split", id="a number"),
        pytest.param({1, 2}, 0, "set cannot be split", id="a set has no order"),
        pytest.param([1, 2], 1, "list cannot be split along axis 1", id="a list has one axis"),
        pytest.param(np.zeros(3), 1, "an array of shape (3,) has no axis 1", id="an array without that axis"),
        pytest.param(np.zeros(()), 0, "an array of shape () has no axis 0", id="an array of one number"),
        pytest.param({"x": [1, 2], "y": [1]}, 0, "got x: 2, y: 1", id="a dict of different lengths"),
    ],
)
def test_what_cannot_be_cut_is_named(value, axis, message):
    with pytest.raises(DispatchError) as caught:
        length_along(value, axis)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("pieces", "value"),
    [
        pytest.param([[1], [], [2]], [1, 2], id="lists"),
        pytest.param([(1,), (2,)], (1, 2), id="tuples"),
        pytest.param(["ab", "c"], "abc", id="text"),
        pytest.param([b"ab", b"c"], b"abc", id="bytes"),
        pytest.param([{"x": [1]}, {"x": [2]}], {"x": [1, 2]}, id="dicts by key"),
        pytest.param([None, None], None, id="nothing everywhere"),
        pytest.param([], [], id="no pieces"),
    ],
)
def test_pieces_are_put_together_in_order(pieces, value):
    assert join(pieces) == value


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        pytest.param([1.5, 2.5], 'collect_fn="gather"', id="numbers have no ends"),
        pytest.param([[1], None], "NoneType, list", id="somebody returned nothing"),
        pytest.param([{"x": [1]}, {"y": [1]}], "different keys", id="dicts with different keys"),
        pytest.param([np.zeros((2, 2)), np.zeros((2, 3))], "do not fit together", id="arrays that do not fit"),
        pytest.param([np.zeros(()), np.zeros(())], "ndarray", id="arrays of one number"),
    ],
)
def test_an_impossible_join_error_names_the_remedy(pieces, message):
    with pytest.raises(DispatchError) as caught:
        join(pieces)
    assert message in str(caught.value)


def test_padding_fills_the_end_of_arrays_lists_and_dicts():
    np.testing.assert_array_equal(padded(np.ones((2, 2)), 3, 1, 0), [[1, 1, 0], [1, 1, 0]])
    assert padded([1], 3, 0, 9) == [1, 9, 9]
    assert padded({"x": [1]}, 2, 0, 0) == {"x": [1, 0]}
    assert padded([1, 2], 2, 0, 0) == [1, 2]
    with pytest.raises(DispatchError, match="str cannot be padded"):
        padded("a", 2, 0, "b")
