"""Contract of grants: all that the tree has, and never more."""

import threading
from dataclasses import replace

import pytest
from two_teams import A100, ACME, LAB, ONE_GPU, SHOP, ask, gpu, gpus, record, target_update, tree

from federation.errors import BatchTooLarge, ForgedReceipt, LinkRefused, QuotaExceeded, UnfitName
from federation.leases import ROWS_MAX, Granted, LeaseAck, LeaseRefused, QuotaDemand
from federation.manual_mesh import ManualMesh
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.ids import FlavorName, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import AMOUNT_MAX, ResourceSet
from mesh.errors import AmountError


def test_a_lease_holds_what_was_wanted_when_it_is_there(ledger, west):
    assert ask(west, 3) == Granted(slots=3)
    lease = west.lease(LAB, A100)
    assert (lease.held, lease.target, lease.tenant, lease.mesh, lease.flavor) == (gpu(3), gpu(3), LAB, "west", A100)
    assert lease.token > 0
    assert (gpus(ledger, LAB), gpus(ledger, ACME)) == (3, 3)


def test_lease_grows_under_its_token_with_a_new_version(ledger, west):
    ask(west, 2)
    first = west.lease(LAB, A100)
    ask(west, 1)
    second = west.lease(LAB, A100)
    assert (second.held, second.token) == (gpu(3), first.token)
    assert second.version > first.version
    assert gpus(ledger, LAB) == 3


UNFIT = {
    "a bar": "gpu|10000|gpu|10000|gpu",
    "a newline": "gpu\n1",
    "another end of line": "gpu\u20281",
    "a control character": "gpu\x1c1",
    "nothing": "",
}


@pytest.mark.parametrize("name", UNFIT.values(), ids=UNFIT)
@pytest.mark.parametrize("part", ["resource", "tenant", "flavor"])
def test_name_with_a_field_separator_is_refused_everywhere(ledger, west, part, name):
    ask(west)
    before = ledger.snapshot().leases
    about = {"tenant": LAB, "flavor": A100} | ({} if part == "resource" else {part: name})
    amounts = ResourceSet({name: 10_000}) if part == "resource" else ONE_GPU
    demand = QuotaDemand(**about, slot=amounts, slots=4, version=west.lease(LAB, A100).version)
    claim = replace(west.lease(LAB, A100), **about, held=amounts)
    for say in (
        lambda: ledger.acquire(west.session, (demand,)),
        lambda: west.heartbeat(demands=(demand,)),
        lambda: west.heartbeat(claims=(claim,)),
        lambda: ledger.release(west.session, (LeaseAck(**about, version=1, amounts=amounts),)),
    ):
        with pytest.raises((UnfitName, LinkRefused, ForgedReceipt)):
            say()
    seen = ledger.snapshot()
    assert (seen.leases, seen.demands, ledger.audit()) == (before, (), ())


def test_grant_is_partial_when_the_tree_has_less(ledger, west):
    assert ask(west, 100) == Granted(slots=8)


def test_nothing_is_granted_beyond_what_siblings_may_lend(store):
    store.ledger.configure(tree(shop_lends=1))
    west = ManualMesh(store.ledger, record())
    assert ask(west, 100).slots == 5
    assert ask(west) == LeaseRefused(reason=Reason.QUOTA_EXHAUSTED, tenant=LAB, flavor=A100, resource="gpu", wanted=10_000, available=0)
    assert ask(west, 100, SHOP).slots == 3


def test_nothing_is_granted_beyond_the_borrowing_limit(store):
    store.ledger.configure(tree(lab_borrows=2))
    assert ask(ManualMesh(store.ledger, record()), 100).slots == 6


@pytest.mark.every_form
def test_two_meshes_share_one_tree(west, east):
    assert ask(west, 5).slots == 5
    assert ask(east, 5).slots == 3
    assert ask(east).reason is Reason.QUOTA_EXHAUSTED


