"""Shares as whole numbers."""

from __future__ import annotations

import random
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from federation.quota.forest import ForestNode, QuotaForest
from federation.quota.ledger import QuotaLedger
from federation.quota.share_ranks import ShareRanks
from federation.quota.shares import dominant_share
from federation.tenants import Quota

KEYS = (("a100", "cpu"), ("a100", "gpu"), ("t4", "gpu"))


def siblings(random_stream: random.Random) -> QuotaForest:
    """Teams below one root, some of which declare only a part."""
    nodes = [ForestNode(name="r", quotas={key: Quota(nominal=random_stream.choice((0, 3, 7, 10**15))) for key in KEYS})]
    for number in range(random_stream.randint(2, 5)):
        quotas = {key: Quota(nominal=random_stream.randint(0, 3)) for key in KEYS if random_stream.random() < 0.8}
        weight = Fraction(random_stream.randint(0, 4), random_stream.randint(1, 3))
        nodes.append(ForestNode(name=f"t{number}", parent="r", quotas=quotas, weight=weight, is_queue=True))
    return QuotaForest(nodes)


@given(random_stream=st.randoms(use_true_random=False))
@settings(max_examples=150)
def test_ranks_order_siblings_as_their_exact_shares_do(random_stream: random.Random):
    forest = siblings(random_stream)
    ledger = QuotaLedger(forest, keeps_local=True)
    ranks = ShareRanks(ledger)
    for _ in range(4):
        for team in forest.queues:
            ledger.charge(team, {key: random_stream.randint(0, 6) for key in KEYS})
        flavor, units = (
            random_stream.choice(("a100", "t4")),
            {name: random_stream.randint(-5, 5) for name in random_stream.choice((("cpu", "gpu"), ("gpu",)))},
        )
        extra = {(flavor, name): by for name, by in units.items()}
        found = [(ranks.rank(team), dominant_share(ledger, team).key) for team in forest.queues]
        found += [(ranks.rank_adding(team, extra), dominant_share(ledger, team, extra).key) for team in forest.queues]
        for rank, share in found:
            assert [rank < other for other, _ in found] == [share < other for _, other in found]


def test_equal_shares_of_uneven_weights_have_equal_ranks():
    quotas = {("a100", "gpu"): Quota()}
    nodes = [ForestNode(name="r", quotas={("a100", "gpu"): Quota(nominal=7)})]
    nodes += [
        ForestNode(name=name, parent="r", quotas=quotas, weight=weight, is_queue=True)
        for name, weight in (("heavy", Fraction(3)), ("light", Fraction(1, 2)))
    ]
    forest = QuotaForest(nodes)
    ledger = QuotaLedger(forest, keeps_local=True)
    ledger.charge(forest.node("heavy"), {("a100", "gpu"): 6})
    ledger.charge(forest.node("light"), {("a100", "gpu"): 1})
    ranks = ShareRanks(ledger)
    assert ranks.rank(forest.node("heavy")) == ranks.rank(forest.node("light")) > 0
    assert ranks.rank(forest.node("r")) == 0
