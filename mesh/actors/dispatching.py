"""Dispatch functions: distribute the arguments of a collective call to the ranks.

A dispatch function takes the ranks and the call's arguments, and yields `(rank, args, kwargs)` for each call to make: for all ranks, for
some, or several times for one. If it is a generator, each `yield` returns the reference of the call just made, which may be an argument
of a later one. Results then pass from rank to rank without passing through the caller. A fourth item False means that the call's result
is only for other ranks and is not collected.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from mesh.actors.collecting import Concat, LastStage, gather
from mesh.actors.dimensions import Dimensions
from mesh.actors.errors import DispatchError
from mesh.actors.members import RankView
from mesh.actors.pieces import cut, cut_at, even_bounds, length_along, padded
from mesh.actors.results import Collect
from mesh.core.counting import counted

Args = tuple[Any, ...]
Kwargs = Mapping[str, Any]
#: `(rank, args, kwargs)`, or `(rank, args, kwargs, is_kept)`.
Call = tuple[int, Args, Kwargs] | tuple[int, Args, Kwargs, bool]
Dispatch = Callable[[RankView, Args, Kwargs], Iterable[Call] | Generator[Call, Any, None]]
#: Arguments to split: indices of positional ones, names of keyword ones.
Arguments = tuple[int | str, ...]
FIRST: Arguments = (0,)


@dataclass(frozen=True, slots=True)
class Broadcast:
    """Send the same arguments to every rank: `f(x) -> results[ranks]`. Large ones are stored once."""

    collect: Collect = gather

    def __call__(self, ranks: RankView, args: Args, kwargs: Kwargs) -> Iterator[Call]:
        """Yield one call per rank."""
        for rank in range(len(ranks)):
            yield rank, args, kwargs


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Split arguments into even pieces; all other arguments go to every rank.

    Without `axes`: `values[n] -> pieces[ranks][n / ranks]` along the first axis; a remainder goes to the first ranks, one each. With
    `axes`, dimension to array axis: the value is split along each of these dimensions, and ranks that differ only in other dimensions get
    the same piece. Ranks with an empty piece are called too, since collective operations wait for all ranks, unless `skip_empty`.
    """

    axes: Mapping[str, int] | None = None
    arguments: Arguments = FIRST
    skip_empty: bool = False

    @property
    def collect(self) -> Collect:
        """Inverse of the split."""
        return Concat(self.axes)

    def __call__(self, ranks: RankView, args: Args, kwargs: Kwargs) -> Iterator[Call]:
        """Yield one call per rank.

        Raises:
            DispatchError: An argument cannot be split, or arguments differ in length.
        """
        cuts = chosen_arguments(self.arguments, args, kwargs)
        pieces = {name: self._pieces(value, ranks.dimensions) for name, value in cuts.items()}
        _check_same_length(cuts, next(iter(self.axes.values()), 0) if self.axes else 0)
        for rank in range(len(ranks)):
            own = {name: dealt[rank] for name, dealt in pieces.items()}
            if self.skip_empty and own and all(_is_empty(part) for part in own.values()):
                continue
            yield rank, *with_arguments(args, kwargs, own)

    def _pieces(self, value: Any, dimensions: Dimensions) -> list[Any]:
        if self.axes is None:
            return cut(value, dimensions.count)
        blocks: dict[tuple[int, ...], Any] = {(): value}
        for name, axis in self.axes.items():
            blocks = {
                (*at, place): part for at, block in blocks.items() for place, part in enumerate(cut(block, dimensions.size(name), axis))
            }
        return [blocks[tuple(dimensions.coordinates(rank)[name] for name in self.axes)] for rank in dimensions]


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceSplit:
    """Split sequences along their length, for sequence parallelism: `values[b, s] -> pieces[sequence][b, s / sequence]`.

    With `pad` all pieces have equal length, padded at the end. `valid_count="valid"` passes the number of positions without padding as
    keyword argument `valid`. The group must have the dimension `along`.
    """

    along: str = "sequence"
    axis: int = 1
    arguments: Arguments = FIRST
    pad: Any = None
    valid_count: str = ""

    @property
    def collect(self) -> Collect:
        """Inverse of the split; padding stays."""
        return Concat({self.along: self.axis})

    def __call__(self, ranks: RankView, args: Args, kwargs: Kwargs) -> Iterator[Call]:
        """Yield one call per rank.

        Raises:
            DispatchError: An argument cannot be split or padded.
            ShapeError: The group lacks the dimension.
        """
        cuts = chosen_arguments(self.arguments, args, kwargs)
        _check_same_length(cuts, self.axis)
        count = ranks.dimensions.size(self.along)
        length = max((length_along(value, self.axis) for value in cuts.values()), default=0)
        whole = length if self.pad is None else -(-length // count) * count
        filled = {name: value if self.pad is None else padded(value, whole, self.axis, self.pad) for name, value in cuts.items()}
        bounds = even_bounds(whole, count)
        pieces = {name: cut_at(value, bounds, self.axis) for name, value in filled.items()}
        for rank in range(len(ranks)):
            place = ranks.dimensions.coordinates(rank)[self.along]
            described = (
                {self.valid_count: min(max(length - bounds[place], 0), bounds[place + 1] - bounds[place])} if self.valid_count else {}
            )
            own_args, own_kwargs = with_arguments(args, kwargs, {name: dealt[place] for name, dealt in pieces.items()})
            yield rank, own_args, {**own_kwargs, **described}


@dataclass(frozen=True, slots=True, kw_only=True)
class ByLength:
    """Distribute whole sequences so that every rank gets about the same number of tokens: `values[n] -> pieces[ranks][?]`.

    Order is preserved, so joined results are in the original order. No rank gets more than an even share plus the longest sequence.
    `lengths[n]` are tokens without padding; if omitted, the length of each sequence.
    """

    lengths: Sequence[int] | None = None
    arguments: Arguments = FIRST

    @property
    def collect(self) -> Collect:
        """Inverse of the distribution."""
        return Concat()

    def __call__(self, ranks: RankView, args: Args, kwargs: Kwargs) -> Iterator[Call]:
        """Yield one call per rank.

        Raises:
            DispatchError: The number of lengths and sequences differs.
        """
        cuts = chosen_arguments(self.arguments, args, kwargs)
        _check_same_length(cuts, 0)
        values = next(iter(cuts.values()))
        lengths = [len(value) for value in values] if self.lengths is None else list(self.lengths)
        if len(lengths) != length_along(values):
            raise DispatchError(f"got {len(lengths)} lengths for {length_along(values)} sequences")
        bounds = weighted_bounds(lengths, len(ranks))
        pieces = {name: cut_at(value, bounds) for name, value in cuts.items()}
        for rank in range(len(ranks)):
            yield rank, *with_arguments(args, kwargs, {name: dealt[rank] for name, dealt in pieces.items()})


@dataclass(frozen=True, slots=True)
class Parts:
    """Pieces that are split already: `values[ranks] -> pieces[ranks]`, one per rank."""

    collect: Collect = gather

    def __call__(self, ranks: RankView, args: Args, kwargs: Kwargs) -> Iterator[Call]:
        """Yield one call per rank.

        Raises:
            DispatchError: The number of parts and ranks differs.
        """
        parts = chosen_arguments(FIRST, args, kwargs)[0]
        if len(parts) != len(ranks):
            described = f"got {counted(len(parts), 'part')} for {counted(len(ranks), 'rank')}"
            raise DispatchError(f"{described}; dispatch_fn='split' splits a value itself")
        for rank in range(len(ranks)):
            yield rank, *with_arguments(args, kwargs, {0: parts[rank]})


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """Pipeline: each piece passes through the stages, and a stage's result is the first argument of the next stage's call.

    `values[n] -> pieces[chunks][n / chunks]`; the result of stage k goes to stage k + 1 as a reference, never to the caller. Pieces
    follow one another, so that all stages work at once. Ranks at the same stage run the same pieces, each with the result of its
    counterpart in the stage before; their own collective operations combine them.
    """

    along: str = "pipeline"
    chunks: int | None = None  #: None: as many pieces as stages.

    @property
    def collect(self) -> Collect:
        """Results of the last stage, in order of pieces."""
        return LastStage(self.along)

    def __call__(self, ranks: RankView, args: Args, kwargs: Kwargs) -> Generator[Call, Any, None]:
        """Yield one call for each piece and rank.

        Raises:
            DispatchError: The argument cannot be split.
            ShapeError: The group lacks the dimension.
        """
        stages = ranks.dimensions.size(self.along)
        values = chosen_arguments(FIRST, args, kwargs)[0]
        for part in cut(values, self.chunks or stages):
            for lane in ranks.dimensions.lanes(self.along):
                passed = part
                for stage, rank in enumerate(lane):
                    passed = yield rank, (passed, *args[1:]), kwargs, stage == stages - 1


def chosen_arguments(names: Arguments, args: Args, kwargs: Kwargs) -> dict[int | str, Any]:
    """Return the arguments with these indices and names.

    Raises:
        DispatchError: The call lacks one of them.
    """
    found: dict[int | str, Any] = {}
    for name in names:
        if isinstance(name, int):
            if not 0 <= name < len(args):
                raise DispatchError(f"argument {name} is to be split, but the call has {len(args)} positional ones")
            found[name] = args[name]
        elif name in kwargs:
            found[name] = kwargs[name]
        else:
            raise DispatchError(f"argument {name!r} is to be split, but the call lacks it")
    return found


def with_arguments(args: Args, kwargs: Kwargs, own: Mapping[int | str, Any]) -> tuple[Args, Kwargs]:
    """Return the arguments with a rank's own ones replaced."""
    changed = tuple(own.get(place, value) for place, value in enumerate(args))
    named = {name: value for name, value in own.items() if isinstance(name, str)}
    return changed, {**kwargs, **named} if named else kwargs


def weighted_bounds(weights: Sequence[int], count: int) -> list[int]:
    """Return the bounds of `count` consecutive runs of about equal weight [count + 1]."""
    sums = list(accumulate(weights, initial=0))
    bounds = [0]
    for place in range(1, count):
        wanted = sums[-1] * place / count
        after = bisect_left(sums, wanted)
        nearer = after - 1 if after and wanted - sums[after - 1] < sums[after] - wanted else after
        bounds.append(max(bounds[-1], nearer))
    return [*bounds, len(weights)]


def _check_same_length(values: Mapping[int | str, Any], axis: int) -> None:
    lengths = {name: length_along(value, axis) for name, value in values.items()}
    if len(set(lengths.values())) > 1:
        described = ", ".join(f"{name}: {length}" for name, length in lengths.items())
        raise DispatchError(f"arguments that are split together must have equal lengths, got {described}")


def _is_empty(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(_is_empty(part) for part in value.values())
    shape = getattr(value, "shape", None)
    return 0 in shape if shape is not None else len(value) == 0


DISPATCHERS: Mapping[str, Dispatch] = {
    "split": Split(),
    "broadcast": Broadcast(),
    "parts": Parts(),
    "tensor": Split(axes={"tensor": -1}),
    "sequence": SequenceSplit(),
    "by_length": ByLength(),
    "pipeline": HandOver(),
}


def dispatcher_named(name: str | Dispatch, further: Mapping[str, Dispatch] | None = None) -> Dispatch:
    """Return the dispatch function with this name; a function is returned as it is.

    Raises:
        DispatchError: The name is unknown.
    """
    if callable(name):
        return name
    known = {**DISPATCHERS, **(further or {})}
    if name not in known:
        raise DispatchError(f"there is no dispatch_fn {name!r}; known: {', '.join(known)}")
    return known[name]


def send_each(calls: Iterable[Call], send: Callable[[Call], Any]) -> None:
    """Send each call of a dispatch; pass its reference back into a generator."""
    if not isinstance(calls, Generator):
        for call in calls:
            send(call)
        return
    try:
        call = next(calls)
        while True:
            call = calls.send(send(call))
    except StopIteration:
        return


def natural_collect(dispatch: Dispatch) -> Collect:
    """Return the inverse of the dispatch: its attribute `collect`, or `gather` if it has none."""
    found: Collect = getattr(dispatch, "collect", gather)
    return found
