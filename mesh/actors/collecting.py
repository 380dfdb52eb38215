"""Collect functions: combine the results of a collective call into one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

from mesh.actors.dimensions import Dimensions
from mesh.actors.errors import DispatchError
from mesh.actors.pieces import join
from mesh.actors.results import Collect, Results


def gather(results: Results) -> list[Any]:
    """Return `results[calls] -> list[calls]` in the order of dispatch: by rank, unless a custom dispatch orders otherwise."""
    return list(results)


def first(results: Results) -> Any:
    """Return the first call's value, for results that are equal on all ranks.

    Raises:
        DispatchError: No rank was called.
    """
    if not results:
        raise DispatchError("cannot return the first result: no rank was called")
    return results[0]


def total(results: Results) -> Any:
    """Return the sum; arrays are added by element, dicts by key.

    Raises:
        DispatchError: No rank was called, or values cannot be added.
    """
    if not results:
        raise DispatchError("cannot sum: no rank was called")
    return reduce(_plus, results)


def mean(results: Results) -> Any:
    """Return the sum over the number of results, with equal weights.

    Raises:
        DispatchError: No rank was called, or values cannot be added.
    """
    return _divided(total(results), len(results))


@dataclass(frozen=True, slots=True)
class Concat:
    """Join the pieces end to end; the inverse of `Split`.

    Without `axes`: `results[ranks][n / ranks] -> value[n]` along the first axis. With `axes`, dimension to array axis: results are joined
    along each of these dimensions; among ranks that differ only in other dimensions, the first is used. `{"data": 0, "tensor": -1}` joins
    a grid of blocks into one matrix.
    """

    axes: Mapping[str, int] | None = None

    def __call__(self, results: Results) -> Any:
        """Return the joined value.

        Raises:
            DispatchError: The pieces do not fit, or a rank of the grid does not have exactly one result.
        """
        if self.axes is None:
            return join(results.values)
        return self._block(results, [*self.axes], {})

    def _block(self, results: Results, names: list[str], at: dict[str, int]) -> Any:
        if not names:
            dimensions = results.dimensions
            rank = dimensions.rank(**{name: at.get(name, 0) for name in dimensions.sizes})
            return _only(results, rank)
        name, *rest = names
        blocks = [self._block(results, rest, {**at, name: place}) for place in range(results.dimensions.size(name))]
        return join(blocks, (self.axes or {})[name])


@dataclass(frozen=True, slots=True)
class LastStage:
    """Join the pieces that the last pipeline stage returned; among ranks with equal pieces, the first is used."""

    along: str = "pipeline"

    def __call__(self, results: Results) -> Any:
        """Return `results -> value[n]`.

        Raises:
            DispatchError: The pieces do not fit together.
        """
        lane = results.ranks[0] if results else 0
        return join([value for rank, value in zip(results.ranks, results.values, strict=True) if rank == lane])


def _only(results: Results, rank: int) -> Any:
    found = results.by_rank().get(rank, [])
    if len(found) != 1:
        raise DispatchError(f"rank {rank} has {len(found)} results, joining by dimension needs exactly one")
    return found[0]


def _plus(left: Any, right: Any) -> Any:
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        if left.keys() != right.keys():
            raise DispatchError("dicts with different keys cannot be added")
        return {name: _plus(left[name], right[name]) for name in left}
    if isinstance(left, (list, tuple, str, bytes)):  # `+` would concatenate them instead of adding.
        raise DispatchError(f"{type(left).__name__} cannot be added; return numbers, arrays, or dicts of them")
    return add(left, right)


def _divided(value: Any, count: int) -> Any:
    return {name: _divided(part, count) for name, part in value.items()} if isinstance(value, Mapping) else value / count


COLLECTORS: Mapping[str, Collect] = {
    "concat": Concat(),
    "gather": gather,
    "first": first,
    "sum": total,
    "mean": mean,
    "tensor": Concat({"tensor": -1}),
    "sequence": Concat({"sequence": 1}),
}


def collector_named(name: str | Collect) -> Collect:
    """Return the collect function with this name; a function is returned as it is.

    Raises:
        DispatchError: The name is unknown.
    """
    if callable(name):
        return name
    found = COLLECTORS.get(name)
    if found is None:
        raise DispatchError(f"there is no collect_fn {name!r}; known: {', '.join(COLLECTORS)}")
    return found


def collected(collect: Collect, values: tuple[Any, ...], ranks: tuple[int, ...], dimensions: Dimensions) -> Any:
    """Return the collected value.

    Raises:
        DispatchError: Contains the values, so that no work is lost.
    """
    try:
        return collect(Results(values, ranks, dimensions))
    except DispatchError as error:
        raise DispatchError(str(error), values) from None
