"""Selection strategies: choose the member for a call by the candidates' loads.

A strategy is a pure function of the loads, the turn (where the last choice ended) and randomness. Loads and turn are stored in the group,
so strategies have no state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import SupportsIndex

from mesh.actors.errors import GroupError
from mesh.core.counting import counted
from mesh.core.task_spec import DEFAULT_PRIORITY

#: `draw(n)`: an integer from 0 to n - 1.
Draw = Callable[[int], int]


@dataclass(slots=True, eq=False)
class Load:
    """Load of one agent as known to this caller. Counts are calls and never negative."""

    priority: float = DEFAULT_PRIORITY
    in_flight: int = 0  #: Sent from here and not answered.
    elsewhere: int = 0  #: From other callers, by the agent's last report.
    is_out: bool = False  #: Its process is gone.

    @property
    def waiting(self) -> int:
        """Number of calls ahead of the next one."""
        return self.in_flight + self.elsewhere

    def report(self, queued: int) -> None:
        """Record the agent's total number of calls, including those sent from here."""
        self.elsewhere = max(0, queued - self.in_flight)


#: From `(loads, turn, draw)` to the index of the chosen load. There is at least one load; `turn` is any integer.
Strategy = Callable[[Sequence[Load], int, Draw], int]


def least_busy(loads: Sequence[Load], turn: int, _draw: Draw) -> int:
    """Return the index of the agent with the fewest calls; equals rotate."""
    count = len(loads)
    best, fewest = turn % count, -1
    for step in range(count):
        index = (turn + step) % count
        waiting = loads[index].waiting
        if waiting == 0:
            return index
        if fewest < 0 or waiting < fewest:
            best, fewest = index, waiting
    return best


def round_robin(loads: Sequence[Load], turn: int, _draw: Draw) -> int:
    """Return the indices in rotation, whatever the loads."""
    return turn % len(loads)


def at_random(loads: Sequence[Load], _turn: int, draw: Draw) -> int:
    """Return a random index."""
    return draw(len(loads))


def power_of_two(loads: Sequence[Load], _turn: int, draw: Draw) -> int:
    """Return the index of the less loaded of two random agents.

    Source: Mitzenmacher, The Power of Two Choices in Randomized Load Balancing, 2001.
    """
    count = len(loads)
    first = draw(count)
    if count == 1:
        return first
    second = draw(count - 1)
    second += second >= first
    return first if loads[first].waiting <= loads[second].waiting else second


def priority(loads: Sequence[Load], turn: int, draw: Draw) -> int:
    """Return the index of the agent with the highest priority; among equals the least busy."""
    highest = max(load.priority for load in loads)
    indexes = [index for index, load in enumerate(loads) if load.priority == highest]
    begin = next((place for place, index in enumerate(indexes) if index >= turn), 0)
    return indexes[least_busy([loads[index] for index in indexes], begin, draw)]


STRATEGIES: Mapping[str, Strategy] = {
    "least_busy": least_busy,
    "random": at_random,
    "round_robin": round_robin,
    "power_of_two": power_of_two,
    "priority": priority,
}


def strategy_named(name: str | Strategy) -> Strategy:
    """Return the strategy with this name; the result of a user's function is checked on each call.

    Raises:
        GroupError: The name is unknown.
    """
    if callable(name):
        return name if name in STRATEGIES.values() else _looked_at(name)
    found = STRATEGIES.get(name)
    if found is None:
        raise GroupError(f"there is no strategy {name!r}; known: {', '.join(STRATEGIES)}")
    return found


def _looked_at(strategy: Strategy) -> Strategy:
    """Wrap a user's strategy to raise `GroupError` when it does not return an index of a load."""

    def choose(loads: Sequence[Load], turn: int, draw: Draw) -> int:
        index: object = strategy(loads, turn, draw)
        if not isinstance(index, SupportsIndex) or isinstance(index, bool) or not 0 <= int(index) < len(loads):
            name = getattr(strategy, "__name__", repr(strategy))
            gave = f"strategy {name} returned {index!r} for {counted(len(loads), 'agent')}"
            raise GroupError(f"{gave}; it must return an index from 0 to {len(loads) - 1}")
        return int(index)

    return choose
