"""Samples, and how they are taken: side by side, in turns, so that what disturbs one side disturbs the other as well."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass

#: One measured call: milliseconds by what was measured. `WALL` is always among them.
Sample = Mapping[str, float]
WALL = "wall"


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Samples of one quantity, in the order in which they were taken."""

    name: str
    samples_ms: tuple[float, ...]

    @property
    def median_ms(self) -> float:
        return statistics.median(self.samples_ms)

    @property
    def p95_ms(self) -> float:
        """The least sample that 95 % of the samples do not exceed."""
        return self._percentile_ms(95)

    @property
    def p99_ms(self) -> float:
        """The same of 99 %; with fewer than 100 samples it is the greatest."""
        return self._percentile_ms(99)

    def _percentile_ms(self, percent: int) -> float:
        ordered = sorted(self.samples_ms)
        return ordered[-(-len(ordered) * percent // 100) - 1]

    def ratio_to(self, base: Series) -> float:
        """The median over the turns: each sample against the one of the same turn, which the same load of the machine disturbed."""
        return statistics.median(own / others for own, others in zip(self.samples_ms, base.samples_ms, strict=True))

    def excess_over_ms(self, base: Series) -> float:
        """As `ratio_to`, of the differences."""
        return statistics.median(own - others for own, others in zip(self.samples_ms, base.samples_ms, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one benchmark found."""

    name: str
    about: str
    sides: tuple[Series, ...]  #: Wall times.
    base: str | None = None  #: The side that the others are compared with.
    parts: Mapping[str, tuple[Series, ...]]  #: Where a side's time goes, by side.


def in_turns(sides: Mapping[str, Callable[[], Sample]], *, warm_ups: int, turns: int) -> dict[str, list[Sample]]:
    """Call each side once a turn, in an order that is reversed with each turn; the samples of the warm-ups are dropped."""
    found: dict[str, list[Sample]] = {name: [] for name in sides}
    for turn in range(-warm_ups, turns):
        for name, measure in list(sides.items())[:: 1 if turn % 2 == 0 else -1]:
            sample = measure()
            if turn >= 0:
                found[name].append(sample)
    return found


def result_of(name: str, about: str, found: Mapping[str, list[Sample]], *, base: str | None = None) -> Result:
    """Samples as a result; every sample of a side has the same quantities."""
    series = {
        side: {key: Series(name=key, samples_ms=tuple(sample[key] for sample in samples)) for key in samples[0]}
        for side, samples in found.items()
    }
    return Result(
        name=name,
        about=about,
        sides=tuple(Series(name=side, samples_ms=quantities[WALL].samples_ms) for side, quantities in series.items()),
        base=base,
        parts={
            side: tuple(part for key, part in quantities.items() if key != WALL)
            for side, quantities in series.items()
            if len(quantities) > 1
        },
    )