def test_a_tenant_with_children_may_hold_leases_itself(west):
    assert ask(west, 6, ACME).slots == 6
    assert ask(west, 6).slots == 2


def test_unsatisfiable_request_is_named_so(west):
    refused = ask(west, slot=gpu(9))
    assert (refused.reason, refused.wanted, refused.available) == (Reason.QUOTA_TOO_SMALL, 90_000, 80_000)


def test_request_beyond_the_borrowing_limit_is_named_so(store):
    store.ledger.configure(tree(lab_borrows=2))
    west = ManualMesh(store.ledger, record())
    assert ask(west, slot=gpu(7)).reason is Reason.QUOTA_TOO_SMALL
    ask(west, 6)
    assert ask(west, slot=gpu(6)).reason is Reason.QUOTA_EXHAUSTED


def test_a_resource_without_quota_can_never_be_held(west):
    refused = ask(west, slot=ResourceSet.of({"gpu": 1, "cpu": 1}))
    assert (refused.reason, refused.resource, refused.available) == (Reason.QUOTA_TOO_SMALL, "cpu", 0)
    assert ask(west, flavor=FlavorName("h100")).reason is Reason.FLAVOR_CLOSED


def with_tenants(**quotas: dict) -> TenantTree:
    """Return `acme` and tenants below it with these quotas of GPUs."""
    acme = Tenant(path=ACME, parent=None, quotas=quotas.pop("acme", {}))
    return TenantTree([acme, *(Tenant(path=TenantPath(f"acme/{name}"), parent=ACME, quotas=own) for name, own in quotas.items())])


def test_a_flavor_that_only_a_sibling_names_is_closed(store):
    store.ledger.configure(with_tenants(lab={}, shop={(A100, "gpu"): Quota(nominal=40_000)}))
    refused = ask(ManualMesh(store.ledger, record()))
    assert refused == LeaseRefused(reason=Reason.FLAVOR_CLOSED, tenant=LAB, flavor=A100, resource="gpu", wanted=10_000, available=0)
    assert "tenant acme/lab names no quota of flavor a100" in refused.in_words()
    assert "`quotas: {a100: {gpu: {nominal: 0}}}`" in refused.in_words()


@pytest.mark.parametrize(
    "opening",
    [
        pytest.param({"lab": {(A100, "gpu"): Quota()}}, id="the tenant"),
        pytest.param({"lab": {(A100, "memory"): Quota()}}, id="the tenant with another resource"),
        pytest.param({"lab": {}, "acme": {(A100, "gpu"): Quota()}}, id="a tenant above it"),
    ],
)
def test_a_nominal_quota_of_0_opens_a_flavor_at(store, opening):
    store.ledger.configure(with_tenants(**opening, shop={(A100, "gpu"): Quota(nominal=40_000)}))
    assert ask(ManualMesh(store.ledger, record()), 9).slots == 4


def test_what_a_tenant_lends_upwards_opens_no_flavor_there(store):
    west = ManualMesh(store.ledger, record())
    store.ledger.configure(with_tenants(lab={(A100, "gpu"): Quota(nominal=10_000)}, shop={(A100, "gpu"): Quota(nominal=40_000)}))
    assert ask(west, tenant=ACME).reason is Reason.FLAVOR_CLOSED
    assert ask(west, 9).slots == 5


@pytest.mark.every_form
def test_a_closed_flavor_keeps_its_leases_and_grants_no_more(store):
    shop = {(A100, "gpu"): Quota(nominal=40_000)}
    store.ledger.configure(with_tenants(lab={(A100, "gpu"): Quota()}, shop=shop))
    west = ManualMesh(store.ledger, record())
    ask(west, 2)
    store.ledger.configure(with_tenants(lab={}, shop=shop))
    assert (gpus(store.ledger, LAB), ask(west).reason) == (2, Reason.FLAVOR_CLOSED)
    with pytest.raises(QuotaExceeded):
        target_update(store.ledger, ("west", LAB, 3))
    store.ledger.configure(with_tenants(lab={}, acme={(A100, "gpu"): Quota()}, shop=shop))
    assert ask(west, 9).slots == 2


