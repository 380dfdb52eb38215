"""Contract of tenant policy stores."""

from fractions import Fraction

import pytest

from federation.quota.policies import (
    OnMaxWait,
    OnQuotaReduction,
    Policies,
    PreemptionMode,
    QueueSettings,
    ResourceGroup,
    Rules,
    Stop,
    TenantPolicies,
    TimeWindow,
)
from federation.quota.tenant_policies import PoliciesInForce, TenantPolicyStore, TenantStop
from federation.store.memory.policies import MemoryTenantPolicies
from federation.store.redis.keys import Keys
from federation.store.redis.policies import RedisTenantPolicies
from mesh.core.ids import TenantPath

ACME, NLP = TenantPath("acme"), TenantPath("acme/research|é")
FILED = TenantPolicies(
    rules=Rules(fair_sharing=False, min_run_ms=7),
    weights={ACME: Fraction(2, 3)},
    settings={
        NLP: QueueSettings(
            policies=Policies(reclaim=PreemptionMode.ANY, borrow_priority_max=3),
            groups=(ResourceGroup(resources=("cpu",), flavors=("a", "b")),),
            priority_max=-4,
            running_max=2,
            running_max_per_user=1,
            max_wait_ms=9_000,
            on_max_wait=OnMaxWait.FIRST,
            windows=(TimeWindow(opens_ms=1, lasts_ms=2),),
            on_quota_reduction=OnQuotaReduction.EVICT,
        )
    },
)
BUDGET = TenantStop(stop=Stop.HOLD, reason="the budget, é", by="ab12cd34", since_ms=7)


@pytest.fixture(params=["memory", "redis_server", "cluster_client", "narrow_client", "narrow_newer_client"])
def tenant_policies(request: pytest.FixtureRequest) -> TenantPolicyStore:
    if request.param == "memory":
        return MemoryTenantPolicies()
    return RedisTenantPolicies(request.getfixturevalue(request.param), Keys("contract"))


def test_defaults_hold_before_anything_is_published(tenant_policies):
    assert tenant_policies.in_force() == PoliciesInForce()


@pytest.mark.every_form
def test_published_policies_come_back_whole(tenant_policies):
    tenant_policies.publish(FILED)
    assert tenant_policies.in_force() == PoliciesInForce(filed=FILED)


@pytest.mark.every_form
def test_stop_outlasts_new_files_until_it_is_lifted(tenant_policies):
    tenant_policies.stop(NLP, BUDGET)
    tenant_policies.publish(FILED)
    assert tenant_policies.in_force() == PoliciesInForce(filed=FILED, stops={NLP: BUDGET})
    assert tenant_policies.release(NLP)
    assert not tenant_policies.release(NLP)
    assert tenant_policies.in_force() == PoliciesInForce(filed=FILED)


def test_later_of_two_stops_counts(tenant_policies):
    tenant_policies.stop(NLP, BUDGET)
    tenant_policies.stop(NLP, TenantStop(stop=Stop.DRAIN))
    assert tenant_policies.in_force().stops == {NLP: TenantStop(stop=Stop.DRAIN)}


def test_while_nothing_changes_the_answer_is_the_same_object(tenant_policies):
    tenant_policies.publish(FILED)
    before = tenant_policies.in_force()
    assert tenant_policies.in_force() is before
    tenant_policies.stop(ACME, BUDGET)
    assert tenant_policies.in_force() is not before
