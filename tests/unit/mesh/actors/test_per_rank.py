"""Arguments that differ by rank."""

import pytest

from mesh.actors.dimensions import Dimensions
from mesh.actors.errors import DispatchError
from mesh.actors.per_rank import PerRank, at_rank

MESH = Dimensions({"pipeline": 2, "tensor": 2})


def test_s2_each_rank_gets_its_own_of_a_list():
    assert [at_rank(PerRank("abcd"), rank, MESH) for rank in MESH] == ["a", "b", "c", "d"]


def test_s2_a_function_makes_the_value_of_each_place():
    places = PerRank(lambda place: (place.rank, place.count, place["pipeline"], place["tensor"]))
    assert [at_rank(places, rank, MESH) for rank in MESH] == [(0, 4, 0, 0), (1, 4, 0, 1), (2, 4, 1, 0), (3, 4, 1, 1)]


def test_any_other_value_is_the_same_for_all():
    assert at_rank([1, 2, 3, 4], 2, MESH) == [1, 2, 3, 4]


def test_a_list_of_another_length_is_refused():
    with pytest.raises(DispatchError, match="PerRank has 3 values, but the group has 4 ranks"):
        at_rank(PerRank([1, 2, 3]), 0, MESH)
