"""Find the known digit that looks most like each other one: four agents compute a table of distances, a block each.

The agents have two dimensions: along `known` they divide the known digits, along `asked` the digits to recognise. Each agent
holds half of the known digits and gets half of the others. The blocks are joined to one table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from mesh import ActorGroup, Concat, PerRank, RankPlace, Split

SHAPE = {"asked": 2, "known": 2}
KNOWN = 1_200

Images = NDArray[np.float64]  #: [images, 64]
Numbers = NDArray[np.int64]  #: [images]


@dataclass(frozen=True)
class Digits:
    """Handwritten digits, 8 by 8 pixels each."""

    images: Images
    numbers: Numbers


class Neighbours:
    """Agent with a part of the known digits."""

    def __init__(self) -> None:
        self.known: Images = np.zeros((0, 64))

    def learn(self, images: Images) -> int:
        """Keep these digits, and return their number."""
        self.known = images
        return len(images)

    def distances(self, asked: Images) -> NDArray[np.float64]:
        """Return the squared distances to the k known images: `asked[a, 64] -> distances[a, k]`."""
        squares = (asked**2).sum(axis=1)[:, None] + (self.known**2).sum(axis=1)[None, :]
        return np.asarray(squares - 2 * asked @ self.known.T)


def load() -> tuple[Digits, Digits]:
    """Return the known digits, and those to recognise."""
    images, numbers = load_digits(return_X_y=True)
    return Digits(images[:KNOWN], numbers[:KNOWN]), Digits(images[KNOWN:], numbers[KNOWN:])


def recognise(group: ActorGroup, known: Digits, asked: Images) -> Numbers:
    """Return the number of the nearest known digit: `asked[a, 64] -> numbers[a]`. The group has the dimensions of `SHAPE`."""
    parts = np.array_split(known.images, group.dimensions.size("known"))

    def own_part(place: RankPlace) -> Images:
        part: Images = parts[place["known"]]
        return part

    group.all().learn(PerRank(own_part))
    blocks = group.shard(dispatch_fn=Split(axes={"asked": 0}), collect_fn=Concat({"asked": 0, "known": 1}))
    table = blocks.distances(asked)
    return np.asarray(known.numbers[table.argmin(axis=1)])
