"""Calls on a group of eight agents, beside the same calls on plain Ray actors in a list: collective ones, and calls on a chosen agent."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import cycle
from typing import Any

import numpy as np
import ray

from benchmarks.agents import Sides, sides
from benchmarks.bed import Bed
from benchmarks.measuring import WALL, Result, Sample, in_turns, result_of

AGENTS, ITEMS = 8, 8_000
ALL, SHARD, SHARED, PLAIN = "all()", "shard()", "all() of 8 MB", "plain Ray"
LARGE_BYTES = 8_000_000
CALLS_WAITING, CALLS_AT_ONCE = 20, 200
CHOSEN = "choose()"


def measure_all(_bed: Bed, turns: int) -> Result:
    """Measure one small argument sent to all."""
    with sides(AGENTS) as both:
        found = in_turns(
            {
                ALL: lambda: _timed(lambda: both.group.all().echo(1)),
                PLAIN: lambda: _timed(lambda: ray.get([actor.echo.remote(1) for actor in both.actors])),
            },
            warm_ups=10,
            turns=turns,
        )
    return result_of("all", f"the same call on {AGENTS} agents, until all have answered", found, base=PLAIN)


def measure_shard(_bed: Bed, turns: int) -> Result:
    """Measure an array split over all and joined again; with plain Ray the user does both."""
    values = np.arange(ITEMS, dtype=np.int64)
    with sides(AGENTS) as both:

        def by_hand() -> Any:
            pieces = np.array_split(values, AGENTS)
            return np.concatenate(ray.get([actor.echo.remote(piece) for actor, piece in zip(both.actors, pieces, strict=True)]))

        found = in_turns(
            {SHARD: lambda: _timed(lambda: both.group.shard().echo(values)), PLAIN: lambda: _timed(by_hand)}, warm_ups=10, turns=turns
        )
    return result_of("shard", f"{ITEMS:,} integers split over {AGENTS} agents and joined again", found, base=PLAIN)


def measure_broadcast(_bed: Bed, turns: int) -> Result:
    """Measure a large argument sent to all: stored once by the group, once per agent by plain Ray's user."""
    values = np.ones(LARGE_BYTES, dtype=np.uint8)
    with sides(AGENTS) as both:
        found = in_turns(
            {
                SHARED: lambda: _timed(lambda: both.group.all().size(values)),
                PLAIN: lambda: _timed(lambda: ray.get([actor.size.remote(values) for actor in both.actors])),
            },
            warm_ups=2,
            turns=turns,
        )
    return result_of("broadcast", f"an array of {LARGE_BYTES // 10**6} MB given to {AGENTS} agents", found, base=PLAIN)


def _timed(call: Callable[[], Any]) -> Sample:
    begun = time.perf_counter()
    call()
    return {WALL: (time.perf_counter() - begun) * 1000}


def measure_waiting(_bed: Bed, turns: int) -> Result:
    """Measure calls, each awaited before the next."""
    about = f"{CALLS_WAITING} calls, each waited for, of one agent of {AGENTS}; a plain actor in turn beside it"
    with sides(AGENTS) as both:
        found = in_turns({name: lambda send=send: _waited_for(send) for name, send in _senders(both).items()}, warm_ups=5, turns=turns)
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


def _waited_for(send: Callable[[], Any]) -> Sample:
    begun = time.perf_counter()
    for _ in range(CALLS_WAITING):
        ray.get(send())
    return {WALL: (time.perf_counter() - begun) * 1000}


def _at_once(send: Callable[[], Any]) -> Sample:
    begun = time.perf_counter()
    ray.get([send() for _ in range(CALLS_AT_ONCE)])
    return {WALL: (time.perf_counter() - begun) * 1000}
