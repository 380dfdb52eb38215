from __future__ import annotations

from dataclasses import replace

import pytest

from federation.quota.flavors import FlavorAssigner, Mode
from federation.quota.nomination import nominate
from federation.quota.policies import KUEUE, Fungibility, Policies, Preference, QueueSettings, ResourceGroup, TryOn
from federation.quota.policies import PreemptionMode as Policy
from federation.quota.quota_fixtures import BLUE, QuotaNode, runs, snapshot_of, work
from federation.quota.workloads import ReplicaSet
from mesh.core.reasons import Reason

BOTH = ("red", "blue")
ALL = Policies(within_queue=Policy.LOWER_PRIORITY, reclaim=Policy.ANY)


def flavor(snapshot, workload) -> tuple[str, Mode, int]:
    (one,) = FlavorAssigner(snapshot, workload).assign().sets
    choice = one.flavors["gpu"]
    return choice.flavor, choice.mode, choice.level


def test_the_first_flavor_with_room_is_taken():
    snapshot = snapshot_of([runs(work("r", "a", 4))], KUEUE, a=QuotaNode(nominal=4, blue=4, flavors=BOTH))
    assert flavor(snapshot, work("in", "a", 2)) == ("blue", Mode.FIT, 0)
    assert flavor(snapshot_of([], KUEUE, a=QuotaNode(nominal=4, blue=4, flavors=BOTH)), work("in", "a", 2)) == ("red", Mode.FIT, 0)


def test_a_workload_gets_only_a_flavor_that_it_can_use():
    snapshot = snapshot_of([], KUEUE, a=QuotaNode(nominal=4, blue=4, flavors=BOTH))
    assert flavor(snapshot, work("in", "a", 2)._replace(flavors=("blue",))) == ("blue", Mode.FIT, 0)
    nothing = FlavorAssigner(snapshot, work("in", "a", 2)._replace(flavors=("green",))).assign()
    assert (nothing.mode, {refusal.reason for refusal in nothing.refusals}) == (Mode.NO_FIT, {Reason.FLAVOR_EXCLUDED})


@pytest.mark.parametrize(
    ("preference", "chosen"),
    [
        pytest.param(Preference.BORROWING, ("blue", Mode.FIT, 1), id="borrow rather than preempt"),
        pytest.param(Preference.PREEMPTION, ("red", Mode.PREEMPT, 0), id="preempt rather than borrow"),
    ],
)
def test_preferred_flavor_is_taken(preference: Preference, chosen: tuple[str, Mode, int]):
    settings = QueueSettings(fungibility=Fungibility(on_borrow=TryOn.NEXT, on_preempt=TryOn.NEXT, preference=preference))
    tree = {
        "all": QuotaNode(blue=4),
        "a": QuotaNode(parent="all", nominal=4, blue=0, borrowing=0, settings=settings, policies=ALL, flavors=BOTH),
    }
    snapshot = snapshot_of([runs(work("low", "a", 4, priority=-1))], KUEUE, **tree)
    assert flavor(snapshot, work("in", "a", 4)) == chosen


def test_request_above_nominal_preempts_only_in_a_lower_cohort():
    below = {
        "root": QuotaNode(),
        "mid": QuotaNode(parent="root", nominal=4),
        "a": QuotaNode(parent="mid", policies=ALL),
        "b": QuotaNode(parent="root"),
    }
    assert flavor(snapshot_of([runs(work("b1", "b", 4))], KUEUE, **below), work("in", "a", 4)) == ("red", Mode.RECLAIM, 1)
    top = {"root": QuotaNode(nominal=4), "a": QuotaNode(parent="root", policies=ALL), "b": QuotaNode(parent="root")}
    refused = FlavorAssigner(snapshot_of([runs(work("b1", "b", 4))], KUEUE, **top), work("in", "a", 4)).assign()
    assert refused.mode is Mode.NO_FIT
    assert [(one.reason, one.wanted, one.available, one.most) for one in refused.refusals] == [(Reason.QUOTA_EXHAUSTED, 4, 0, 4)]


def test_replica_sets_count_on_top_of_each_other():
    two = tuple(ReplicaSet(name=name, count=1, amounts={"gpu": 3}) for name in ("leader", "worker"))
    snapshot = snapshot_of([], KUEUE, a=QuotaNode(nominal=4, blue=3, flavors=BOTH))
    assignment = FlavorAssigner(snapshot, work("in", "a", 1)._replace(replica_sets=two)).assign()
    assert [one.flavors["gpu"].flavor for one in assignment.sets] == ["red", "blue"]
    assert assignment.amounts == {("red", "gpu"): 3, BLUE: 3}


def test_all_resources_of_a_group_take_the_same_flavor():
    settings = QueueSettings(groups=(ResourceGroup(resources=("gpu", "cpu"), flavors=BOTH),))
    snapshot = snapshot_of([], KUEUE, a=QuotaNode(nominal=4, blue=4, settings=settings))
    one = ReplicaSet(name="main", count=1, amounts={"gpu": 1, "cpu": 1})
    assert FlavorAssigner(snapshot, work("in", "a", 1)._replace(replica_sets=(one,))).assign().mode is Mode.NO_FIT


def test_zero_of_an_unknown_resource_fits_and_some_does_not():
    snapshot = snapshot_of([], KUEUE, a=QuotaNode(nominal=4))
    none = ReplicaSet(name="main", count=1, amounts={"gpu": 1, "tpu": 0})
    assert FlavorAssigner(snapshot, work("in", "a", 1)._replace(replica_sets=(none,))).assign().mode is Mode.FIT
    some = replace(none, amounts={"gpu": 1, "tpu": 1})
    refused = FlavorAssigner(snapshot, work("in", "a", 1)._replace(replica_sets=(some,))).assign()
    assert [refusal.reason for refusal in refused.refusals] == [Reason.FLAVOR_UNKNOWN]


@pytest.mark.parametrize("free", [pytest.param(free, id=f"{free} free") for free in range(1, 8)])
def test_a_workload_is_shrunk_no_more_than_it_must_be(free: int):
    snapshot = snapshot_of([runs(work("r", "a", 10 - free))], KUEUE, a=QuotaNode(nominal=10))
    found = nominate(snapshot, work("in", "a", 1, count=8, count_min=2))
    counts = [one.count for one in found.assignment.sets]
    assert (found.is_possible, counts) == ((True, [free]) if free >= 2 else (False, [8]))


def test_replica_sets_are_shrunk_together_in_proportion():
    two = (
        ReplicaSet(name="big", count=10, count_min=2, amounts={"gpu": 1}),
        ReplicaSet(name="small", count=6, count_min=2, amounts={"gpu": 1}),
    )
    found = nominate(snapshot_of([], KUEUE, a=QuotaNode(nominal=10)), work("in", "a", 1)._replace(replica_sets=two))
    assert [one.count for one in found.assignment.sets] == [6, 4]


def test_a_workload_may_preempt_to_run_shrunk():
    snapshot = snapshot_of([runs(work("low", "a", 4, priority=-1))], KUEUE, a=QuotaNode(nominal=4, policies=ALL))
    found = nominate(snapshot, work("in", "a", 1, count=8, count_min=3))
    assert ([one.count for one in found.assignment.sets], len(found.victims)) == ([4], 1)
