import pytest

from federation.errors import ConfigError, UnknownTenant
from federation.leases import Lease
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.ids import FlavorName, MeshId, TenantPath
from mesh.core.resources import AMOUNT_MAX, ResourceSet
from mesh.errors import LedgerError

RED = FlavorName("red")
KEY = (RED, "cpu")


def node(path, parent=None, nominal=None, borrowing=None, lending=None) -> Tenant:
    """Return a tenant with at most one quota, in units."""
    quotas = {} if nominal is None else {KEY: Quota(nominal=nominal, borrowing_limit=borrowing, lending_limit=lending)}
    return Tenant(path=TenantPath(path), parent=parent and TenantPath(parent), quotas=quotas)


def used(tree, **leases) -> dict:
    """Return the usage of leases, charged one by one."""
    usage: dict = {}
    for path, units in leases.items():
        tree.charge(usage, TenantPath(path), KEY, units)
    return usage


def lease(path, units) -> Lease:
    return Lease(tenant=TenantPath(path), mesh=MeshId("m"), flavor=RED, held=ResourceSet({"cpu": units}))


# Expectations of the first five come from Kueue's own table, pkg/cache/scheduler/resource_test.go: TestAvailable.
AVAILABLE = [
    pytest.param([node("a", None, 5000)], {"a": 2500}, {"a": (2500, 5000)}, id="a lone root has its unused quota"),
    pytest.param(
        [node("top", None, 10000), node("a", "top", 10000), node("b", "top", 10000, None, 9000)],
        {"a": 1000, "b": 500},
        {"a": (28000, 29000), "b": (28500, 30000)},
        id="a lending limit keeps its part from the siblings only",
    ),
    pytest.param(
        [node("top", None, 10000), node("a", "top", 10000)], {"a": 11000}, {"a": (9000, 20000)}, id="a tenant borrows from its parent"
    ),
    pytest.param(
        [
            node("top"),
            node("left", "top", 10000),
            node("right", "top", 10000),
            node("a", "left", 10000),
            node("b", "right", 10000, None, 0),
        ],
        {"a": 10000, "b": 5000},
        {"a": (20000, 30000), "b": (25000, 40000)},
        id="a lending limit of none keeps all, two levels down",
    ),
    pytest.param(
        [
            node("top"),
            node("left", "top", 10000, 5000),
            node("right", "top", 10000),
            node("a", "left", 10000),
            node("b", "left", 10000, 5000),
            node("c", "right", 10000),
        ],
        {},
        {"a": (35000, 35000), "b": (15000, 15000), "c": (50000, 50000)},
        id="borrowing limits hold at every level",
    ),
    pytest.param(
        [node("top", None, 2), node("a", "top", 3)],
        {"top": 4, "a": 1},
        {"top": (0, 5), "a": (0, 5)},
        id="a parent's own leases use its children's loans",
    ),
    pytest.param(
        [node("top"), node("a", "top", 4, 0, 4), node("b", "top", 4)],
        {"a": 4},
        {"a": (0, 4), "b": (4, 8)},
        id="a borrowing limit of none stops at the own quota",
    ),
    pytest.param([node("top"), node("a", "top")], {}, {"a": (0, 0)}, id="a tenant without quota has none where no one lends"),
]


@pytest.mark.parametrize(("tenants", "leases", "expected"), AVAILABLE)
def test_available_and_potential(tenants, leases, expected):
    tree = TenantTree(tenants)
    usage = used(tree, **leases)
    assert {path: (tree.available(usage, path, KEY), tree.potential(path, KEY)) for path in expected} == expected


