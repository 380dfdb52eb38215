"""From n parts to m: which stretch of which part goes where. Order is kept, nothing is moved that need not be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from mesh.actors.pieces import even_bounds, join, piece


@dataclass(frozen=True, slots=True)
class Stretch:
    """`part[begin:end]`."""

    part: int
    begin: int
    end: int


def plan_reshard(lengths: Sequence[int], count: int) -> list[list[Stretch]]:
    """`lengths[n] -> stretches[count][?]`: each target gets a run of all values, the first ones one more if it does not divide.

    A target with nothing in it gets the empty stretch of the first part, so that it knows the kind of its values.
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
    """The part that a target takes as it is; None when it takes less, or of several."""
    if len(stretches) != 1:
        return None
    only = stretches[0]
    return only.part if (only.begin, only.end) == (0, lengths[only.part]) else None


def assembled(stretches: Sequence[tuple[int, int]], parts: Sequence[Any]) -> Any:
    """The stretches `[k](begin, end)` of `parts[k]`, end to end. Raises `DispatchError` when parts are of different kinds."""
    return join([piece(part, begin, end) for (begin, end), part in zip(stretches, parts, strict=True)])
