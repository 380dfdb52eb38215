from __future__ import annotations

import pytest

from federation.quota.past_use import MILLIONTHS, PastUse
from federation.quota.policies import MESH
from federation.quota.testing import Node, runs, snapshot_of, work


@pytest.mark.parametrize(
    ("since_ms", "left"),
    [
        pytest.param(0, 800, id="nothing of it at once"),
        pytest.param(1_000, 400, id="half of it after a half-life"),
        pytest.param(1_500, 300, id="a quarter of the rest after half of the next"),
        pytest.param(3_000, 100, id="an eighth after three"),
        pytest.param(10**9, 0, id="all of it in the end"),
    ],
)
def test_the_past_fades(since_ms: int, left: int):
    past = PastUse(half_life_ms=1_000)
    assert past.faded(800, since_ms) == left
    assert past.faded(-800, since_ms) == -left


def test_use_comes_near_to_what_is_used_and_never_above():
    snapshot = snapshot_of([runs(work("a1", "a", 2))], MESH, a=Node(nominal=4))
    past, seen = PastUse(half_life_ms=1_000), [0]
    for now_ms in range(1_000, 12_000, 1_000):
        snapshot.now_ms = now_ms
        past.sample(snapshot)
        seen.append(past.of(0))
    assert seen[1] == MILLIONTHS // 4
    assert seen == sorted(seen)
    assert MILLIONTHS // 2 - 1_000 < seen[-1] <= MILLIONTHS // 2


def test_without_a_half_life_the_past_is_nothing():
    snapshot = snapshot_of([runs(work("a1", "a", 2))], MESH, 5_000, a=Node(nominal=4))
    past = PastUse(half_life_ms=0)
    past.sample(snapshot)
    past.count_entry(snapshot, 0)
    assert past.of(0) == 0
