from __future__ import annotations

from benchmarks import stage_placement


def test_both_worlds_of_stage_admission_are_measured():
    found = stage_placement.measure(1, nodes=(20, 40), slots=100, queued=300, ends=20)
    assert [side.nodes for side in found] == [20] * 4 + [40] * 4 + [20, 40]
    assert {side.policy for side in found} == set(stage_placement.POLICIES)
    for side in found[:8]:
        assert side.times_ms.keys() == {"admitted", "ended"}
    for side in found[8:]:
        assert {"LeaseCameFree", "LeaseGranted", "WorkloadEnded", "WorkloadOffered"} <= side.times_ms.keys()
    document = stage_placement.as_json(found)
    assert (document["name"], len(document["sides"])) == ("stage_placement", 10)
