"""Leases of a child mesh: demands, grants and releases."""

from __future__ import annotations

import math

import pytest
from child_bed import CPU, DURATION_MS, GRACE_MS, HEARTBEAT_MS, TTL_MS, Federation, all_is_free, pool, slow

from federation.child.child_mesh import IDLE_HEARTBEATS
from federation.errors import StoreUnavailable
from federation.leases import QuotaDemand, TargetUpdate
from federation.snapshot import MeshRecord
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet


def test_waiting_stage_reports_once_and_starts_with_its_quota():
    federation = Federation(quota=1)
    federation.submit("s")
    federation.submit("t")
    federation.heartbeat(3)
    assert federation.kinds() == [("s", "stage_started"), ("t", "stage_waiting")]
    assert (federation.messages[1].reason, federation.messages[1].detail) == (
        Reason.QUOTA_EXHAUSTED,
        "acme may get 0 cpu of standard now, one slot needs 1",
    )


def test_a_stage_of_a_tenant_that_is_gone_waits_and_says_so(joined):
    joined.submit("s", tenant="ghost")
    joined.heartbeat()
    assert joined.kinds() == [("s", "stage_waiting")]
    assert joined.messages[0].reason is Reason.TENANT_UNKNOWN
    assert joined.messages[0].detail.startswith(
        "tenant ghost does not exist any more, so no quota pays for its work; write it into the root's file again"
    )
    assert joined.held() == 0


@pytest.mark.parametrize("mute", [pytest.param(False, id="the call was lost"), pytest.param(True, id="the answer was lost")])
def test_unanswered_release_is_repeated_and_not_spent(busy, mute):
    busy.work()
    busy.work()
    (busy.flaky.mute if mute else busy.flaky.down).add("release")
    busy.heartbeat(IDLE_HEARTBEATS + 1)
    busy.flaky.down.add("acquire")
    busy.submit("t")
    busy.notifications()
    assert busy.running() == set()
    busy.flaky.mute, busy.flaky.down = set(), set()
    busy.heartbeat()
    assert (busy.running(), busy.held()) == ({"t"}, 1)


@pytest.mark.parametrize("mute", [pytest.param(False, id="the call was lost"), pytest.param(True, id="the answer was lost")])
def test_a_lease_that_was_not_answered_is_asked_for_again(joined, mute):
    (joined.flaky.mute if mute else joined.flaky.down).add("acquire")
    joined.submit("s")
    joined.notifications()
    joined.flaky.mute, joined.flaky.down = set(), set()
    assert joined.running() == set()
    joined.heartbeat()
    assert joined.running() == {"s"}


def test_stage_reports_unavailable_quota_after_the_next_answer(joined):
    joined.flaky.down = {"acquire"}
    joined.submit("s")
    joined.notifications()
    assert joined.kinds() == []
    joined.heartbeat(2)
    assert joined.kinds() == [("s", "stage_waiting")]
    assert joined.messages[0].reason is Reason.LEDGER_UNREACHABLE


def test_unanswered_grant_is_released_when_its_stage_is_gone(joined):
    joined.flaky.mute = {"acquire"}
    joined.submit("s")
    joined.notifications()
    assert joined.held() == 1
    joined.flaky.mute = set()
    joined.store.cancel("s")
    joined.heartbeat()
    assert all_is_free(joined)


def test_unanswered_grant_never_pays_for_another_flavor():
    federation = Federation(pool("general", 1), pool("spot", 1, flavor="cheap"))
    federation.submit("s")
    federation.flaky.mute = {"acquire"}
    federation.heartbeat()
    federation.flaky.mute = set()
    federation.heartbeat()
    federation.heartbeat(IDLE_HEARTBEATS + 1)
    (used,) = [kept.flavor for kept in federation.view().record.pools if kept.used]
    assert [lease.flavor for lease in federation.store.snapshot().leases] == [used]


def test_unanswered_grant_takes_no_more_than_the_free_capacity():
    federation = Federation()
    federation.submit("wide", "a:", "b:", "c:", width=3)
    federation.flaky.mute = {"acquire"}
    federation.heartbeat()
    federation.submit("first", slot=ResourceSet.of({"cpu": 2}), priority=1)
    federation.flaky.mute = set()
    federation.heartbeat()
    federation.heartbeat()
    assert federation.running() == {"first", "wide"}
    assert [kept.used for kept in federation.view().record.pools] == [CPU.times(4)]
    assert federation.held() == 4


