"""Search for an arrangement of all members of a job."""

from __future__ import annotations

import numpy as np
import pytest

from mesh.jobs.packing import Demands, Part, Steps, pack, shortage

CPU, GPU = 0, 1
NAMES = ("cpu", "gpu")


def part(role, cpu, gpu=0, *, count=1, suits=None, nodes=2):
    return Part(role=role, wanted=np.array([cpu, gpu]), suits=np.ones(nodes, dtype=bool) if suits is None else np.array(suits), count=count)


def demands(leader, *sets, needed=None):
    return Demands(leader=leader, sets=sets, needed=sum(each.count for each in sets) if needed is None else needed)


def nodes(*free):
    return np.array(free, dtype=np.int64)


def places(asked, free, limit=None, steps=1000):
    return pack(asked, free, limit, Steps(steps)).places


def test_packing_finds_an_arrangement_that_first_fit_misses():
    asked = demands(part("leader", 1), part("big", 4))
    assert places(asked, nodes([4, 0], [1, 0])) == (("leader", 1), ("big", 0))


def test_the_free_units_are_left_as_they_were():
    free, limit = nodes([4, 0], [1, 0]), np.array([9, 9])
    pack(demands(part("leader", 1), part("big", 4)), free, limit, Steps(100))
    assert free.tolist() == [[4, 0], [1, 0]]
    assert limit.tolist() == [9, 9]


def test_what_is_not_needed_is_left_out_where_it_is_in_the_way():
    asked = demands(part("leader", 1), part("big", 4), part("small", 1, count=2), needed=2)
    assert places(asked, nodes([2, 0], [1, 0])) == (("leader", 0), ("small", 0), ("small", 1))


def test_members_go_only_where_their_labels_suit():
    asked = demands(part("leader", 1, suits=[False, True]), part("actors", 1, count=2, suits=[True, False]))
    assert places(asked, nodes([2, 0], [9, 0])) == (("leader", 1), ("actors", 0), ("actors", 0))


def test_nodes_with_equal_room_and_other_labels_differ():
    asked = demands(part("leader", 1), part("actors", 2, suits=[True, False]))
    assert places(asked, nodes([2, 0], [2, 0])) == (("leader", 1), ("actors", 0))


def test_the_limit_holds_for_all_of_them_together():
    asked = demands(part("leader", 1), part("actors", 1, count=3), needed=1)
    assert places(asked, nodes([9, 0], [9, 0]), np.array([2, 0])) == (("leader", 0), ("actors", 0))
    assert places(asked, nodes([9, 0], [9, 0]), np.array([1, 0])) is None


def test_no_arrangement_is_certain_when_all_were_tried():
    asked = demands(part("leader", 3), part("actors", 3, count=3))
    packing = pack(asked, nodes([5, 0], [7, 0]), None, Steps(1000))
    assert (packing.places, packing.is_sure) == (None, True)


def test_nobody_claims_anything_when_the_steps_are_over():
    asked = demands(part("leader", 3), part("actors", 3, count=3))
    packing = pack(asked, nodes([5, 0], [7, 0]), None, Steps(2))
    assert (packing.places, packing.is_sure) == (None, False)


def test_large_jobs_are_not_searched_for():
    steps = Steps(1000)
    packing = pack(demands(part("leader", 1), part("actors", 1, count=64)), nodes([99, 0], [0, 0]), None, steps)
    assert (packing.places, packing.is_sure, steps.left) == (None, False, 1000)


def test_alike_choices_are_tried_once():
    free = np.full((100, 2), 2, dtype=np.int64)
    asked = demands(part("leader", 1, nodes=100), part("wide", 2, count=40, nodes=100), part("gpus", 1, 3, nodes=100))
    steps = Steps(1000)
    assert pack(asked, free, None, steps).is_sure
    assert steps.left > 0


@pytest.mark.parametrize(
    ("asked", "free", "limit", "text"),
    [
        pytest.param(
            demands(part("leader", 50_000)),
            nodes([40_000, 0], [30_000, 0]),
            None,
            "the leader fits on no node: it requests 5 cpu, but a node can provide at most 4",
            id="leader",
        ),
        pytest.param(
            demands(part("leader", 20_000, 10_000)),
            nodes([40_000, 0], [10_000, 10_000]),
            None,
            "the leader fits on no node: no node can provide 2 cpu and 1 gpu together",
            id="leader of two resources",
        ),
        pytest.param(
            demands(part("leader", 1, suits=[False, False])),
            nodes([4, 0], [4, 0]),
            None,
            "the leader fits on no node: no node has the required labels",
            id="labels",
        ),
        pytest.param(
            demands(part("leader", 0), part("actors", 3, count=4)),
            nodes([7, 0], [5, 0]),
            None,
            "4 workers are needed, at most 3 would fit",
            id="copies",
        ),
        pytest.param(
            demands(part("leader", 2), part("actors", 1, count=3)),
            nodes([2, 0], [2, 0]),
            None,
            "the leader and 3 workers need more cpu than the nodes can provide",
            id="sum",
        ),
        pytest.param(
            demands(part("leader", 1, 1), part("actors", 1, count=3)),
            nodes([9, 1], [9, 0]),
            np.array([4, 0]),
            "the leader and 3 workers need more gpu than the pool can provide",
            id="pool",
        ),
        pytest.param(demands(part("leader", 1), part("actors", 1, count=3)), nodes([2, 0], [2, 0]), np.array([4, 0]), None, id="it fits"),
        pytest.param(demands(part("leader", 0), part("idle", 0, count=9)), nodes([0, 0], [0, 0]), None, None, id="it wants nothing"),
    ],
)
def test_a_shortage_is_described(asked, free, limit, text):
    found = shortage(asked, free, limit, NAMES)
    assert (found.text if found else None) == text
    assert found is None or found.is_of_pool == ("pool" in found.text)
