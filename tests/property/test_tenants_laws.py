"""Laws of the quota arithmetic over random trees and random use."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.auditing import LedgerAudit, mismatches
from federation.errors import ConfigError
from federation.leases import Lease
from federation.quota.forest import OWN_LEAF, QuotaForest
from federation.quota.ledger import QuotaLedger
from federation.snapshot import FederationSnapshot, LeaseView
from federation.store.tree_rows import TreeDiff, rows_of, tree_diff
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.ids import FlavorName, MeshId, TenantPath
from mesh.core.resources import ResourceSet

KEYS = [(FlavorName("red"), "cpu"), (FlavorName("red"), "gpu"), (FlavorName("blue"), "gpu")]
units = st.integers(0, 20)
limit = st.none() | units


@st.composite
def trees(draw) -> TenantTree:
    """Return up to eight tenants with one or more roots and any limits."""
    tenants: list[Tenant] = []
    for number in range(draw(st.integers(1, 8))):
        parent = draw(st.none() | st.sampled_from([tenant.path for tenant in tenants])) if tenants else None
        limits = limit if parent is not None else st.none()
        quota = st.builds(Quota, nominal=units, borrowing_limit=limits, lending_limit=limits)
        tenants.append(Tenant(path=TenantPath(f"t{number}"), parent=parent, quotas=draw(st.dictionaries(st.sampled_from(KEYS), quota))))
    return TenantTree(tenants)


@st.composite
def leased(draw):
    """Return a tree, leases granted within `available` and partly returned, and the usage counted on the way."""
    tree, usage, leases = draw(trees()), {}, []
    for step in range(draw(st.integers(0, 25))):
        if leases and draw(st.booleans()):
            back = leases.pop(draw(st.integers(0, len(leases) - 1)))
            for resource, amount in back.amounts.items():
                tree.charge(usage, back.tenant, (back.flavor, resource), -amount)
            continue
        path, (flavor, resource) = draw(st.sampled_from(list(tree.tenants))), draw(st.sampled_from(KEYS))
        amount = min(draw(st.integers(1, 40)), tree.available(usage, path, (flavor, resource)))
        if amount > 0:
            lease = Lease(tenant=path, mesh=MeshId("m"), flavor=flavor, held=ResourceSet({resource: amount}), token=step)
            leases.append(lease)
            tree.charge(usage, path, (flavor, resource), amount)
    return tree, leases, usage


def held(tree, leases, key, within) -> int:
    """Return the units of leases whose tenant satisfies `within`."""
    return sum(lease.amounts[key[1]] for lease in leases if lease.flavor == key[0] and within(lease.tenant))


def nominal(tree, key, within) -> int:
    return sum(tree.quota(path, key).nominal for path in tree.tenants if within(path))


@given(leased())
def test_incremental_usage_equals_usage_from_scratch(case):
    tree, leases, usage = case
    assert usage == tree.recompute(leases)


@given(leased())
def test_a_subtree_holds_at_most_nominal_quota_plus_its_limit(case):
    tree, leases, _ = case
    for path, tenant in tree.tenants.items():
        for key in KEYS:
            limit = 0 if tenant.parent is None else tree.quota(path, key).borrowing_limit
            if limit is not None:
                inside = held(tree, leases, key, lambda other, path=path: tree.is_within(other, path))
                assert inside <= nominal(tree, key, lambda other, path=path: tree.is_within(other, path)) + limit


@given(leased())
def test_nobody_outside_a_subtree_uses_more_of_it_than_it_lends(case):
    tree, leases, _ = case
    for path in tree.tenants:
        root = (path, *tree.ancestors(path))[-1]
        for key in KEYS:
            lends = tree.quota(path, key).lending_limit
            if lends is not None:

                def outside(other, path=path, root=root):
                    return tree.is_within(other, root) and not tree.is_within(other, path)

                assert held(tree, leases, key, outside) <= nominal(tree, key, outside) + lends


@given(leased())
def test_what_a_tenant_keeps_is_there_for_it_whoever_borrows(case):
    tree, _, usage = case
    for path in tree.tenants:
        for key in KEYS:
            assert tree.available(usage, path, key) >= max(0, tree.kept(path, key) - usage.get((path, *key), 0))


@given(leased())
def test_no_tenant_is_offered_more_than_its_potential(case):
    tree, _, usage = case
    for path in tree.tenants:
        for key in KEYS:
            assert 0 <= tree.available(usage, path, key) <= tree.potential(path, key)


@given(trees())
def test_an_empty_tree_offers_every_tenant_its_potential(tree):
    for path in tree.tenants:
        for key in KEYS:
            assert tree.available({}, path, key) == tree.potential(path, key)


@given(leased())
def test_use_falls_to_nothing_when_everything_is_given_back(case):
    tree, leases, usage = case
    for lease in leases:
        for resource, amount in lease.amounts.items():
            tree.charge(usage, lease.tenant, (lease.flavor, resource), -amount)
    assert usage == {}


@given(leased(), st.data())
def test_a_move_to_another_tree_equals_having_been_there(case, data):
    """As in `configure`: use of live leases under other limits, from scratch and then step by step."""
    tree, leases, _ = case
    other = TenantTree(
        Tenant(path=path, parent=tenant.parent, quotas={} if data.draw(st.booleans()) else tenant.quotas)
        for path, tenant in tree.tenants.items()
    )
    usage = other.recompute(leases)
    for lease in leases:
        for resource, amount in lease.amounts.items():
            other.charge(usage, lease.tenant, (lease.flavor, resource), -amount)
    assert usage == {}


@given(leased(), st.integers(1, 30))
def test_the_borrowing_level_of_a_leaf_matches_the_quota_core(case, wanted):
    tree, leases, usage = case
    forest = QuotaForest.of_tenants(tree)
    ledger = QuotaLedger(forest, keeps_local=True)
    for lease in leases:
        own = lease.tenant + OWN_LEAF
        node = forest.index[own] if own in forest.index else forest.node(lease.tenant)
        ledger.charge(node, {(lease.flavor, name): units for name, units in lease.amounts.items()})
    for path in tree.tenants:
        if tree.children(path):
            continue
        node = forest.node(path)
        for key in KEYS:
            steps, is_entitled = tree.borrowing_level(usage, path, key, wanted)
            way = forest.paths[node]
            assert (forest.heights[way[steps]], is_entitled) == ledger.height_that_holds(node, key, wanted)


@given(trees(), st.data())
def test_an_offer_equals_what_the_planner_counts_with(tree, data):
    """For any use, since the limits may have been others when it was granted."""
    forest, usage = QuotaForest.of_tenants(tree), {}
    planned = QuotaLedger(forest, keeps_local=True)
    for path in tree.tenants:
        for key in KEYS:
            amount = data.draw(units)
            tree.charge(usage, path, key, amount)
            planned.charge(forest.queue_of(path), {key: amount})
    for path in tree.tenants:
        for key in KEYS:
            assert max(0, tree.available(usage, path, key)) == planned.available(forest.queue_of(path), key)


@given(leased(), st.integers(1, 4), st.data())
def test_audits_by_tenant_and_of_all_agree(case, at_once, data):
    tree, leases, usage = case
    if data.draw(st.booleans()):
        row = (data.draw(st.sampled_from(list(tree.tenants))), *data.draw(st.sampled_from(KEYS)))
        usage = {**usage, row: data.draw(units)}
    views = tuple(
        LeaseView(lease=str(one.token), tenant=one.tenant, mesh=one.mesh, flavor=one.flavor, amounts=one.amounts, token=one.token)
        for one in leases
    )
    snapshot = FederationSnapshot(at_ms=0, tree=tree, usage={row: used for row, used in usage.items() if used}, leases=views)
    audit = LedgerAudit(at_once=at_once)
    found = [wrong for _ in range(len(tree.tenants)) for wrong in audit.look(snapshot)]
    assert bool(found) is bool(mismatches(snapshot))
    assert {wrong for wrong in mismatches(snapshot) if not tree.children(wrong.tenant)} <= set(found)


@given(trees(), st.data())
def test_a_tree_with_removed_tenants_equals_a_fresh_one(tree, data):
    parents = {}
    for number in range(data.draw(st.integers(0, 4))):
        parents[TenantPath(f"a{number}")] = data.draw(st.none() | st.sampled_from([*tree.tenants, *parents]))
    charged = {(path, *data.draw(st.sampled_from(KEYS))): 1 for path in data.draw(st.sets(st.sampled_from([*tree.tenants, *parents])))}
    found = tree.with_vanished(parents, charged)
    is_as_if_made_anew(found)


@given(trees(), st.data())
def test_a_tree_with_a_moved_tenant_equals_a_fresh_one(tree, data):
    path = data.draw(st.sampled_from(list(tree.tenants)))
    others = [other for other in tree.tenants if not tree.is_within(other, path)]
    parent = data.draw(st.sampled_from([None, *others]))
    if parent is None and any((quota.borrowing_limit, quota.lending_limit) != (None, None) for quota in tree.tenant(path).quotas.values()):
        with pytest.raises(ConfigError, match="needs a parent"):
            tree.with_parent(path, parent)
        return
    before = TenantTree(tree.tenants.values())
    found = tree.with_parent(path, parent)
    assert found == TenantTree([replace(tree.tenant(path), parent=parent), *(kept for kept in tree.tenants.values() if kept.path != path)])
    is_as_if_made_anew(found)
    assert tree == before  # And it is as it was.
    is_as_if_made_anew(tree)


@given(trees(), trees())
def test_an_amendment_turns_one_tree_into_the_other(before, after):
    changes = tree_diff(before, after)
    assert changes is not None
    rows = {**dict(rows_of(before)), **changes.rows}
    assert {name: row for name, row in rows.items() if name not in changes.gone} == dict(rows_of(after))
    assert tree_diff(after, after) == TreeDiff(rows={}, gone=())


def is_as_if_made_anew(found):
    whole = TenantTree(found.tenants.values())
    assert found == whole
    assert list(found.tenants) == list(whole.tenants)
    for path in whole.tenants:
        assert found.children(path) == whole.children(path)
        for key in KEYS:
            assert (found.own_quota(path, key), found.kept(path, key), found.potential(path, key)) == (
                whole.own_quota(path, key),
                whole.kept(path, key),
                whole.potential(path, key),
            )
