"""Positions in the queue of a mesh."""

from federation.explaining.queue_positions import QueuePositions, may_meet
from mesh.core.ids import FlavorName, TenantPath

STD, GPU = frozenset({FlavorName("std")}), frozenset({FlavorName("gpu")})
EITHER, UNKNOWN = STD | GPU, frozenset()
US, THEM = TenantPath("us"), TenantPath("them")


def test_stages_compete_only_over_a_common_flavor():
    assert [may_meet(STD, other) for other in (STD, GPU, EITHER, UNKNOWN)] == [True, False, True, True]
    assert may_meet(UNKNOWN, GPU)


def test_position_counts_same_flavors_and_own_tenant_in_order():
    line = QueuePositions()
    for flavors, tenant in ((STD, US), (GPU, US), (GPU, THEM), (EITHER, THEM)):
        line.add(flavors, tenant)
    assert line.before(STD, US, in_order=False) == 2
    assert line.before(STD, US, in_order=True) == 3
    assert line.before(EITHER, THEM, in_order=True) == 4
    assert line.before(STD, TenantPath("new"), in_order=True) == 2
