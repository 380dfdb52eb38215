"""The example's blocks make the table that one process would compute."""

import numpy as np
import pytest

from examples.sharding import neighbours
from mesh.actors.collecting import Concat, collected
from mesh.actors.dimensions import Dimensions
from mesh.actors.dispatching import Split
from mesh.actors.members import RankView
from mesh.actors.per_rank import at_rank
from mesh.core.ids import AgentId


class InProcess:
    """A group whose agents are objects here: the same rules of dealing and collecting, without Ray."""

    def __init__(self, shape):
        self.dimensions = Dimensions(shape)
        self.agents = [neighbours.Neighbours() for _ in self.dimensions]

    def all(self):
        return self

    def learn(self, images):
        return [agent.learn(at_rank(images, rank, self.dimensions)) for rank, agent in enumerate(self.agents)]

    def shard(self, *, dispatch_fn, collect_fn):
        self.dispatch, self.collect = dispatch_fn, collect_fn
        return self

    def distances(self, asked):
        view = RankView(self.dimensions, tuple(AgentId(str(rank)) for rank in self.dimensions), ({},) * self.dimensions.count)
        calls = list(self.dispatch(view, (asked,), {}))
        values = tuple(self.agents[rank].distances(*args) for rank, args, _ in calls)
        return collected(self.collect, values, tuple(rank for rank, *_ in calls), self.dimensions)


@pytest.mark.parametrize("shape", [neighbours.SHAPE, {"asked": 3, "known": 1}, {"known": 4, "asked": 2}], ids=str)
def test_s4_blocks_of_a_grid_recognise_what_one_table_would(shape):
    known, asked = neighbours.load()
    recognised = neighbours.recognise(InProcess(shape), known, asked.images[:90])
    alone = ((asked.images[:90, None, :] - known.images[None, :, :]) ** 2).sum(axis=2).argmin(axis=1)
    np.testing.assert_array_equal(recognised, known.numbers[alone])
    assert (recognised == asked.numbers[:90]).mean() > 0.9


def test_nobody_holds_more_than_its_share():
    group = InProcess(neighbours.SHAPE)
    known, asked = neighbours.load()
    neighbours.recognise(group, known, asked.images)
    assert [len(agent.known) for agent in group.agents] == [neighbours.KNOWN // 2] * 4
    assert group.dispatch == Split(axes={"asked": 0})
    assert group.collect == Concat({"asked": 0, "known": 1})
