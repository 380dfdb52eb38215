"""A call on an agent that the group chooses, beside a call on a plain Ray actor: one after the other, and many at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import cycle
from typing import Any

import ray

from benchmarks.agents import Sides, sides
from benchmarks.bed import Bed
from benchmarks.measuring import WALL, Result, Sample, in_turns, result_of

AGENTS = 8
CALLS_WAITING, CALLS_AT_ONCE = 20, 200
CHOSEN, PLAIN = "choose()", "plain Ray"


def measure_waiting(_bed: Bed, turns: int) -> Result:
    """Measure calls, each awaited before the next."""
    about = f"{CALLS_WAITING} calls, each waited for, of one agent of {AGENTS}; a plain actor in turn beside it"
    with sides(AGENTS) as both:
        found = in_turns({name: lambda send=send: _waiting(send) for name, send in _senders(both).items()}, warm_ups=5, turns=turns)
    return result_of("choose", about, found, base=PLAIN)


def measure_burst(_bed: Bed, turns: int) -> Result:
    """Measure calls that are all sent before the first is awaited."""
    about = f"{CALLS_AT_ONCE} calls sent at once to {AGENTS} agents, until all results are there; plain actors in turn beside them"
    with sides(AGENTS) as both:
        found = in_turns({name: lambda send=send: _at_once(send) for name, send in _senders(both).items()}, warm_ups=5, turns=turns)
    return result_of("choose_burst", about, found, base=PLAIN)


def _senders(both: Sides) -> dict[str, Callable[[], Any]]:
    group = both.group
    methods = cycle([actor.echo for actor in both.actors])
    return {CHOSEN: lambda: group.choose().echo.remote(1), PLAIN: lambda: next(methods).remote(1)}


def _waiting(send: Callable[[], Any]) -> Sample:
    begun = time.perf_counter()
    for _ in range(CALLS_WAITING):
        ray.get(send())
    return {WALL: (time.perf_counter() - begun) * 1000}


def _at_once(send: Callable[[], Any]) -> Sample:
    begun = time.perf_counter()
    ray.get([send() for _ in range(CALLS_AT_ONCE)])
    return {WALL: (time.perf_counter() - begun) * 1000}
