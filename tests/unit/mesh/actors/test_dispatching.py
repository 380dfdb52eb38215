"""Dispatches: the arguments that each rank gets."""

import numpy as np
import pytest

from mesh.actors.collecting import Concat, gather
from mesh.actors.dimensions import Dimensions
from mesh.actors.dispatching import (
    Broadcast,
    ByLength,
    HandOver,
    Parts,
    SequenceSplit,
    Split,
    dispatcher_named,
    natural_collect,
    weighted_bounds,
)
from mesh.actors.errors import DispatchError, ShapeError
from mesh.actors.members import RankView
from mesh.core.ids import AgentId


def view(count=0, **sizes):
    dimensions = Dimensions(sizes) if sizes else Dimensions.of(count, None)
    return RankView(dimensions, tuple(AgentId(f"a-{rank}") for rank in dimensions), ({},) * dimensions.count)


def dealt(dispatch, ranks, *args, **kwargs):
    """Return the arguments of each rank, as lists."""
    return [(rank, *_plain(own), dict(_plain(named))) for rank, own, named in (call[:3] for call in dispatch(ranks, args, kwargs))]


def _plain(value):
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return tuple(map(_plain, value)) if isinstance(value, tuple) else value


def test_s4_split_cuts_the_first_argument_only():
    assert dealt(Split(), view(2), [1, 2, 3], "all", lr=0.1) == [(0, [1, 2], "all", {"lr": 0.1}), (1, [3], "all", {"lr": 0.1})]


def test_s4_split_cuts_each_argument_that_is_named():
    split = Split(arguments=(0, "weights"))
    assert dealt(split, view(2), "ab", weights=[1, 2]) == [(0, "a", {"weights": [1]}), (1, "b", {"weights": [2]})]


def test_s4_every_rank_is_called_even_with_an_empty_part():
    assert [call[:2] for call in dealt(Split(), view(4), [1, 2])] == [(0, [1]), (1, [2]), (2, []), (3, [])]
    assert [call[:2] for call in dealt(Split(), view(2), [])] == [(0, []), (1, [])]


def test_ranks_with_nothing_are_left_out_when_that_is_asked():
    assert [call[:2] for call in dealt(Split(skip_empty=True), view(4), [1, 2])] == [(0, [1]), (1, [2])]
    assert dealt(Split(skip_empty=True), view(2), np.zeros((0, 3))) == []
    assert dealt(Split(skip_empty=True), view(2), {"x": []}) == []


def test_s4_tensor_cuts_columns_and_stages_get_the_same():
    rows = [[1, 2, 3, 4], [5, 6, 7, 8]]
    left, right = [[1, 2], [5, 6]], [[3, 4], [7, 8]]
    calls = dealt(dispatcher_named("tensor"), view(pipeline=2, tensor=2), np.array(rows))
    assert [call[:2] for call in calls] == [(0, left), (1, right), (2, left), (3, right)]


def test_s4_a_grid_cuts_along_two_dimensions():
    calls = dealt(Split(axes={"data": 0, "tensor": 1}), view(data=2, tensor=2), np.array([[1, 2], [3, 4]]))
    assert [call[1] for call in calls] == [[[1]], [[2]], [[3]], [[4]]]


def test_s4_sequence_pads_to_one_length_and_reports_it():
    dispatch = SequenceSplit(pad=0, valid_count="valid")
    calls = dealt(dispatch, view(sequence=4), np.array([[1, 2, 3, 4, 5]]))
    assert calls == [(0, [[1, 2]], {"valid": 2}), (1, [[3, 4]], {"valid": 2}), (2, [[5, 0]], {"valid": 1}), (3, [[0, 0]], {"valid": 0})]


def test_s4_sequence_without_padding_cuts_as_it_comes_out():
    calls = dealt(SequenceSplit(), view(sequence=2, tensor=2), np.array([[1, 2, 3]]))
    assert [call[1] for call in calls] == [[[1, 2]], [[1, 2]], [[3]], [[3]]]


