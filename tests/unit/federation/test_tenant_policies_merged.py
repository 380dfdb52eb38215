"""Policies of a file merged with manual stops."""

import pytest

from federation.quota.policies import QueueSettings, Stop, TenantPolicies
from federation.quota.tenant_policies import PoliciesInForce, TenantStop
from mesh.core.ids import TenantPath

NLP = TenantPath("acme/nlp")


@pytest.mark.parametrize(
    ("filed", "stopped", "comes_to"),
    [
        pytest.param(Stop.NONE, Stop.HOLD, Stop.HOLD, id="a stop counts where the file has none"),
        pytest.param(Stop.HOLD, Stop.DRAIN, Stop.DRAIN, id="a drain is stronger than a hold"),
        pytest.param(Stop.DRAIN, Stop.HOLD, Stop.DRAIN, id="a hold lifts no drain"),
    ],
)
def test_the_stronger_word_counts(filed, stopped, comes_to):
    tenant_policies = PoliciesInForce(
        filed=TenantPolicies(settings={NLP: QueueSettings(stop=filed, running_max=3)}), stops={NLP: TenantStop(stop=stopped)}
    )
    assert tenant_policies.merged().settings[NLP] == QueueSettings(stop=comes_to, running_max=3)


def test_a_tenant_that_the_file_does_not_name_can_be_stopped():
    merged = PoliciesInForce(stops={NLP: TenantStop(stop=Stop.HOLD)}).merged()
    assert merged.settings == {NLP: QueueSettings(stop=Stop.HOLD)}
