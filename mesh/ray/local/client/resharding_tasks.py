"""Resharding of n parts on n workers into m parts for m workers, without a copy at the caller.

Two small Ray tasks measure and cut parts that are references; only their lengths come to the caller. A part that already fits
its target is passed on unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray

from mesh.actors.collecting import gather
from mesh.actors.dispatching import FIRST, Args, Call, Kwargs, chosen_arguments, with_arguments
from mesh.actors.errors import DispatchError
from mesh.actors.members import RankView
from mesh.actors.pieces import length_along
from mesh.actors.resharding import Stretch, assembled, plan_reshard, whole_part
from mesh.actors.results import Collect


@dataclass(frozen=True, slots=True)
class Reshard:
    """Dispatch function for results of n others: `parts[n][k_i] -> parts[m][sum(k) / m]`, in the same order."""

    collect: Collect = gather

    def __call__(self, ranks: RankView, args: Args, kwargs: Kwargs) -> Iterator[Call]:
        """Yield one call per rank. Raises `DispatchError` when the first argument is not a list of parts that can be cut."""
        parts = chosen_arguments(FIRST, args, kwargs)[0]
        for rank, part in enumerate(reshard(parts, len(ranks))):
            yield rank, *with_arguments(args, kwargs, {0: part})


def reshard(parts: Sequence[Any], count: int) -> list[Any]:
    """Reshard `parts[n] -> parts[count]`; returns values if all parts are values, else references.

    Raises:
        DispatchError: There are no parts, or they cannot be cut or joined.
    """
    if isinstance(parts, Mapping) or not isinstance(parts, Sequence) or not parts:
        raise DispatchError(f"to reshard, give a list of parts (values or references), not {type(parts).__name__}")
    are_references = any(isinstance(part, ray.ObjectRef) for part in parts)
    lengths = _lengths(parts) if are_references else [length_along(part) for part in parts]
    return [_target(stretches, lengths, parts, are_references) for stretches in plan_reshard(lengths, count)]


def _target(stretches: Sequence[Stretch], lengths: Sequence[int], parts: Sequence[Any], are_references: bool) -> Any:
    whole = whole_part(stretches, lengths)
    if whole is not None:
        return parts[whole]
    bounds = [(stretch.begin, stretch.end) for stretch in stretches]
    sources = [parts[stretch.part] for stretch in stretches]
    return _assemble.remote(bounds, *sources) if are_references else assembled(bounds, sources)


def _lengths(parts: Sequence[Any]) -> list[int]:
    """Return the length of each part, measured on its worker."""
    measured: list[int] = ray.get([_measure.remote(part) for part in parts])
    return measured


@ray.remote(num_cpus=0)
def _measure(part: Any) -> int:
    return length_along(part)


@ray.remote(num_cpus=0)
def _assemble(bounds: Sequence[tuple[int, int]], *parts: Any) -> Any:
    return assembled(bounds, parts)