def test_a_flavor_is_open_where_it_or_an_ancestor_is_named():
    blue = FlavorName("blue")
    named = Tenant(path=TenantPath("named"), parent=TenantPath("top"), quotas={(blue, "gpu"): Quota()})
    below = Tenant(path=TenantPath("below"), parent=named.path, quotas={KEY: Quota(nominal=3)})
    tree = TenantTree([Tenant(path=TenantPath("top"), parent=None), named, below, node("other", "top", 5)])
    opened = {path: sorted(tree.open_flavors(path)) for path in tree.tenants}
    assert opened == {"top": [], "named": ["blue"], "below": ["blue", "red"], "other": ["red"]}
    assert {path: (tree.available({}, path, KEY), tree.potential(path, KEY)) for path in tree.tenants} == {
        "top": (0, 0),
        "named": (0, 0),
        "below": (8, 8),
        "other": (8, 8),
    }
    assert "red" in tree.with_parent(TenantPath("named"), TenantPath("other")).open_flavors(TenantPath("named"))


def test_own_quota_holds_loans_of_children_but_not_kept_quota():
    tree = TenantTree([node("top", None, 10), node("mid", "top", 5, None, 4), node("leaf", "mid", 3, None, 1)])
    assert [(tree.own_quota(path, KEY), tree.kept(path, KEY)) for path in ("leaf", "mid", "top")] == [(3, 2), (6, 2), (14, 0)]


def test_a_charge_climbs_only_with_what_exceeds_the_kept_part():
    tree = TenantTree([node("top"), node("a", "top", 10, None, 4), node("b", "top", 10, None, 6)])
    usage = used(tree, a=7, b=4)
    assert usage == {("a", *KEY): 7, ("b", *KEY): 4, ("top", *KEY): 1}
    tree.charge(usage, TenantPath("a"), KEY, -1)
    assert usage == {("a", *KEY): 6, ("b", *KEY): 4}
    tree.charge(usage, TenantPath("a"), KEY, -6)
    tree.charge(usage, TenantPath("b"), KEY, -4)
    assert usage == {}


def test_giving_back_more_than_is_used_charges_nothing():
    tree = TenantTree([node("top", None, 4), node("a", "top")])
    usage = used(tree, a=2)
    with pytest.raises(LedgerError, match="3 cannot be returned"):
        tree.charge(usage, TenantPath("a"), KEY, -3)
    assert usage == {("a", *KEY): 2, ("top", *KEY): 2}


def test_recomputed_use_is_that_of_the_definition():
    tree = TenantTree([node("top", None, 1), node("a", "top", 10, None, 4), node("b", "top", 10)])
    assert tree.recompute([lease("a", 5), lease("a", 2), lease("b", 3), lease("top", 1)]) == {
        ("a", *KEY): 7,
        ("b", *KEY): 3,
        ("top", *KEY): 5,
    }
    assert tree.recompute([]) == {}


def test_after_a_cut_available_is_negative_until_use_has_fallen():
    usage = used(TenantTree([node("top", None, 10), node("a", "top")]), a=8)
    cut = TenantTree([node("top", None, 5), node("a", "top")])
    assert (cut.available(usage, TenantPath("a"), KEY), cut.available(usage, TenantPath("top"), KEY)) == (-3, -3)


def test_after_a_cut_a_tenant_has_what_it_keeps_and_no_more():
    tenants = [node("top"), node("mid", "top", 2, None, 1), node("a", "mid", 6, None, 4), node("b", "top", 4)]
    usage = used(TenantTree(tenants), a=1, b=9)
    cut = TenantTree([*tenants[:3], node("b", "top", 0)])
    assert {path: cut.available(usage, TenantPath(path), KEY) for path in ("top", "mid", "a", "b")} == {
        "top": -8,
        "mid": 5,
        "a": 6,
        "b": -8,
    }


