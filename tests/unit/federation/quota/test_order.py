from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from federation.quota.flavors import Assignment, Mode
from federation.quota.nomination import Nomination
from federation.quota.order import by_shares
from federation.quota.past_use import PastUse
from federation.quota.policies import KUEUE
from federation.quota.quota_fixtures import BLUE, RED, QuotaNode, runs, snapshot_of, work


def test_unrequested_resource_does_not_make_a_borrower():
    """`x` borrows blue and requests none of it; `y` borrows its request, with the lower share by its weight."""
    tree = {
        "all": QuotaNode(blue=10),
        "x": QuotaNode(parent="all", nominal=4, blue=0),
        "y": QuotaNode(parent="all", blue=0, weight=Fraction(100)),
    }
    snapshot = snapshot_of([runs(work("x0", "x", 1), key=BLUE)], replace(KUEUE, fair_sharing=True), **tree)
    demands = {"x": {RED: 4, BLUE: 0}, "y": {RED: 4}}
    heads = [
        Nomination(workload=work(name, name, 4), assignment=Assignment(sets=(), amounts=amounts, mode=Mode.FIT))
        for name, amounts in demands.items()
    ]
    assert [one.workload.queue for one in by_shares(snapshot, heads, PastUse(half_life_ms=0))] == ["x", "y"]
