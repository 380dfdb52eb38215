"""Who stands before whom in the queue of a mesh."""

from federation.explaining.queue_positions import QueuePositions, may_meet
from mesh.core.ids import FlavorName, TenantPath

STD, GPU = frozenset({FlavorName("std")}), frozenset({FlavorName("gpu")})
EITHER, UNKNOWN = STD | GPU, frozenset()
US, THEM = TenantPath("us"), TenantPath("them")


def test_stages_meet_where_they_could_take_a_flavor_in_common_or_nothing_is_known():
    assert [may_meet(STD, other) for other in (STD, GPU, EITHER, UNKNOWN)] == [True, False, True, True]
    assert may_meet(UNKNOWN, GPU)


def test_a_place_counts_what_could_take_the_same_and_in_order_also_what_is_its_tenants_own():
    line = QueuePositions()
    for flavors, tenant in ((STD, US), (GPU, US), (GPU, THEM), (EITHER, THEM)):
        line.add(flavors, tenant)
    assert line.before(STD, US, in_order=False) == 2
    assert line.before(STD, US, in_order=True) == 3
    assert line.before(EITHER, THEM, in_order=True) == 4
    assert line.before(STD, TenantPath("new"), in_order=True) == 2
