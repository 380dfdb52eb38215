"""Collectors: the results of all ranks as one value."""

import numpy as np
import pytest

from mesh.actors.collecting import Concat, LastStage, collected, collector_named, first, gather, mean, total
from mesh.actors.dimensions import Dimensions
from mesh.actors.errors import DispatchError
from mesh.actors.results import Results


def results(*values, ranks=None, **sizes):
    dimensions = Dimensions(sizes) if sizes else Dimensions.of(len(values), None)
    return Results(values, tuple(range(len(values))) if ranks is None else ranks, dimensions)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("gather", [1, 2, 6], id="a list"),
        pytest.param("first", 1, id="the first"),
        pytest.param("sum", 9, id="the sum"),
        pytest.param("mean", 3.0, id="the mean"),
    ],
)
def test_s4_results_are_collected_by_name(name, value):
    assert collector_named(name)(results(1, 2, 6)) == value


def test_s4_sums_go_by_element_and_by_key():
    added = total(results({"loss": 1.0, "grad": np.array([1, 2])}, {"loss": 2.0, "grad": np.array([3, 4])}))
    assert added["loss"] == 3.0
    np.testing.assert_array_equal(added["grad"], [4, 6])
    assert mean(results({"loss": 1.0}, {"loss": 2.0})) == {"loss": 1.5}


def test_s4_results_are_joined_along_the_named_dimensions():
    blocks = results(*(np.array([[at]]) for at in range(4)), data=2, tensor=2)
    np.testing.assert_array_equal(Concat({"data": 0, "tensor": 1})(blocks), [[0, 1], [2, 3]])
    np.testing.assert_array_equal(Concat({"tensor": 1})(blocks), [[0, 1]])


def test_s4_a_pipeline_gives_what_its_last_stage_returned():
    assert LastStage()(results([1], ["same"], [2], ["same"], ranks=(2, 3, 2, 3), pipeline=2, tensor=2)) == [1, 2]
    assert LastStage()(results()) == []


def test_s4_any_function_of_a_sequence_collects():
    assert sum(results(1, 2)) == 3
    assert max(results(1, 2)) == 2
    np.testing.assert_array_equal(np.vstack(results([1], [2])), [[1], [2]])


def test_results_know_whose_they_are():
    collected = results("a", "b", "c", ranks=(0, 1, 0), rank=2)
    assert collected.by_rank() == {0: ["a", "c"], 1: ["b"]}
    assert collected[1:] == ("b", "c")


@pytest.mark.parametrize(
    ("collect", "found", "message"),
    [
        pytest.param(first, results(), "no rank was called", id="the first of none"),
        pytest.param(total, results(), "no rank was called", id="the sum of none"),
        pytest.param(total, results([1], [2]), "list cannot be added", id="lists have no sum"),
        pytest.param(total, results({"a": 1}, {"b": 1}), "different keys", id="dicts with different keys"),
        pytest.param(Concat({"rank": 0}), results([1], [2], ranks=(0, 0), rank=2), "rank 0 has 2 results", id="two results of one rank"),
        pytest.param(Concat({"rank": 0}), results([1], ranks=(0,), rank=2), "rank 1 has 0 results", id="a rank that was not called"),
    ],
)
def test_what_cannot_be_collected_keeps_the_results(collect, found, message):
    with pytest.raises(DispatchError) as caught:
        collected(collect, found.values, found.ranks, found.dimensions)
    assert message in str(caught.value)
    assert caught.value.results == found.values


def test_an_unknown_collector_error_lists_the_known_ones():
    with pytest.raises(DispatchError, match="no collect_fn 'concate'; known: concat, gather"):
        collector_named("concate")
    assert collector_named(gather) is gather
