"""Whom a call goes to: strategies over what each candidate has to do.

A strategy is a plain function of the candidates' loads, the turn (where the last choice ended) and chance. It keeps nothing:
loads and turn live in the group, so a strategy cannot forget them between two calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import SupportsIndex

from mesh.actors.errors import GroupError
from mesh.counting import counted
from mesh.scheduling.tasks import DEFAULT_PRIORITY

#: `draw(n)`: a whole number from 0 to n - 1.
Draw = Callable[[int], int]


@dataclass(slots=True, eq=False)
class Load:
    """What one agent has to do, as this caller knows it. Counts are calls and never below zero."""

    priority: float = DEFAULT_PRIORITY
    in_flight: int = 0  #: Sent from here and not back yet.
    elsewhere: int = 0  #: Of other callers, by the agent's last report.
    is_out: bool = False  #: Its process is gone.

    @property
    def waiting(self) -> int:
        """Calls before the next one."""
        return self.in_flight + self.elsewhere

    def report(self, queued: int) -> None:
        """The agent says how many calls it has in all; those sent from here are among them."""
        self.elsewhere = max(0, queued - self.in_flight)


#: `(loads, turn, draw)` to the index of the chosen load. There is one load at least; `turn` is any whole number.
Strategy = Callable[[Sequence[Load], int, Draw], int]


def least_busy(loads: Sequence[Load], turn: int, _draw: Draw) -> int:
    """The one with the fewest calls before the next; equals take turns."""
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
    """One after the other, whatever they have to do."""
    return turn % len(loads)


def at_random(loads: Sequence[Load], _turn: int, draw: Draw) -> int:
    """Anyone."""
    return draw(len(loads))


def power_of_two(loads: Sequence[Load], _turn: int, draw: Draw) -> int:
    """Two at random, and of these the one with fewer calls.

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
    """The highest priority; of equals the least busy."""
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
    """The strategy; of one's own function what it chooses is looked at. Raises `GroupError` for an unknown name."""
    if callable(name):
        return name if name in STRATEGIES.values() else _looked_at(name)
    found = STRATEGIES.get(name)
    if found is None:
        raise GroupError(f"there is no strategy {name!r}; there are {', '.join(STRATEGIES)}")
    return found


def _looked_at(strategy: Strategy) -> Strategy:
    """The user's strategy; it raises `GroupError` when what it gives is no index of a load."""

    def choose(loads: Sequence[Load], turn: int, draw: Draw) -> int:
        index: object = strategy(loads, turn, draw)
        if not isinstance(index, SupportsIndex) or isinstance(index, bool) or not 0 <= int(index) < len(loads):
            name = getattr(strategy, "__name__", repr(strategy))
            gave = f"strategy {name} gave {index!r} for {counted(len(loads), 'agent')}"
            raise GroupError(f"{gave}; it has to give an index from 0 to {len(loads) - 1}")
        return int(index)

    return choose
