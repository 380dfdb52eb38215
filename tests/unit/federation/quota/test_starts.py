"""Limits on starts: stops, windows, and running work."""

import pytest

from federation.quota.policies import QueueSettings, Stop, TenantPolicies, TimeWindow
from federation.quota.starts import ANY_NUMBER, Starts, Tally
from federation.quota.tenant_policies import PoliciesInForce, TenantStop
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.ids import FlavorName, TenantPath
from mesh.core.reasons import Reason

ACME, NLP, VISION = TenantPath("acme"), TenantPath("acme/nlp"), TenantPath("acme/vision")
TREE = TenantTree(
    [
        Tenant(path=ACME, parent=None, quotas={(FlavorName("std"), "cpu"): Quota(nominal=1)}),
        Tenant(path=NLP, parent=ACME),
        Tenant(path=VISION, parent=ACME),
    ]
)
NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000


def starts_with(stops=None, **settings):
    filed = TenantPolicies(settings={TenantPath(path.replace("_", "/")): own for path, own in settings.items()})
    return Starts(TREE, PoliciesInForce(filed=filed, stops=stops or {}))


def allowed(starts, tenant=NLP, user="ann"):
    allowance = starts.allowed(tenant, user, NOW_MS)
    return allowance.starts, allowance.gate.reason if allowance.gate is not None else None


def test_starts_are_unlimited_by_default():
    assert starts_with().allowed(NLP, "ann", NOW_MS) == ANY_NUMBER


def test_unknown_tenant_is_not_limited_here():
    starts = starts_with(stops={ACME: TenantStop()})
    starts.count(Tally(tenant=TenantPath("gone"), user="", started=1), 1)
    assert starts.allowed(TenantPath("gone"), "ann", NOW_MS) == ANY_NUMBER


@pytest.mark.parametrize("stop", [Stop.HOLD, Stop.DRAIN])
def test_stop_closes_the_subtree_and_no_sibling(stop):
    starts = starts_with(stops={NLP: TenantStop(stop=stop, reason="the budget")})
    reason = Reason.TENANT_SUSPENDED if stop is Stop.HOLD else Reason.TENANT_DRAINED
    assert (allowed(starts), allowed(starts, VISION)) == ((0, reason), (None, None))
    assert starts.allowed(NLP, "", NOW_MS).is_shut
    assert "(the budget)" in starts.allowed(NLP, "", NOW_MS).detail
    assert allowed(starts_with(stops={ACME: TenantStop(stop=stop)}), VISION) == (0, reason)


def test_a_closed_window_shuts_and_says_when_it_opens():
    opens_ms = (NOW_MS + 60_000) % DAY_MS
    allowance = starts_with(acme=QueueSettings(windows=(TimeWindow(opens_ms=opens_ms, lasts_ms=1),))).allowed(NLP, "", NOW_MS)
    assert (allowance.starts, allowance.gate.opens_ms, allowance.is_shut) == (0, NOW_MS + 60_000, True)
    assert allowance.detail.endswith("the next one opens 2023-11-14 22:14:20Z")


def test_running_work_below_counts_at_a_limit_until_it_ends():
    starts = starts_with(acme=QueueSettings(running_max=3))
    starts.count(Tally(tenant=VISION, user="bob", started=2), 2)
    assert allowed(starts) == (1, Reason.RUNNING_LIMIT)
    starts.count(Tally(tenant=VISION, user="bob", started=1), -1)
    assert allowed(starts) == (2, Reason.RUNNING_LIMIT)
    assert not starts.allowed(NLP, "", NOW_MS).is_shut


def test_a_limit_per_user_counts_each_for_himself():
    starts = starts_with(acme=QueueSettings(running_max_per_user=1))
    starts.count(Tally(tenant=VISION, user="bob", started=1), 1)
    assert (allowed(starts, NLP, "bob"), allowed(starts, NLP, "ann")) == ((0, Reason.USER_LIMIT), (1, Reason.USER_LIMIT))


def test_tightest_of_several_limits_counts():
    starts = starts_with(acme=QueueSettings(running_max=2), acme_nlp=QueueSettings(running_max=5))
    assert allowed(starts) == (2, Reason.RUNNING_LIMIT)


def test_after_a_limit_was_lowered_so_many_have_to_end_first():
    starts = starts_with(acme=QueueSettings(running_max=1))
    starts.count(Tally(tenant=NLP, user="", started=3), 3)
    assert starts.allowed(NLP, "", NOW_MS).starts == -2
    assert starts.allowed(NLP, "", NOW_MS).is_closed


def test_own_work_of_a_parent_tenant_counts_at_the_parent():
    starts = starts_with(acme=QueueSettings(running_max=1))
    starts.count(Tally(tenant=ACME, user="", started=1), 1)
    assert allowed(starts, ACME) == (0, Reason.RUNNING_LIMIT)