def test_s4_by_length_balances_tokens_between_ranks():
    sequences = ["a" * 8, "b", "c", "d" * 2, "e" * 4]
    assert [call[1] for call in dealt(ByLength(), view(2), sequences)] == [["a" * 8], ["b", "c", "d" * 2, "e" * 4]]


def test_by_length_takes_the_lengths_that_padding_hides():
    padded = np.zeros((4, 9))
    calls = list(ByLength(lengths=[9, 1, 1, 1])(view(2), (padded,), {}))
    assert [len(call[1][0]) for call in calls] == [1, 3]


def test_s4_broadcast_gives_everybody_the_very_same():
    value = object()
    assert [call[1][0] for call in Broadcast()(view(3), (value,), {})] == [value] * 3


def test_s4_parts_are_given_as_they_were_cut():
    assert [call[:2] for call in dealt(Parts(), view(2), ["x", "y"])] == [(0, "x"), (1, "y")]


def test_s4_pipeline_passes_results_on_and_keeps_the_last():
    calls = HandOver(chunks=2)(view(pipeline=3), ([1, 2], "mask"), {})
    sent = [next(calls)]
    sent += [calls.send(f"ref-{number}") for number in range(1, 6)]
    assert next(calls, "the end") == "the end"
    assert sent == [
        (0, ([1], "mask"), {}, False),
        (1, ("ref-1", "mask"), {}, False),
        (2, ("ref-2", "mask"), {}, True),
        (0, ([2], "mask"), {}, False),
        (1, ("ref-4", "mask"), {}, False),
        (2, ("ref-5", "mask"), {}, True),
    ]


@pytest.mark.parametrize(
    ("dispatch", "ranks", "args", "error", "message"),
    [
        pytest.param(Split(), view(2), (), DispatchError, "argument 0 is to be split", id="nothing to cut"),
        pytest.param(Split(arguments=("x",)), view(2), (), DispatchError, "argument 'x' is to be split", id="a name that is missing"),
        pytest.param(Split(arguments=(0, 1)), view(2), ([1], [1, 2]), DispatchError, "equal lengths, got 0: 1, 1: 2", id="lengths"),
        pytest.param(Parts(), view(2), ([1],), DispatchError, "got 1 part for 2 ranks", id="parts that are too few"),
        pytest.param(ByLength(lengths=[1]), view(2), ([1, 2],), DispatchError, "got 1 lengths for 2", id="lengths that are too few"),
        pytest.param(Split(axes={"tensor": 0}), view(2), ([1],), ShapeError, "no dimension 'tensor'", id="no such dimension"),
        pytest.param(HandOver(), view(2), ([1],), ShapeError, "no dimension 'pipeline'", id="no stages"),
    ],
)
def test_an_impossible_dispatch_is_refused_before_any_call(dispatch, ranks, args, error, message):
    calls = iter(dispatch(ranks, args, {}))
    with pytest.raises(error) as caught:
        next(calls)
    assert message in str(caught.value)


def test_an_unknown_dispatch_error_lists_the_known_ones():
    with pytest.raises(DispatchError, match="no dispatch_fn 'spilt'; known: split, broadcast"):
        dispatcher_named("spilt")


def test_a_dispatch_names_what_undoes_it_and_ones_own_gathers():
    assert natural_collect(Split(axes={"tensor": -1})) == Concat({"tensor": -1})
    assert natural_collect(lambda *_: []) is gather


def test_runs_of_weights_stand_in_order_and_none_is_lost():
    assert weighted_bounds([5, 1, 1, 1], 3) == [0, 1, 1, 4]
    assert weighted_bounds([], 2) == [0, 0, 0]
    assert weighted_bounds([0, 0], 2)[0] == 0
    assert weighted_bounds([0, 0], 2)[-1] == 2
