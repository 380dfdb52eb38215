"""Which of the known digits looks most like this one? A table of distances that four agents compute, a block each.

Two dimensions: along `known` the agents divide what they know, along `asked` they divide the questions. Nobody holds more
than half of the known digits, nobody gets more than half of the questions, and the blocks make one table again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from mesh.actors.collecting import Concat
from mesh.actors.dispatching import Split
from mesh.actors.per_rank import PerRank, RankPlace
from mesh.actors.pieces import cut
from mesh.ray.local.client.actor_group import ActorGroup

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
    """One agent: a part of what is known."""

    def __init__(self) -> None:
        self.known: Images = np.zeros((0, 64))

    def learn(self, images: Images) -> int:
        """Keep these; how many there are."""
        self.known = images
        return len(images)

    def distances(self, asked: Images) -> NDArray[np.float64]:
        """`asked[a, 64] -> distances[a, k]`: squared, to each of the k images that this agent knows."""
        squares = (asked**2).sum(axis=1)[:, None] + (self.known**2).sum(axis=1)[None, :]
        return np.asarray(squares - 2 * asked @ self.known.T)


def load() -> tuple[Digits, Digits]:
    """The known digits, and those that are asked about."""
    images, numbers = load_digits(return_X_y=True)
    return Digits(images[:KNOWN], numbers[:KNOWN]), Digits(images[KNOWN:], numbers[KNOWN:])


def recognise(group: ActorGroup, known: Digits, asked: Images) -> Numbers:
    """`asked[a, 64] -> numbers[a]`: that of the nearest known digit. The group has the dimensions of `SHAPE`."""
    parts = cut(known.images, group.dimensions.size("known"))

    def own_part(place: RankPlace) -> Images:
        part: Images = parts[place["known"]]
        return part

    group.all().learn(PerRank(own_part))
    blocks = group.shard(dispatch_fn=Split(axes={"asked": 0}), collect_fn=Concat({"asked": 0, "known": 1}))
    table = blocks.distances(asked)
    return np.asarray(known.numbers[table.argmin(axis=1)])
