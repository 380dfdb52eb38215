"""Arrays: their parts, and the tree of a reduction."""

from __future__ import annotations

from itertools import chain, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.stages.arrays import (
    LONG,
    UNKNOWN,
    ArrayArgument,
    Partial,
    Piece,
    Span,
    joined,
    parts_for,
    ranges_of,
    reduced,
    share,
    slices,
    spans_in,
    stream_share,
    stream_starts,
)
from mesh.stages.spec import StageTasks, TaskSpec

COUNTS = st.integers(0, 300)
PARTS = st.integers(1, 40)


@given(count=COUNTS, parts=PARTS)
def test_the_parts_have_each_element_once_and_are_equally_long(count, parts):
    spans = [share(count, number, parts) for number in range(parts)]
    assert list(chain(*spans)) == list(range(count))
    assert max(map(len, spans)) - min(map(len, spans)) <= 1


@given(count=COUNTS, parts=PARTS)
def test_pieces_of_a_list_are_its_parts(count, parts):
    items = list(range(count))
    assert [list(piece) for piece in slices(items, parts)] == [list(share(count, number, parts)) for number in range(parts)]
    by_parts = [ArrayArgument({"$each": None, "share": [number, parts]}, items).piece() for number in range(parts)]
    assert joined(by_parts) == items
    assert {piece.of for piece in by_parts} == {count}


@given(count=COUNTS, more=COUNTS, parts=PARTS)
def test_parts_of_a_growing_list_stay_as_they_are(count, more, parts):
    spans = [stream_share(count, number, parts) for number in range(parts)]
    assert list(chain(*spans)) == list(range(count))
    for number in range(parts - 1):
        if stream_starts(parts)[number + 1] <= count:
            assert stream_share(count + more, number, parts) == spans[number]


@pytest.mark.parametrize("parts", [18, 64, 256, 1_024])
def test_few_lists_reach_the_last_part_of_a_growing_one(parts):
    starts = stream_starts(parts)
    assert starts[:4] == (0, 1, 2, 3) if parts > 18 else starts[:3] == (0, 1, 2)
    assert starts[-1] >= LONG
    assert all(later > earlier for earlier, later in pairwise(starts))


def test_a_part_reads_its_share_or_what_it_was_handed():
    form = {"$each": None, "share": [2, 4], "stream": True}
    assert ArrayArgument(form, list("abcdefgh")).piece() == Piece(2, 8, ["c", "d"])
    assert ArrayArgument(form, Piece(2, UNKNOWN, ["c", "d"])).piece() == Piece(2, UNKNOWN, ["c", "d"])


def part_of(array, source, number, parts, **form):
    argument = {"$each": {"$ref": source}, "share": [number, parts], **form}
    return TaskSpec(node=f"{array}@{number}", attempt=1, function="call:m:f", args=(argument,), inputs=(source,))


def test_parts_read_spans_of_lists_that_grow_in_the_same_stage():
    makes = [TaskSpec(node=name, attempt=1, function="call:m:g") for name in "xy"]
    stream = [part_of("a", "x", number, 4, stream=True) for number in range(4)]
    other = [part_of("b", "y", number, 4) for number in range(4)]
    outside = [part_of("c", "z", number, 4, stream=True) for number in range(4)]
    found = spans_in(StageTasks.of([*makes, *stream, *other, *outside]).calls)
    assert found == {"x": (Span("a@0", 0, 1), Span("a@1", 1, 2), Span("a@2", 2, 4))}


@given(values=st.lists(st.text(max_size=3), max_size=60), parts=PARTS, arity=st.integers(2, 7))
def test_a_reduction_keeps_the_order_however_it_is_grouped(values, parts, arity):
    asked: list[int] = []

    def glue(texts):
        asked.append(len(texts))
        return "".join(texts)

    leaves = [
        reduced(ArrayArgument({"$reduce": None, "arity": arity, "step": "leaf", "share": [number, parts]}, values), glue)
        for number in range(parts)
    ]
    assert all(isinstance(leaf, Partial) for leaf in leaves)
    assert reduced(ArrayArgument({"$reduce": None, "arity": arity, "step": "last"}, leaves), glue) == "".join(values)
    assert max(asked) <= arity


def test_an_empty_reduction_is_that_of_an_empty_list():
    assert reduced(ArrayArgument({"$reduce": None, "arity": 2, "step": "only"}, []), len) == 0


@pytest.mark.parametrize(
    ("count", "asked", "parts"),
    [
        pytest.param(0, None, 1, id="an empty list"),
        pytest.param(10, None, 10, id="fewer elements than parts"),
        pytest.param(5_000, None, 256, id="many elements"),
        pytest.param(1_000_000, None, 1_024, id="a million elements"),
        pytest.param(1_000, 7, 7, id="as many as were asked for"),
    ],
)
def test_the_number_of_parts(count, asked, parts):
    assert parts_for(count, asked) == parts


@pytest.mark.parametrize("value", ["text", b"bytes", {"a": 1}, 7, None])
def test_a_value_that_is_no_list_is_refused(value):
    with pytest.raises(TypeError, match="an array takes a list"):
        ArrayArgument({"$each": None, "share": [0, 1]}, value).piece()


def test_a_part_of_another_array_is_taken_as_it_is():
    piece = Piece(3, 10, ["x"])
    assert ArrayArgument({"$each": None}, piece).piece() is piece


def test_indices_are_shown_as_ranges():
    assert ranges_of([1, 3, 4, 5, 9]) == "1, 3-5, 9"
    assert ranges_of([]) == ""
