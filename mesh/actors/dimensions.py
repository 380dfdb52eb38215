"""Named dimensions of an actor group: which rank stands where.

Ranks are numbered row by row: the last dimension runs fastest, so `{"pipeline": 2, "tensor": 4}` has ranks 0-3 in the
first stage. Shapes say what their dimensions mean; any names do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

from mesh.actors.errors import ShapeError
from mesh.counting import counted

#: The one dimension of a group that was given no shape.
RANK = "rank"

#: One coordinate, some of them, or a range; the last two keep the dimension.
Choice = int | slice | Sequence[int]


@dataclass(frozen=True)
class Dimensions:
    """Names and sizes, the slowest first. No dimension at all is the shape of one single member."""

    sizes: Mapping[str, int]

    def __post_init__(self) -> None:
        for name, size in self.sizes.items():
            if not name or isinstance(size, bool) or not isinstance(size, int) or size < (0 if self.is_flat else 1):
                raise ShapeError(f"dimension {name!r} has size {size!r}; a dimension has a name and at least one place")

    @classmethod
    def of(cls, members: int, shape: Mapping[str, int] | None) -> Dimensions:
        """The shape of so many members; flat when none is given.

        Raises:
            ShapeError: The members do not fill it, or there are too many of them.
        """
        found = cls(dict(shape) if shape is not None else {RANK: members})
        if found.count != members:
            raise ShapeError(f"{found} has {counted(found.count, 'place')}, and {counted(members, 'member is', 'members are')} there")
        return found

    @property
    def is_flat(self) -> bool:
        """True for ranks in a row, without a shape of the user's."""
        return tuple(self.sizes) == (RANK,)

    @cached_property
    def count(self) -> int:
        """Places in all."""
        return prod(self.sizes.values())

    @cached_property
    def strides(self) -> Mapping[str, int]:
        """How far two neighbours along a dimension are apart, in ranks."""
        names = list(self.sizes)
        return {name: prod(self.sizes[after] for after in names[place + 1 :]) for place, name in enumerate(names)}

    def __iter__(self) -> Iterator[int]:
        """All ranks."""
        return iter(range(self.count))

    def __len__(self) -> int:
        return self.count

    def __str__(self) -> str:
        return " x ".join(f"{name}={size}" for name, size in self.sizes.items()) or "a single member"

    def size(self, name: str) -> int:
        """Places along the dimension. Raises `ShapeError` for an unknown one."""
        found = self.sizes.get(name)
        if found is None:
            raise ShapeError(f"there is no dimension {name!r}; this group is {self}")
        return found

    def coordinates(self, rank: int) -> dict[str, int]:
        """Where the rank stands. Raises `ShapeError` for a rank that is not there."""
        if not 0 <= rank < self.count:
            raise ShapeError(f"there is no rank {rank}; this group is {self}, with ranks 0 to {self.count - 1}")
        return {name: rank // self.strides[name] % size for name, size in self.sizes.items()}

    def rank(self, **coordinates: int) -> int:
        """Who stands there; every dimension is named.

        Raises:
            ShapeError: A dimension is missing or unknown, or a coordinate is outside.
        """
        missing = [name for name in self.sizes if name not in coordinates]
        if missing:
            raise ShapeError(f"{', '.join(missing)} must be given too; this group is {self}")
        return sum(self._inside(name, at) * self.strides[name] for name, at in coordinates.items())

    def where(self, choices: Mapping[str, Choice]) -> tuple[tuple[int, ...], Dimensions]:
        """The ranks at these places, in order, and the shape that they have among themselves.

        A single coordinate takes its dimension away, a slice or several coordinates keep it, with fewer places.

        Raises:
            ShapeError: A dimension is unknown, a coordinate is outside, twice there, or none is left.
        """
        for name in choices:
            self.size(name)
        places = {name: self._places(name, choices.get(name, slice(None))) for name in self.sizes}
        ranks = tuple(
            sum(at * self.strides[name] for name, at in zip(self.sizes, chosen, strict=True)) for chosen in product(*places.values())
        )
        kept = {name: len(places[name]) for name in self.sizes if not isinstance(choices.get(name), int)}
        return ranks, Dimensions(kept)

    def neighbour(self, rank: int, along: str, by: int = 1, *, wrap: bool = False) -> int | None:
        """The rank `by` places further along the dimension (-1: the one before); None beyond its end, unless it wraps.

        Raises:
            ShapeError: An unknown dimension or rank.
        """
        size, at = self.size(along), self.coordinates(rank)[along]
        if not wrap and not 0 <= at + by < size:
            return None
        return rank + ((at + by) % size - at) * self.strides[along]

    def peers(self, rank: int, along: str) -> tuple[int, ...]:
        """The rank and all that differ from it in this dimension only, in order: its process group.

        Raises:
            ShapeError: An unknown dimension or rank.
        """
        size, stride = self.size(along), self.strides[along]
        first = rank - self.coordinates(rank)[along] * stride
        return tuple(first + place * stride for place in range(size))

    def lanes(self, along: str) -> tuple[tuple[int, ...], ...]:
        """All process groups along the dimension: together they hold every rank once. Raises `ShapeError`."""
        self.size(along)
        return tuple(self.peers(rank, along) for rank in self if self.coordinates(rank)[along] == 0)

    def _inside(self, name: str, at: int) -> int:
        size = self.size(name)
        if isinstance(at, bool) or not isinstance(at, int) or not -size <= at < size:
            raise ShapeError(f"{name}={at!r} is outside: {name} has {counted(size, 'place')}, 0 to {size - 1}")
        return at % size

    def _places(self, name: str, choice: Choice) -> tuple[int, ...]:
        if isinstance(choice, slice):
            places = tuple(range(self.size(name)))[choice]
        elif isinstance(choice, int):
            return (self._inside(name, choice),)
        else:
            places = tuple(self._inside(name, at) for at in choice)
        if not places and self.size(name):
            raise ShapeError(f"{name}={choice!r} leaves nobody: {name} has {counted(self.size(name), 'place')}")
        if len(set(places)) < len(places):
            raise ShapeError(f"{name}={choice!r} names a place twice")
        return places