def test_recovering_ledger_gets_no_new_demands(joined):
    joined.store.restart()
    joined.submit("s")
    joined.heartbeat()
    assert joined.kinds() == [("s", "stage_waiting")]
    assert joined.messages[0].reason is Reason.LEDGER_RECOVERING
    joined.heartbeat(math.ceil((TTL_MS + GRACE_MS) / HEARTBEAT_MS) + 1)
    assert joined.running() == {"s"}


def test_partial_grant_withdraws_the_rest_of_the_demand():
    federation = Federation(quota=2)
    federation.submit("s", "a:", "b:", "c:", width=3)
    federation.heartbeat()
    assert federation.held() == 2
    federation.heartbeat()
    assert federation.store.snapshot().demands == ()


def test_stage_covered_by_an_idle_lease_makes_no_call(busy):
    busy.work()
    busy.work()
    busy.flaky.down = {"acquire"}
    busy.submit("t")
    busy.notifications()
    assert busy.running() == {"t"}


def test_idle_lease_is_released_when_another_mesh_demands_it():
    federation = Federation(quota=1)
    federation.submit("s")
    federation.heartbeat()
    federation.work()
    west = federation.store.join(MeshRecord(mesh="west", labels={}, pools=(), cluster="c2"))
    demand = QuotaDemand(tenant="acme", flavor="standard", slot=CPU)
    (refused,) = federation.store.acquire(west, (demand,)).answers
    assert refused.reason is Reason.QUOTA_EXHAUSTED
    federation.notifications()
    (granted,) = federation.store.acquire(west, (demand,)).answers
    assert granted.slots == 1


def test_target_without_demand_falls_with_the_idle_lease(busy):
    store = busy.store
    store.plan_apply(
        store.elect("p", 60_000),
        store.snapshot().version,
        (TargetUpdate(mesh="east", tenant="acme", flavor="standard", target=CPU.times(4)),),
    )
    tree = TenantTree([Tenant(path="acme", parent=None, quotas={("standard", "cpu"): Quota(nominal=20_000)})])
    store.configure(tree)  # Four are out of reach now.
    busy.heartbeat()
    busy.work()
    busy.work()
    assert all_is_free(busy)
    assert store.snapshot().leases == ()


def test_idle_lease_of_another_tenant_is_released_for_room():
    federation = Federation()
    both = {("standard", "cpu"): Quota(nominal=10_000)}
    lent = [Tenant(path=path, parent="acme") for path in ("acme/a", "acme/b")]
    federation.store.configure(TenantTree([Tenant(path="acme", parent=None, quotas=both), *lent]))
    federation.submit("s", tenant="acme/a")
    federation.heartbeat()
    federation.work()
    federation.submit("t", tenant="acme/b")
    federation.notifications()
    assert federation.running() == {"t"}
    assert [lease.tenant for lease in federation.store.snapshot().leases] == ["acme/b"]


def test_demands_are_withdrawn_when_nothing_waits():
    federation = Federation(quota=1)
    federation.submit("s")
    federation.submit("t")
    federation.heartbeat()
    assert [demand.mesh for demand in federation.store.snapshot().demands] == ["east"]
    federation.store.cancel("t")
    federation.notifications()
    federation.heartbeat(2)
    assert federation.store.snapshot().demands == ()


def test_unavailable_ledger_is_called_once_for_all_stages():
    federation = Federation()
    federation.heartbeat()
    asked = []

    def away(*args, **_named):
        asked.append(args)
        raise StoreUnavailable("gone")

    federation.store.acquire = away
    for name in "abcde":
        federation.submit(name)
    federation.notifications()
    assert len(asked) == 1


def test_equal_waiting_stages_cost_one_call_per_round():
    federation = Federation(quota=1)
    federation.submit("s")
    federation.heartbeat()
    questions = slow(federation, "acquire", 0)
    for number in range(60):
        federation.submit(f"t{number}")
    federation.heartbeat()
    federation.store.cancel("t0")
    federation.heartbeat()
    assert len(questions) == 2
    assert [demand.tenant for demand in federation.store.snapshot().demands] == ["acme"]


def test_lease_and_demand_have_the_priority_of_their_stages():
    federation = Federation(quota=2)
    federation.submit("urgent", priority=7)
    federation.heartbeat()
    federation.submit("small", priority=-3)
    federation.heartbeat()
    federation.submit("late", priority=2)
    federation.heartbeat(2)
    assert federation.running() == {"urgent", "small"}
    assert [lease.priority for lease in federation.store.snapshot().leases] == [7]
    assert [demand.priority for demand in federation.store.snapshot().demands] == [2]