WRONG = [
    pytest.param([node("a"), node("a", None, 3)], ["a: is listed 2 times"], id="a duplicate path"),
    pytest.param([node("a/b", "a")], ["a/b: its parent a is missing"], id="a missing parent"),
    pytest.param([node("a", "c"), node("b", "a"), node("c", "b"), node("d", "a")], ["a -> c -> b -> a"], id="a cycle, node by node"),
    pytest.param([node("a", "a")], ["a -> a"], id="a tenant that is its own parent"),
    pytest.param([node("top"), node("a", "top", -1)], ["nominal of red/cpu is negative: -1"], id="a negative nominal quota"),
    pytest.param([node("top"), node("a", "top", 1, -1)], ["borrowing limit of red/cpu is negative"], id="a negative borrowing limit"),
    pytest.param([node("top"), node("a", "top", 1, None, -2)], ["lending limit of red/cpu is negative"], id="a negative lending limit"),
    pytest.param([node("a", None, 1, 2)], ["borrowing limit of red/cpu needs a parent"], id="a root that would borrow"),
    pytest.param([node("a", None, 1, None, 2)], ["lending limit of red/cpu needs a parent"], id="a root that would lend"),
    pytest.param(
        [node("top", None, AMOUNT_MAX), node("a", "top", 1)],
        ["could add up to more than"],
        id="quotas whose sum exceeds the ledger's range",
    ),
    pytest.param([node("top"), node("a", "top", 1, AMOUNT_MAX)], ["could add up to more than"], id="a limit beyond the ledger's range"),
    pytest.param([node("a|b")], ["invalid name 'a|b'"], id="an ambiguous name"),
    pytest.param([node("")], ["invalid name ''"], id="an empty name"),
    pytest.param([node("a", "x"), node("b", None, -1)], ["parent x is missing", "is negative: -1"], id="all errors at once"),
]


@pytest.mark.parametrize(("tenants", "messages"), WRONG)
def test_a_tree_that_cannot_be_is_refused(tenants, messages):
    with pytest.raises(ConfigError) as refused:
        TenantTree(tenants)
    for words in messages:
        assert words in str(refused.value)


def test_cycle_is_reported_once():
    with pytest.raises(ConfigError) as refused:
        TenantTree([node("a", "b"), node("b", "a"), node("c", "a")])
    assert str(refused.value).splitlines() == ["a: is its own ancestor: a -> b -> a"]


def test_the_largest_sum_is_accepted():
    tree = TenantTree([node("top", None, AMOUNT_MAX - 1), node("a", "top", 1)])
    assert tree.own_quota(TenantPath("top"), KEY) == AMOUNT_MAX


@pytest.fixture
def company():
    return TenantTree([node("acme"), node("acme/lab", "acme", 5), node("acme/lab/nlp", "acme/lab"), node("acme/shop", "acme")])


def test_the_tree_is_walked_up_and_down(company):
    assert company.children(TenantPath("acme")) == ("acme/lab", "acme/shop")
    assert company.children(TenantPath("acme/shop")) == ()
    assert company.ancestors(TenantPath("acme/lab/nlp")) == ("acme/lab", "acme")
    assert company.ancestors(TenantPath("acme")) == ()
    assert list(company.tenants) == ["acme", "acme/lab", "acme/lab/nlp", "acme/shop"]


@pytest.mark.parametrize(
    ("path", "ancestor", "within"),
    [
        pytest.param("acme/lab", "acme/lab", True, id="a tenant is within itself"),
        pytest.param("acme/lab/nlp", "acme", True, id="a tenant is within its grandparent"),
        pytest.param("acme", "acme/lab", False, id="a parent is not within its child"),
        pytest.param("acme/shop", "acme/lab", False, id="a sibling is not within a sibling"),
        pytest.param("acme/lab/x", "acme/lab", False, id="an unknown tenant is within none"),
        pytest.param("acme/lab", "acm", False, id="a name's prefix is no ancestor"),
    ],
)
def test_is_within(company, path, ancestor, within):
    assert company.is_within(TenantPath(path), TenantPath(ancestor)) is within


def test_a_parent_need_not_be_the_beginning_of_the_path():
    tree = TenantTree([node("holding"), node("acme", "holding", 3)])
    assert tree.is_within(TenantPath("acme"), TenantPath("holding"))
    assert tree.own_quota(TenantPath("holding"), KEY) == 3


