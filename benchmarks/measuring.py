"""Samples taken side by side, in turns, so that a disturbance of one side disturbs the other as well."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass

#: One measured call: milliseconds by quantity. `WALL` is always included.
Sample = Mapping[str, float]
WALL = "wall"


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Samples of one quantity, in the order they were taken."""

    name: str
    samples_ms: tuple[float, ...]

    @property
    def median_ms(self) -> float:
        return statistics.median(self.samples_ms)

    @property
    def p95_ms(self) -> float:
        """Smallest sample that 95 % of the samples do not exceed."""
        return self._percentile_ms(95)

    @property
    def p99_ms(self) -> float:
        """Smallest sample that 99 % do not exceed; the greatest if there are fewer than 100."""
        return self._percentile_ms(99)

    def _percentile_ms(self, percent: int) -> float:
        ordered = sorted(self.samples_ms)
        return ordered[-(-len(ordered) * percent // 100) - 1]

    def ratio_to(self, base: Series) -> float:
        """Return the median ratio over the turns, of samples of the same turn, which had the same load of the machine."""
        return statistics.median(own / others for own, others in zip(self.samples_ms, base.samples_ms, strict=True))

    def excess_over_ms(self, base: Series) -> float:
        """Return the median difference over the turns, as `ratio_to`."""
        return statistics.median(own - others for own, others in zip(self.samples_ms, base.samples_ms, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Result of one benchmark."""

    name: str
    about: str
    sides: tuple[Series, ...]  #: Wall times.
    base: str | None = None  #: Side that the others are compared with.
    unit: str = "ms"  #: Unit of the samples.
    parts: Mapping[str, tuple[Series, ...]]  #: Where a side's time goes, by side.


def in_turns(sides: Mapping[str, Callable[[], Sample]], *, warm_ups: int, turns: int) -> dict[str, list[Sample]]:
    """Call each side once per turn, in an order that reverses with each turn; drop the samples of the warm-ups."""
    found: dict[str, list[Sample]] = {name: [] for name in sides}
    for turn in range(-warm_ups, turns):
        for name, measure in list(sides.items())[:: 1 if turn % 2 == 0 else -1]:
            sample = measure()
            if turn >= 0:
                found[name].append(sample)
    return found


def result_of(name: str, about: str, found: Mapping[str, list[Sample]], *, base: str | None = None, unit: str = "ms") -> Result:
    """Return samples as a result; every sample of a side must have the same quantities."""
    series = {
        side: {key: Series(name=key, samples_ms=tuple(sample[key] for sample in samples)) for key in samples[0]}
        for side, samples in found.items()
    }
    return Result(
        name=name,
        about=about,
        sides=tuple(Series(name=side, samples_ms=quantities[WALL].samples_ms) for side, quantities in series.items()),
        base=base,
        unit=unit,
        parts={
            side: tuple(part for key, part in quantities.items() if key != WALL)
            for side, quantities in series.items()
            if len(quantities) > 1
        },
    )