def test_the_tightest_resource_of_the_slot_decides(store):
    both = {(A100, "gpu"): Quota(nominal=80_000), (A100, "memory"): Quota(nominal=5 * 2**30)}
    store.ledger.configure(TenantTree([Tenant(path=LAB, parent=None, quotas=both)]))
    west = ManualMesh(store.ledger, record())
    slot = ResourceSet.of({"gpu": 1, "memory": "2GiB"})
    assert ask(west, 8, slot=slot).slots == 2
    refused = ask(west, slot=slot)
    assert (refused.resource, refused.wanted, refused.available) == ("memory", 2 * 2**30, 2**30)


@pytest.mark.parametrize(
    ("nominal", "unit", "slots"),
    [
        pytest.param(AMOUNT_MAX, 1, AMOUNT_MAX, id="the largest amount is granted to the last unit"),
        pytest.param(AMOUNT_MAX, 3, AMOUNT_MAX // 3, id="a quotient of sixteen digits is exact"),
        pytest.param(3 * (AMOUNT_MAX // 3) - 1, AMOUNT_MAX // 3, 2, id="a unit less than three slots grants two"),
        pytest.param(123_456_789_012_345_678 % AMOUNT_MAX, 1, 123_456_789_012_345_678 % AMOUNT_MAX, id="sixteen digits survive"),
    ],
)
def test_amounts_are_exact_up_to_the_largest(store, nominal, unit, slots):
    store.ledger.configure(TenantTree([Tenant(path=LAB, parent=None, quotas={(A100, "memory"): Quota(nominal=nominal)})]))
    west = ManualMesh(store.ledger, record())
    assert ask(west, AMOUNT_MAX, slot=ResourceSet({"memory": unit})).slots == slots
    assert store.ledger.snapshot().usage == {(LAB, A100, "memory"): slots * unit}
    west.release(LAB, A100)
    assert store.ledger.snapshot().usage == {}


def test_wanting_no_slot_is_an_error(west):
    with pytest.raises(AmountError, match="at least 1"):
        ask(west, 0)


def test_batch_with_too_many_demands_is_refused_whole(ledger, west):
    demand = QuotaDemand(tenant=LAB, flavor=A100, slot=ONE_GPU)
    with pytest.raises(BatchTooLarge):
        ledger.acquire(west.session, (demand,) * (ROWS_MAX + 1))
    assert gpus(ledger, LAB) == 0


def test_batched_demands_are_answered_in_order(ledger, west):
    demands = [QuotaDemand(tenant=tenant, flavor=A100, slot=ONE_GPU, slots=slots) for tenant, slots in ((LAB, 6), (SHOP, 3), (ACME, 1))]
    acquired = ledger.acquire(west.session, tuple(demands))
    assert [answer.slots if isinstance(answer, Granted) else answer.reason for answer in acquired.answers] == [
        6,
        2,
        Reason.QUOTA_EXHAUSTED,
    ]
    assert {(lease.tenant, lease.held) for lease in acquired.response.leases} == {(LAB, gpu(6)), (SHOP, gpu(2))}


def test_racing_meshes_are_never_granted_more_than_there_is(ledger):
    meshes = [ManualMesh(ledger, record(f"mesh-{number}")) for number in range(4)]
    granted: list[int] = []

    def race(mesh: ManualMesh) -> None:
        answers = [ask(mesh) for _ in range(5)]
        granted.extend(answer.slots for answer in answers if isinstance(answer, Granted))

    threads = [threading.Thread(target=race, args=(mesh,)) for mesh in meshes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(granted) == 8
    assert gpus(ledger, ACME) == 8
