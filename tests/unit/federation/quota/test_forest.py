from __future__ import annotations

from fractions import Fraction

import pytest

from federation.errors import ConfigError, UnknownTenant
from federation.quota.forest import UNLIMITED, ForestNode, QuotaForest
from federation.quota.ledger import QuotaLedger
from federation.quota.quota_fixtures import RED, QuotaNode, forest_of
from federation.quota.shares import dominant_share
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.ids import TenantPath
from mesh.errors import LedgerError


def tenants(**nominal: int) -> QuotaForest:
    paths = [TenantPath(name.replace("__", "/")) for name in nominal]
    quotas = [{RED: Quota(nominal=units)} for units in nominal.values()]
    parents = [TenantPath(path.rpartition("/")[0]) or None for path in paths]
    return QuotaForest.of_tenants(
        TenantTree(Tenant(path=path, parent=parent, quotas=quota) for path, parent, quota in zip(paths, parents, quotas, strict=True))
    )


def test_parent_tenant_has_a_leaf_for_its_own_work():
    forest = tenants(acme=2, acme__lab=3)
    leaf = forest.queue_of("acme")
    assert (forest.names[leaf], forest.tenant_of(leaf), forest.queue_of("acme/lab")) == ("acme/*", "acme", forest.node("acme/lab"))
    ledger = QuotaLedger(forest, keeps_local=True)
    assert (ledger.available(leaf, RED), ledger.own(leaf, RED)) == (5, 0)


def test_forest_and_tenant_tree_agree():
    forest = tenants(acme=2, acme__lab=3, acme__lab__a=1, acme__ops=4)
    ledger = QuotaLedger(forest, keeps_local=False)
    ledger.charge(forest.node("acme/lab/a"), {RED: 5})
    tree = TenantTree(
        Tenant(path=TenantPath(path), parent=TenantPath(path.rpartition("/")[0]) or None, quotas={RED: Quota(nominal=units)})
        for path, units in (("acme", 2), ("acme/lab", 3), ("acme/lab/a", 1), ("acme/ops", 4))
    )
    usage: dict = {}
    tree.charge(usage, TenantPath("acme/lab/a"), RED, 5)
    for path in tree.tenants:
        assert ledger.room(forest.node(path), RED) == tree.available(usage, path, RED)
        assert forest.rows(RED).potential[forest.node(path)] == tree.potential(path, RED)


def test_a_flavor_that_no_node_above_names_is_closed_to_a_queue():
    tree = TenantTree(
        [
            Tenant(path=TenantPath("acme"), parent=None),
            Tenant(path=TenantPath("acme/lab"), parent=TenantPath("acme"), quotas={RED: Quota(nominal=4)}),
            Tenant(path=TenantPath("acme/ops"), parent=TenantPath("acme")),
            Tenant(path=TenantPath("acme/web"), parent=TenantPath("acme"), quotas={RED: Quota()}),
        ]
    )
    forest = QuotaForest.of_tenants(tree)
    ledger = QuotaLedger(forest, keeps_local=True)
    rows, queues = forest.rows(RED), [forest.queue_of(path) for path in tree.tenants]
    assert [(rows.is_closed[queue], rows.potential[queue], ledger.available(queue, RED)) for queue in queues] == [
        (True, 0, 0),
        (False, 4, 4),
        (True, 0, 0),
        (False, 4, 4),
    ]
    assert rows.potential[forest.node("acme")] == 4


def test_unlimited_amount_stays_unlimited():
    forest = forest_of(
        {"all": QuotaNode(), "a": QuotaNode(parent="all", nominal=10**21, lending=5), "b": QuotaNode(parent="all", nominal=1)}
    )
    ledger = QuotaLedger(forest, keeps_local=False)
    ledger.charge(forest.node("a"), {RED: 10**9})
    assert ledger.available(forest.node("a"), RED) == UNLIMITED
    assert forest.rows(RED).lent[forest.node("a")] == 5
    assert ledger.available(forest.node("b"), RED) == 6


def test_more_than_the_usage_cannot_be_released():
    forest = forest_of({"a": QuotaNode(nominal=4)})
    ledger = QuotaLedger(forest, keeps_local=False)
    ledger.charge(0, {RED: 2})
    with pytest.raises(LedgerError):
        ledger.discharge(0, {RED: 3})
    assert ledger.use(0, RED) == 2


def test_equal_shares_are_equal_exactly():
    nodes = {
        "all": QuotaNode(nominal=3),
        "a": QuotaNode(parent="all", weight=Fraction(1, 3)),
        "b": QuotaNode(parent="all", weight=Fraction(2, 3)),
    }
    forest = forest_of(nodes)
    ledger = QuotaLedger(forest, keeps_local=False)
    ledger.charge(forest.node("a"), {RED: 1})
    ledger.charge(forest.node("b"), {RED: 2})
    shares = [dominant_share(ledger, forest.node(name)) for name in ("a", "b", "all")]
    assert shares[0].key == shares[1].key
    assert [share.per_mille for share in shares] == [1_000, 1_000, 0]


def test_a_weight_of_nothing_that_borrows_is_above_all_others():
    forest = forest_of({"all": QuotaNode(nominal=9), "none": QuotaNode(parent="all", weight=Fraction(0)), "small": QuotaNode(parent="all")})
    ledger = QuotaLedger(forest, keeps_local=False)
    assert dominant_share(ledger, forest.node("none")).per_mille == 0
    ledger.charge(forest.node("none"), {RED: 1})
    ledger.charge(forest.node("small"), {RED: 8})
    endless, finite = (dominant_share(ledger, forest.node(name)) for name in ("none", "small"))
    assert (endless.per_mille, endless.key > finite.key) == (None, True)


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        pytest.param([ForestNode(name="a"), ForestNode(name="a")], "the same name", id="a duplicate name"),
        pytest.param([ForestNode(name="a", parent="b")], "there is no parent 'b'", id="no parent"),
        pytest.param([ForestNode(name="a", parent="b"), ForestNode(name="b", parent="a")], "in a cycle", id="a cycle"),
        pytest.param(
            [ForestNode(name="q", is_queue=True), ForestNode(name="a", parent="q")], "cannot have children", id="a queue as parent"
        ),
        pytest.param([ForestNode(name="a", quotas={RED: Quota(nominal=-1)})], "must not be negative", id="a negative quota"),
        pytest.param([ForestNode(name="a", weight=Fraction(-1))], "must not be negative", id="a negative weight"),
    ],
)
def test_nonsense_is_refused(nodes: list[ForestNode], words: str):
    with pytest.raises(ConfigError, match=words):
        QuotaForest(nodes)


def test_unknown_node_is_an_error():
    with pytest.raises(UnknownTenant, match="nobody"):
        tenants(acme=1).node("nobody")
