"""Index of stranded capacity, and the census of the shapes that it is measured by."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import fragmentation as benchmark
from mesh.core.nodes import NodeTable
from mesh.core.resources import NOTHING, ResourceSet
from mesh.policies.census import Census
from mesh.policies.fragmentation import CommonShapes, fragmentation, fragmentation_for


@pytest.mark.parametrize(
    ("free", "shapes", "weights", "index"),
    [
        pytest.param([[8, 4], [8, 4]], [[8, 4], [4, 2]], None, 0.0, id="whole nodes serve every shape"),
        pytest.param([[4], [4]], [[8]], None, 1.0, id="two halves are no whole"),
        pytest.param([[6], [2]], [[4]], None, 0.5, id="one of two copies fits"),
        pytest.param([[4], [4]], [[8], [4]], [1, 3], 0.25, id="the mean is by weight"),
        pytest.param([[0, 4], [8, 0]], [[2, 1]], None, 1.0, id="GPUs here and CPUs there serve nobody"),
        pytest.param([[1], [2]], [[8]], None, 0.0, id="too little in sum is not fragmentation"),
        pytest.param([[0, 0]], [[1, 1]], None, 0.0, id="nothing free is not fragmentation"),
        pytest.param([[3, 7]], [[3, 0]], None, 0.0, id="a shape minds only what it wants"),
    ],
)
def test_s16_the_index_is_the_share_of_copies_that_do_not_fit(
    free: list[list[int]], shapes: list[list[int]], weights: object, index: float
):
    assert fragmentation(free, shapes, weights) == pytest.approx(index)


@pytest.mark.parametrize(
    ("shapes", "weights"),
    [
        pytest.param([[0, 0]], None, id="a shape of nothing"),
        pytest.param([[-1, 2]], None, id="less than nothing"),
        pytest.param([[1, 2]], [1, 1], id="more weights than shapes"),
        pytest.param([[1, 2]], [0], id="no positive weight"),
    ],
)
def test_shapes_that_make_no_sense_are_refused(shapes: list[list[int]], weights: list[int] | None):
    with pytest.raises(ValueError, match=r"each shape must|one per shape"):
        CommonShapes.of(shapes, weights)


@pytest.mark.parametrize("amount", [1, 3, 7, 10_000, 2**33 + 1])
def test_whole_copies_are_counted_exactly(amount: int):
    copies = CommonShapes.of([[amount]]).copies_in(np.array([[amount * times] for times in range(200)]))
    assert copies[:, 0].tolist() == list(range(200))


def test_columns_that_came_later_are_wanted_by_no_shape():
    common = CommonShapes.of([[4]])
    assert fragmentation_for(np.array([[4, 9], [4, 0]]), common) == 0.0


def of(cpu: float, gpu: float = 0) -> ResourceSet:
    return ResourceSet.of({"cpu": cpu, "gpu": gpu})


def test_a_census_tells_shares_and_forgets_slowly():
    census = Census(memory=10)
    for _ in range(30):
        census.count(of(1))
    for _ in range(10):
        census.count(of(2))
    shares = dict(census)
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares[of(2)] > shares[of(1)]


def test_a_census_keeps_the_shapes_with_most_of_the_demand():
    census, table = Census(most=2), NodeTable()
    for amounts in [of(1)] * 50 + [of(2)] * 40 + [of(48, 8)] * 3:
        census.count(amounts)
    common = census.common(table.vector)
    assert common is not None
    assert [48 * 10_000, 8 * 10_000] in common.amounts.tolist(), "rare, and most of all GPUs"
    assert len(common.amounts) == 2


def test_a_census_of_nothing_knows_nothing():
    census = Census()
    census.count(NOTHING)
    assert census.common(NodeTable().vector) is None


def test_a_census_is_bounded_over_a_million_demands():
    census = Census(memory=1)
    for number in range(2_000):
        census.count(of(number % 100 + 1))
    assert len(census) == 64
    assert sum(share for _, share in census) == pytest.approx(1.0)


@pytest.mark.parametrize("side", ["weighted"])
def test_s16_weighted_strands_a_quarter_less_than_rays_default(side: str):
    base, ours = (benchmark.replay(name, seed=1, arrivals=1_800) for name in (benchmark.BASE, side))
    assert ours.fragmentation <= 0.75 * base.fragmentation
    assert ours.first_try >= 0.99