def test_only_the_missing_part_is_demanded_beside_an_idle_lease():
    federation = Federation(quota=4)
    federation.host.behaviour = lambda task: (DURATION_MS if task.node == "short" else 10**9, False)
    federation.submit("long", "long:")
    federation.submit("short", "short:")
    federation.heartbeat()
    federation.submit("large", slot=ResourceSet.of({"cpu": 3}))  # The long stage has one of four; the short one's is idle soon.
    federation.notifications()
    assert federation.running() == {"long", "short"}
    federation.work()
    assert federation.running() == {"long", "large"}
    assert federation.held() == 4


# -- lease limit ---------------------------------------------------------------------------------------------------------


def tree_of(count):
    quotas = {("standard", "cpu"): Quota(nominal=10_000)}
    return TenantTree([Tenant(path=f"t{number}", parent=None, quotas=quotas) for number in range(count)])


def crowd(count):
    """Return a federation with this many tenants, each with capacity, quota and a queued stage."""
    federation = Federation(pool("general", count))
    federation.store.configure(tree_of(count))
    for number in range(count):
        federation.submit(f"s{number}", tenant=f"t{number}")
    federation.heartbeat()
    return federation


@pytest.fixture
def three_reported(monkeypatch):
    """Let a heartbeat report at most three leases."""
    for module in (
        "federation.child.lease_accounting",
        "federation.child.lease_client",
        "federation.child.quota_demand",
        "federation.store.memory.sessions",
    ):
        monkeypatch.setattr(f"{module}.ROWS_SENT_MAX", 3)


@pytest.mark.usefixtures("three_reported")
def test_leases_stop_at_the_limit_and_the_next_stage_says_so():
    federation = crowd(4)
    assert federation.running() == {"s0", "s1", "s2"}
    assert federation.kinds()[-1] == ("s3", "stage_waiting")
    assert (federation.messages[-1].reason, federation.messages[-1].detail) == (
        Reason.LEASES_AT_LIMIT,
        "the mesh holds 3 leases, the maximum, and all of them are in use",
    )
    federation.heartbeat()
    assert federation.view().record.leases_full
    federation.store.restart()
    federation.heartbeat(3)
    assert (federation.running(), federation.held()) == ({"s0", "s1", "s2"}, 3)


@pytest.mark.usefixtures("three_reported")
def test_idle_lease_is_released_for_a_needed_one():
    federation = crowd(4)
    federation.work()
    assert federation.running() == {"s3"}
    federation.heartbeat()
    assert not federation.view().record.leases_full
    assert [lease.tenant for lease in federation.store.snapshot().leases] == ["t1", "t2", "t3"]


@pytest.mark.usefixtures("three_reported")
@pytest.mark.parametrize("mute", [pytest.param(False, id="the call was lost"), pytest.param(True, id="the answer was lost")])
def test_unanswered_release_blocks_its_replacement_lease(mute):
    federation = crowd(3)
    federation.store.configure(tree_of(4))
    federation.work(by_ms=0)
    federation.clock.advance(DURATION_MS)
    federation.host.advance()
    (federation.flaky.mute if mute else federation.flaky.down).add("release")
    federation.submit("s3", tenant="t3")
    while federation.reports:
        federation.child.take_report(federation.reports.pop(0))
    federation.notifications()
    assert federation.running() == set()
    federation.flaky.mute, federation.flaky.down = set(), set()
    federation.heartbeat()
    assert (federation.running(), federation.held()) == ({"s3"}, 1)


@pytest.mark.usefixtures("three_reported")
def test_leases_in_use_are_reported_first_at_the_limit():
    federation = crowd(3)
    store = federation.store
    store.configure(tree_of(5))
    target_updates = tuple(TargetUpdate(mesh="east", tenant=f"t{number}", flavor="standard", target=CPU) for number in (3, 4))
    store.plan_apply(store.elect("p", 60_000), store.snapshot().version, target_updates)
    federation.flaky.down = {"release"}
    federation.heartbeat(2)
    assert len(store.snapshot().leases) == 5
    store.restart()
    federation.heartbeat(2)
    assert federation.running() == {"s0", "s1", "s2"}
    assert {lease.tenant for lease in store.snapshot().leases} == {"t0", "t1", "t2"}
