from __future__ import annotations

from fractions import Fraction

import pytest

from federation.quota.forest import QuotaForest
from federation.quota.past_use import WHOLE, PastUse, load_of
from federation.quota.policies import MESH
from federation.quota.quota_fixtures import QuotaNode, forest_of, runs, snapshot_of, work
from federation.tenants import Tenant, TenantTree
from mesh.core.ids import TenantPath


def tenant(path: str, parent: str | None = None) -> Tenant:
    above = parent or path.rpartition("/")[0] or None
    return Tenant(path=TenantPath(path), parent=above and TenantPath(above))


@pytest.mark.parametrize(
    ("since_ms", "left"),
    [
        pytest.param(0, 800, id="none of it at once"),
        pytest.param(1_000, 400, id="half of it after a half-life"),
        pytest.param(1_500, 282, id="along a curve between two of them"),
        pytest.param(3_000, 100, id="an eighth after three"),
        pytest.param(10**9, 0, id="all of it in the end"),
    ],
)
def test_the_past_fades(since_ms: int, left: int):
    past = PastUse(half_life_ms=1_000)
    assert past.faded(800, since_ms) == left
    assert past.faded(-800, since_ms) == -left


def test_in_however_many_steps_the_same_is_left():
    once, often = (PastUse(half_life_ms=86_400_000, _past={0: WHOLE}) for _ in range(2))
    once.let_pass(3_600_000, {})
    for now_ms in range(1_000, 3_601_000, 1_000):
        often.let_pass(now_ms, {})
    assert 0 <= once.of(0) - often.of(0) <= 3_600


def test_small_past_use_decays_to_zero():
    past = PastUse(half_life_ms=30 * 86_400_000, _past={0: 1_000})
    for now_ms in range(1_000, 1_001_000, 1_000):
        past.let_pass(now_ms, {})
    assert past.of(0) == 0


def test_use_comes_near_to_what_is_used_and_never_above():
    snapshot = snapshot_of([runs(work("a1", "a", 2))], MESH, a=QuotaNode(nominal=4))
    past, seen = PastUse(half_life_ms=1_000), [0]
    for now_ms in range(1_000, 12_000, 1_000):
        snapshot.now_ms = now_ms
        past.sample(snapshot)
        seen.append(past.of(0))
    assert seen[1] == WHOLE // 4
    assert seen == sorted(seen)
    assert WHOLE // 2 - WHOLE // 1_000 < seen[-1] <= WHOLE // 2


def test_without_a_half_life_the_past_is_nothing():
    snapshot = snapshot_of([runs(work("a1", "a", 2))], MESH, 5_000, a=QuotaNode(nominal=4))
    past = PastUse(half_life_ms=0)
    past.sample(snapshot)
    past.count_entry(snapshot, 0)
    assert past.of(0) == 0


def test_use_is_weighted_and_zero_weight_ranks_highest():
    tree = forest_of(
        {
            "all": QuotaNode(nominal=8),
            "twice": QuotaNode(parent="all", weight=Fraction(2)),
            "none": QuotaNode(parent="all", weight=Fraction(0)),
        }
    )
    twice, none = (load_of(tree, tree.node(name), {"gpu": 4}) for name in ("twice", "none"))
    assert twice == WHOLE // 4
    assert none > WHOLE


def test_elapsed_time_counts_once_and_absent_tenants_used_none():
    past = PastUse(half_life_ms=1_000, sampled_ms=5_000)
    past.let_pass(5_000, {0: WHOLE})
    assert past.of(0) == 0
    past.let_pass(6_000, {0: WHOLE})
    past.let_pass(6_000, {0: 0})
    past.let_pass(4_000, {0: 0})
    assert past.of(0) == WHOLE // 2
    past.let_pass(7_000, {1: WHOLE})
    assert (past.of(0), past.of(1)) == (WHOLE // 4, WHOLE // 2)


def test_a_second_counts_in_a_half_life_of_months():
    past = PastUse(half_life_ms=90 * 86_400_000)
    past.let_pass(1_000, {0: WHOLE // 1_000})
    assert past.of(0) > 0


def test_past_use_follows_moved_and_parted_tenants():
    before = QuotaForest.of_tenants(TenantTree([tenant("a"), tenant("a/b"), tenant("a/gone")]))
    after = QuotaForest.of_tenants(TenantTree([tenant("c"), tenant("a"), tenant("a/b", parent="c"), tenant("a/b/d", parent="a/b")]))
    past = PastUse(half_life_ms=1_000)
    past.let_pass(1_000, {before.queue_of(name): 2 * number for number, name in enumerate(("a/b", "a/gone"), start=1)})
    past.move(before, after)
    assert {name: past.of(number) for name, number in after.index.items() if past.of(number)} == {"a/b/*": 1}
