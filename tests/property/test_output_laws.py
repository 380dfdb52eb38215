"""Laws of a node's output: what is kept fits, comes from both ends, and its numbers count what is missing."""

from hypothesis import given
from hypothesis import strategies as st

from mesh.ray.user_code.output_lines import cost_of, keep_within, messages_of
from mesh.stages.messages import OUTPUT_LINES_MAX

LINES = st.lists(st.text("xyz", max_size=30), max_size=40)


@given(LINES, st.integers(0, 50), LINES, st.integers(0, 2_000))
def test_kept_lines_fit_and_are_the_first_and_the_last(first, left_out, last, allowed_bytes):
    kept = keep_within(first, left_out, last, allowed_bytes)
    whole = [*first, *[None] * left_out, *last]
    assert kept.size_bytes <= allowed_bytes
    assert [*kept.first, *[None] * kept.left_out, *kept.last] == [
        line if index < len(kept.first) or index >= len(whole) - len(kept.last) else None for index, line in enumerate(whole)
    ]
    if left_out == 0 and sum(map(cost_of, whole)) <= allowed_bytes:
        assert kept.left_out == 0


@given(LINES, st.integers(0, 50), LINES, st.integers(1, 1_000))
def test_messages_number_each_kept_line_by_its_place(first, left_out, last, number):
    kept = keep_within(first, left_out, last, 2_000)
    messages = messages_of(kept, "stdout", "s", "n", 1, number, at_ms=0)
    numbered = {each.number + place: line for each in messages for place, line in enumerate(each.lines)}
    ends = number + len(kept.first) + kept.left_out
    assert numbered == {number + place: line for place, line in enumerate(kept.first)} | {
        ends + place: line for place, line in enumerate(kept.last)
    }
    assert all(len(each.lines) <= OUTPUT_LINES_MAX for each in messages)