def test_unknown_tenant_error_suggests_the_nearest_paths(company):
    with pytest.raises(UnknownTenant, match=r"there is no tenant 'acme/labs'; did you mean acme/lab\?"):
        company.tenant(TenantPath("acme/labs"))
    with pytest.raises(UnknownTenant, match="; there is acme, acme/lab, acme/lab/nlp"):
        company.tenant(TenantPath("zzz"))
    with pytest.raises(UnknownTenant, match=r"there is no tenant .*; there is none"):
        TenantTree().tenant(TenantPath("acme"))


def test_every_question_about_an_unknown_tenant_is_refused(company):
    stranger = TenantPath("stranger")
    for question in (
        lambda: company.children(stranger),
        lambda: company.ancestors(stranger),
        lambda: company.own_quota(stranger, KEY),
        lambda: company.kept(stranger, KEY),
        lambda: company.quota(stranger, KEY),
        lambda: company.potential(stranger, KEY),
        lambda: company.available({}, stranger, KEY),
        lambda: company.charge({}, stranger, KEY, 1),
        lambda: company.recompute([lease("stranger", 1)]),
    ):
        with pytest.raises(UnknownTenant):
            question()


def test_trees_of_the_same_tenants_are_equal_in_any_order():
    one, two = node("a", None, 3), node("b", "a", 4)
    assert TenantTree([one, two]) == TenantTree([two, one])
    assert TenantTree([one, two]) != TenantTree([one])


def test_vanished_tenants_are_restored_only_while_charged(company):
    gone = {TenantPath("acme/old"): TenantPath("acme"), TenantPath("idle"): None}
    tree = company.with_vanished(gone, {(TenantPath("acme/old"), *KEY): 3, (TenantPath("acme"), *KEY): 3})
    assert tree.tenant(TenantPath("acme/old")).quotas == {KEY: Quota(borrowing_limit=0)}
    assert tree.potential(TenantPath("acme/old"), KEY) == 0
    assert "idle" not in tree.tenants
    assert company.with_vanished(gone, {}) == company


def test_charged_vanished_tenant_restores_its_parents(company):
    gone = {TenantPath("acme/old"): TenantPath("acme"), TenantPath("acme/old/team"): TenantPath("acme/old")}
    tree = company.with_vanished(gone, {(TenantPath("acme/old/team"), *KEY): 3})
    assert tree.ancestors(TenantPath("acme/old/team")) == ("acme/old", "acme")


def test_tenant_cannot_vanish_and_stay_or_lack_a_parent(company):
    for path, parent in (("acme/lab", "acme"), ("acme/old", "nobody")):
        gone = {TenantPath(path): TenantPath(parent)}
        with pytest.raises(ConfigError, match=path):
            company.with_vanished(gone, {(TenantPath(path), *KEY): 3})


def test_tree_covers_itself_and_its_derivatives_only(company):
    gone = {TenantPath("acme/old"): TenantPath("acme"), TenantPath("idle"): None}
    old, both = (company.with_vanished(gone, {(path, *KEY): 3 for path in paths}) for paths in (list(gone)[:1], gone))
    assert both.covers(old)
    assert old.covers(company)
    assert not old.covers(both)
    assert not TenantTree(company.tenants.values()).covers(company)


def test_paths_are_matched_by_names_not_by_parents():
    tree = TenantTree([node("acme", None), node("acme/lab", "shop"), node("shop", None), node("x", "acme")])
    assert tree.first_names() == ("acme", "shop", "x")
    assert tree.first_names(TenantPath("shop")) == ("acme", "shop")
    assert tree.top_level == ("acme", "shop", "x")


def test_a_tenant_that_vanished_is_no_top_level_tenant_any_more():
    tree = TenantTree([Tenant(path=TenantPath("acme"), parent=None)])
    charged = tree.with_vanished({TenantPath("shop"): None}, {(TenantPath("shop"), FlavorName("f"), "cpu"): 1})
    assert (charged.first_names(), charged.top_level) == (("acme", "shop"), ("acme",))
