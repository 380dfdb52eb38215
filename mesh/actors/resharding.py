"""Plan from n parts to m: ranges of the old parts for each new one. Order is preserved, with least movement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from mesh.actors.pieces import even_bounds, join, piece


@dataclass(frozen=True, slots=True)
class Stretch:
    """The range `part[begin:end]`."""

    part: int
    begin: int
    end: int


def plan_reshard(lengths: Sequence[int], count: int) -> list[list[Stretch]]:
    """Return `lengths[n] -> stretches[count][?]`: a consecutive share of all values for each target; a remainder goes to the first ones.

    An empty target gets the empty range of the first part, so that it knows the type of its values.
    """
    begins = list(accumulate(lengths, initial=0))
    bounds = even_bounds(begins[-1], count)
    return [_stretches(begins, begin, end) or ([Stretch(0, 0, 0)] if lengths else []) for begin, end in pairwise(bounds)]


def _stretches(begins: Sequence[int], begin: int, end: int) -> list[Stretch]:
    return [
        Stretch(part, max(begin, low) - low, min(end, high) - low)
        for part, (low, high) in enumerate(pairwise(begins))
        if max(begin, low) < min(end, high)
    ]


def whole_part(stretches: Sequence[Stretch], lengths: Sequence[int]) -> int | None:
    """Return the part that a target takes unchanged; None when it takes less, or several."""
    if len(stretches) != 1:
        return None
    only = stretches[0]
    return only.part if (only.begin, only.end) == (0, lengths[only.part]) else None


def assembled(stretches: Sequence[tuple[int, int]], parts: Sequence[Any]) -> Any:
    """Join the ranges `[k](begin, end)` of `parts[k]`.

    Raises:
        DispatchError: The parts differ in kind.
    """
    return join([piece(part, begin, end) for (begin, end), part in zip(stretches, parts, strict=True)])
