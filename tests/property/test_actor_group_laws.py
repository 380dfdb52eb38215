"""Laws of actor groups, for every shape, value and number of ranks."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.actors.collecting import collected
from mesh.actors.dimensions import Dimensions
from mesh.actors.dispatching import ByLength, SequenceSplit, Split, natural_collect, weighted_bounds
from mesh.actors.members import RankView
from mesh.actors.resharding import assembled, plan_reshard
from mesh.actors.selection import STRATEGIES, Load
from mesh.core.ids import AgentId

sizes = st.dictionaries(st.sampled_from(["pipeline", "tensor", "sequence", "data"]), st.integers(1, 4), min_size=1, max_size=3)
shapes = sizes.map(Dimensions)
values = st.one_of(
    st.lists(st.integers(), max_size=20),
    st.lists(st.integers(), max_size=20).map(tuple),
    st.text(max_size=20),
    st.lists(st.integers(), max_size=20).map(lambda items: {"x": items, "y": [str(item) for item in items]}),
)


def view(dimensions):
    return RankView(dimensions, tuple(AgentId(f"a-{rank}") for rank in dimensions), ({},) * dimensions.count)


def through(dispatch, dimensions, value):
    """Dispatch the value to agents that return their arguments, and collect the results."""
    calls = list(dispatch(view(dimensions), (value,), {}))
    return collected(natural_collect(dispatch), tuple(call[1][0] for call in calls), tuple(call[0] for call in calls), dimensions)


@given(values, st.integers(1, 8))
def test_what_is_split_and_put_together_is_what_it_was(value, count):
    assert through(Split(), Dimensions.of(count, None), value) == value


@given(st.integers(0, 7), st.integers(0, 7), shapes, st.data())
@settings(max_examples=60)
def test_a_grid_of_blocks_is_put_together_as_it_was_cut(rows, columns, dimensions, data):
    array = np.arange(rows * columns).reshape(rows, columns)
    names = data.draw(st.lists(st.sampled_from(list(dimensions.sizes)), unique=True, max_size=2, min_size=1))
    dispatch = Split(axes=dict(zip(names, (0, 1), strict=False)))
    np.testing.assert_array_equal(through(dispatch, dimensions, array), array)


@given(st.integers(1, 4), st.integers(0, 12), st.integers(1, 5))
def test_sequences_come_back_whole_with_padding_at_the_end(batch, length, places):
    array = np.arange(1, batch * length + 1).reshape(batch, length)
    back = through(SequenceSplit(pad=0), Dimensions({"sequence": places}), array)
    assert back.shape[1] % places == 0
    assert back.shape[1] - length < places
    np.testing.assert_array_equal(back[:, :length], array)
    assert not back[:, length:].any()


@given(st.lists(st.integers(0, 50), max_size=30), st.integers(1, 6))
def test_ranks_get_an_even_share_up_to_the_longest_sequence(lengths, count):
    bounds = weighted_bounds(lengths, count)
    assert bounds[0] == 0
    assert bounds[-1] == len(lengths)
    assert bounds == sorted(bounds)
    shares = [sum(lengths[begin:end]) for begin, end in pairwise(bounds)]
    assert max(shares) <= sum(lengths) / count + max(lengths, default=0)


@given(st.lists(st.text(max_size=6), max_size=12), st.integers(1, 5))
def test_sequences_dealt_by_length_keep_their_order(sequences, count):
    assert through(ByLength(), Dimensions.of(count, None), sequences) == sequences


@given(st.lists(st.lists(st.integers(), max_size=6), min_size=1, max_size=6), st.integers(1, 6))
def test_resharding_keeps_order_and_evens_out(parts, count):
    plan = plan_reshard([len(part) for part in parts], count)
    dealt = [
        assembled([(stretch.begin, stretch.end) for stretch in stretches], [parts[stretch.part] for stretch in stretches])
        for stretches in plan
    ]
    assert [item for part in dealt for item in part] == [item for part in parts for item in part]
    assert len(dealt) == count
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1


@given(shapes)
def test_rank_and_coordinates_are_inverse(dimensions):
    assert [dimensions.rank(**dimensions.coordinates(rank)) for rank in dimensions] == list(dimensions)


@given(shapes, st.data())
def test_slicing_one_dimension_after_the_other_is_slicing_both(dimensions, data):
    name = data.draw(st.sampled_from(list(dimensions.sizes)))
    at = data.draw(st.integers(0, dimensions.size(name) - 1))
    ranks, rest = dimensions.where({name: at})
    assert [dimensions.coordinates(rank)[name] for rank in ranks] == [at] * len(ranks)
    assert len(ranks) == rest.count
    if rest.sizes:
        second = data.draw(st.sampled_from(list(rest.sizes)))
        place = data.draw(st.integers(0, rest.size(second) - 1))
        inner, _ = rest.where({second: place})
        assert tuple(ranks[rank] for rank in inner) == dimensions.where({name: at, second: place})[0]


@given(shapes, st.data())
def test_parts_along_a_dimension_hold_every_rank_once(dimensions, data):
    name = data.draw(st.sampled_from(list(dimensions.sizes)))
    parts = [dimensions.where({name: at})[0] for at in range(dimensions.size(name))]
    assert sorted(rank for part in parts for rank in part) == list(dimensions)
    assert sorted(rank for lane in dimensions.lanes(name) for rank in lane) == list(dimensions)


@given(shapes, st.integers(-3, 3), st.data())
def test_going_there_and_back_along_a_dimension_leads_home(dimensions, by, data):
    name = data.draw(st.sampled_from(list(dimensions.sizes)))
    rank = data.draw(st.integers(0, dimensions.count - 1))
    there = dimensions.neighbour(rank, name, by, wrap=True)
    assert there is not None
    assert there in dimensions.peers(rank, name)
    assert dimensions.neighbour(there, name, -by, wrap=True) == rank


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.sampled_from([1.0, 5.0, 9.0])), min_size=1, max_size=9),
    st.integers(0, 20),
    st.randoms(use_true_random=False),
)
def test_least_busy_and_priority_pick_the_best(rows, turn, random_stream):
    loads = [Load(in_flight=sent, elsewhere=others, priority=priority) for sent, others, priority in rows]
    chosen = loads[STRATEGIES["least_busy"](loads, turn, random_stream.randrange)]
    assert chosen.waiting == min(load.waiting for load in loads)
    chosen = loads[STRATEGIES["priority"](loads, turn, random_stream.randrange)]
    best = [load for load in loads if load.priority == max(load.priority for load in loads)]
    assert chosen.waiting == min(load.waiting for load in best)
    assert chosen in best
