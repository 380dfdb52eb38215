"""How the results of a collective call become one value."""

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
    """`results[calls] -> list[calls]`, in the order of the dispatch: by rank, unless one's own dispatch does otherwise."""
    return list(results)


def first(results: Results) -> Any:
    """The first call's value: for results that are alike everywhere. Raises `DispatchError` when nobody was called."""
    if not results:
        raise DispatchError("nobody was called, so there is no first result")
    return results[0]


def total(results: Results) -> Any:
    """The sum; of arrays by element, of dicts by key. Raises `DispatchError` when nobody was called."""
    if not results:
        raise DispatchError("nobody was called, so there is nothing to add up")
    return reduce(_plus, results)


def mean(results: Results) -> Any:
    """The sum by the number of results, each weighing the same. Raises `DispatchError` when nobody was called."""
    return _divided(total(results), len(results))


@dataclass(frozen=True, slots=True)
class Concat:
    """Puts the pieces together end to end: what undoes `Split`.

    Without `axes`: `results[ranks][n / ranks] -> value[n]` along the first axis. With `axes`, dimension to array axis:
    results are joined along each of these dimensions; of the ranks that differ in other dimensions only, the first one's
    is taken. `{"data": 0, "tensor": -1}` makes one matrix of a grid of blocks.
    """

    axes: Mapping[str, int] | None = None

    def __call__(self, results: Results) -> Any:
        """One value. Raises `DispatchError` when the pieces do not fit, or a rank of the grid has not exactly one result."""
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
    """Puts together what the last stage of a pipeline returned, piece by piece, of the first of the ranks that ran the same."""

    along: str = "pipeline"

    def __call__(self, results: Results) -> Any:
        """`results -> value[n]`. Raises `DispatchError` when pieces do not fit together."""
        lane = results.ranks[0] if results else 0
        return join([value for rank, value in zip(results.ranks, results.values, strict=True) if rank == lane])


def _only(results: Results, rank: int) -> Any:
    found = results.by_rank().get(rank, [])
    if len(found) != 1:
        raise DispatchError(f"rank {rank} has {len(found)} results, and exactly one is needed to put pieces together by dimension")
    return found[0]


def _plus(left: Any, right: Any) -> Any:
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        if left.keys() != right.keys():
            raise DispatchError("dicts with different keys cannot be added up")
        return {name: _plus(left[name], right[name]) for name in left}
    if isinstance(left, (list, tuple, str, bytes)):  # `+` would put them end to end, and call it a sum.
        raise DispatchError(f"{type(left).__name__} cannot be added up; return numbers, arrays, or dicts of them")
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
    """The collector; one's own function is taken as it is. Raises `DispatchError` for an unknown name."""
    if callable(name):
        return name
    found = COLLECTORS.get(name)
    if found is None:
        raise DispatchError(f"there is no collect_fn {name!r}; there are {', '.join(COLLECTORS)}")
    return found


def collected(collect: Collect, values: tuple[Any, ...], ranks: tuple[int, ...], dimensions: Dimensions) -> Any:
    """What the collector makes of the values. Raises `DispatchError` with the values in it, so that no work is lost."""
    try:
        return collect(Results(values, ranks, dimensions))
    except DispatchError as error:
        raise DispatchError(str(error), values) from None
