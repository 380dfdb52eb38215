"""Selection of the agent for a call, by the open calls of each."""

import pytest

from mesh.actors.errors import GroupError
from mesh.actors.selection import STRATEGIES, Load, least_busy, power_of_two, priority, round_robin, strategy_named


def loads(*in_flight, priorities=None):
    return [Load(in_flight=count, priority=(priorities or [5.0] * len(in_flight))[place]) for place, count in enumerate(in_flight)]


def drawing(*numbers):
    left = list(numbers)
    return lambda count: left.pop(0) % count


def nothing_drawn(count):
    raise AssertionError("this strategy asks for no chance")


def sent(strategy, candidates, calls, draw=nothing_drawn):
    """Return the agents of so many calls, none of which ends."""
    chosen, turn = [], 0
    for _ in range(calls):
        index = strategy(candidates, turn, draw)
        candidates[index].in_flight += 1
        chosen.append(index)
        turn = index + 1
    return chosen


def test_s3_least_busy_spreads_calls_that_are_under_way():
    assert sorted(sent(least_busy, loads(0, 0, 0, 0), 12)) == sorted([0, 1, 2, 3] * 3)


def test_s3_least_busy_rotates_over_idle_agents():
    idle, chosen, turn = loads(0, 0, 0), [], 0
    for _ in range(6):
        index = least_busy(idle, turn, nothing_drawn)
        chosen.append(index)
        turn = index + 1
    assert chosen == [0, 1, 2, 0, 1, 2]


def test_s3_an_agent_that_reports_a_long_queue_is_left_alone():
    candidates = loads(0, 0, 0)
    candidates[0].report(1000)
    assert 0 not in sent(least_busy, candidates, 12)
    candidates = loads(0, 0)
    candidates[0].report(1000)
    assert sent(power_of_two, candidates, 6, drawing(*[0, 0] * 6)) == [1] * 6


def test_what_an_agent_reports_is_not_counted_twice():
    load = Load(in_flight=3)
    load.report(5)
    assert (load.elsewhere, load.waiting) == (2, 5)
    load.report(2)
    assert (load.elsewhere, load.waiting) == (0, 3)


def test_s3_round_robin_goes_on_where_it_ended():
    assert sent(round_robin, loads(9, 0, 0), 7) == [0, 1, 2, 0, 1, 2, 0]


def test_s3_random_takes_whom_chance_names():
    assert sent(STRATEGIES["random"], loads(0, 0, 0), 4, drawing(2, 0, 1, 1)) == [2, 0, 1, 1]


@pytest.mark.parametrize(
    ("drawn", "chosen"),
    [
        pytest.param((0, 0), 1, id="the second of two has less to do"),
        pytest.param((2, 0), 0, id="the first has more"),
        pytest.param((2, 1), 1, id="the least busy of the two"),
        pytest.param((1, 1), 1, id="the less busy one came first"),
    ],
)
def test_s3_power_of_two_takes_the_less_busy_of_two(drawn, chosen):
    assert power_of_two(loads(4, 1, 7), 0, drawing(*drawn)) == chosen


def test_power_of_two_needs_no_second_one_where_there_is_none():
    assert power_of_two(loads(3), 0, drawing(0)) == 0


def test_s3_priority_takes_the_least_busy_of_the_highest():
    candidates = loads(0, 2, 1, 0, priorities=[1.0, 9.0, 9.0, 5.0])
    assert sent(priority, candidates, 4) == [2, 1, 2, 1]


@pytest.mark.parametrize("name", list(STRATEGIES))
@pytest.mark.parametrize("count", [1, 2, 5], ids=lambda count: f"of {count}")
def test_every_strategy_chooses_somebody_who_is_there(name, count):
    chosen = sent(strategy_named(name), loads(*[0] * count), 20, drawing(*range(1, 60)))
    assert set(chosen) <= set(range(count))


def test_an_unknown_strategy_error_lists_the_known_ones():
    with pytest.raises(GroupError, match=r"no strategy 'lest_busy'; known: least_busy, random, round_robin, power_of_two, priority"):
        strategy_named("lest_busy")


def test_a_strategy_that_is_built_in_is_taken_as_it_is():
    assert strategy_named(round_robin) is round_robin


def test_a_strategy_of_ones_own_chooses():
    assert strategy_named(lambda given, _turn, _draw: len(given) - 1)(loads(0, 0), 0, nothing_drawn) == 1


@pytest.mark.parametrize("index", [2, -1, None, 0.5, "0", True], ids=repr)
def test_a_strategy_that_chooses_nobody_who_is_there_is_named(index):
    def mine(_loads, _turn, _draw):
        return index

    with pytest.raises(GroupError, match=r"strategy mine returned .* for 2 agents; it must return an index from 0 to 1"):
        strategy_named(mine)(loads(0, 0), 0, nothing_drawn)
