"""Laws of the estimated end of a run: never before now, never earlier for more work, never later for more slots."""

from __future__ import annotations

import numpy as np
from examples_of_laws import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from dag.progress.estimate import WorkLeft, ends_at_ms, work_left

NOW_MS = 1_700_000_000_000
spans = st.integers(0, 10**9).map(float)


@st.composite
def graphs(draw):
    """Return times of nodes in topological order, and edges that go forward."""
    times = draw(st.lists(spans, min_size=1, max_size=30))
    places = st.integers(0, len(times) - 1)
    edges = draw(st.lists(st.tuples(places, places).filter(lambda edge: edge[0] < edge[1]), max_size=60))
    return times, edges


def left_of(times, edges):
    ends = np.array(edges, np.int64).reshape(-1, 2)
    return work_left(np.array(times), np.array(times), ends[:, 0], ends[:, 1])


@settings(max_examples=examples(200))
@given(st.builds(WorkLeft, slot_ms=spans, way_ms=spans), st.integers(0, 10_000))
def test_the_end_is_never_in_the_past(left, slots):
    end_ms = ends_at_ms(NOW_MS, left, slots)
    assert end_ms is None or end_ms >= NOW_MS


@settings(max_examples=examples(200))
@given(graphs(), st.integers(1, 100), st.data())
def test_more_work_ends_no_earlier_and_more_slots_end_no_later(graph, slots, data):
    times, edges = graph
    before = ends_at_ms(NOW_MS, left_of(times, edges), slots)
    place, more = data.draw(st.integers(0, len(times) - 1)), data.draw(spans)
    grown = [time + more if number == place else time for number, time in enumerate(times)]
    assert ends_at_ms(NOW_MS, left_of(grown, edges), slots) >= before
    assert ends_at_ms(NOW_MS, left_of([*times, more], [*edges, (place, len(times))]), slots) >= before
    assert ends_at_ms(NOW_MS, left_of(times, edges), slots + 1) <= before


@settings(max_examples=examples(200))
@given(graphs())
def test_the_way_is_the_longest_chain(graph):
    times, edges = graph
    longest = list(times)
    for node in range(len(times)):
        longest[node] += max((longest[need] for need, reader in edges if reader == node), default=0.0)
    assert left_of(times, edges).way_ms == max(longest)
