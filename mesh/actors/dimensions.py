"""Named dimensions of an actor group and the coordinates of its ranks.

Ranks are numbered row by row: the last dimension varies fastest, so `{"pipeline": 2, "tensor": 4}` has ranks 0-3 in the first stage.
Dimension names are free.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

from mesh.actors.errors import ShapeError
from mesh.core.counting import counted

#: The only dimension of a group without a shape.
RANK = "rank"

#: A coordinate, several, or a slice; the last two keep the dimension.
Choice = int | slice | Sequence[int]


@dataclass(frozen=True)
class Dimensions:
    """Names and sizes, slowest first. No dimensions: a single member."""

    sizes: Mapping[str, int]

    def __post_init__(self) -> None:
        for name, size in self.sizes.items():
            if not name or isinstance(size, bool) or not isinstance(size, int) or size < (0 if self.is_flat else 1):
                raise ShapeError(f"dimension {name!r} has size {size!r}; it needs a name and a size of at least 1")

    @classmethod
    def of(cls, members: int, shape: Mapping[str, int] | None) -> Dimensions:
        """Return the dimensions of so many members; flat without a shape.

        Raises:
            ShapeError: The number of members differs from the shape's.
        """
        found = cls(dict(shape) if shape is not None else {RANK: members})
        if found.count != members:
            raise ShapeError(f"{found} needs {counted(found.count, 'member')}, got {members}")
        return found

    @property
    def is_flat(self) -> bool:
        """Whether the ranks have no user-defined shape."""
        return tuple(self.sizes) == (RANK,)

    @cached_property
    def count(self) -> int:
        """Number of ranks."""
        return prod(self.sizes.values())

    @cached_property
    def strides(self) -> Mapping[str, int]:
        """Distance in ranks between neighbours along each dimension."""
        names = list(self.sizes)
        return {name: prod(self.sizes[after] for after in names[place + 1 :]) for place, name in enumerate(names)}

    def __iter__(self) -> Iterator[int]:
        """Iterate over all ranks."""
        return iter(range(self.count))

    def __len__(self) -> int:
        return self.count

    def __str__(self) -> str:
        return " x ".join(f"{name}={size}" for name, size in self.sizes.items()) or "a single member"

    def size(self, name: str) -> int:
        """Return the size of the dimension.

        Raises:
            ShapeError: The dimension is unknown.
        """
        found = self.sizes.get(name)
        if found is None:
            raise ShapeError(f"there is no dimension {name!r}; this group is {self}")
        return found

    def coordinates(self, rank: int) -> dict[str, int]:
        """Return the coordinates of the rank.

        Raises:
            ShapeError: The rank is out of range.
        """
        if not 0 <= rank < self.count:
            raise ShapeError(f"there is no rank {rank}; this group is {self}, with ranks 0 to {self.count - 1}")
        return {name: rank // self.strides[name] % size for name, size in self.sizes.items()}

    def rank(self, **coordinates: int) -> int:
        """Return the rank at these coordinates; every dimension must be given.

        Raises:
            ShapeError: A dimension is missing or unknown, or a coordinate is out of range.
        """
        missing = [name for name in self.sizes if name not in coordinates]
        if missing:
            raise ShapeError(f"{', '.join(missing)} must be given too; this group is {self}")
        return sum(self._inside(name, at) * self.strides[name] for name, at in coordinates.items())

    def where(self, choices: Mapping[str, Choice]) -> tuple[tuple[int, ...], Dimensions]:
        """Return the ranks at these coordinates, in order, and their own dimensions.

        A single coordinate removes its dimension; a slice or several coordinates keep it with a smaller size.

        Raises:
            ShapeError: A dimension is unknown, or a coordinate is out of range, duplicate, or none is left.
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
        """Return the rank `by` steps along the dimension (-1: the one before); None beyond its end, unless `wrap`.

        Raises:
            ShapeError: The dimension or rank is unknown.
        """
        size, at = self.size(along), self.coordinates(rank)[along]
        if not wrap and not 0 <= at + by < size:
            return None
        return rank + ((at + by) % size - at) * self.strides[along]

    def peers(self, rank: int, along: str) -> tuple[int, ...]:
        """Return the ranks that differ from this one in this dimension only, including it, in order: its process group.

        Raises:
            ShapeError: The dimension or rank is unknown.
        """
        size, stride = self.size(along), self.strides[along]
        first = rank - self.coordinates(rank)[along] * stride
        return tuple(first + place * stride for place in range(size))

    def lanes(self, along: str) -> tuple[tuple[int, ...], ...]:
        """Return all process groups along the dimension; together they contain every rank once.

        Raises:
            ShapeError: The dimension is unknown.
        """
        self.size(along)
        return tuple(self.peers(rank, along) for rank in self if self.coordinates(rank)[along] == 0)

    def _inside(self, name: str, at: int) -> int:
        size = self.size(name)
        if isinstance(at, bool) or not isinstance(at, int) or not -size <= at < size:
            raise ShapeError(f"{name}={at!r} is out of range: {name} has {counted(size, 'place')}, 0 to {size - 1}")
        return at % size

    def _places(self, name: str, choice: Choice) -> tuple[int, ...]:
        if isinstance(choice, slice):
            places = tuple(range(self.size(name)))[choice]
        elif isinstance(choice, int):
            return (self._inside(name, choice),)
        else:
            places = tuple(self._inside(name, at) for at in choice)
        if not places and self.size(name):
            raise ShapeError(f"{name}={choice!r} selects no rank: {name} has {counted(self.size(name), 'place')}")
        if len(set(places)) < len(places):
            raise ShapeError(f"{name}={choice!r} contains a duplicate")
        return places
