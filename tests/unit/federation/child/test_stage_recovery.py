from __future__ import annotations

from dataclasses import replace

import pytest

from federation.child.stage_recovery import StageNote, note_of, recovery_of, seen_in, written
from federation.dispatch import Claim, ClaimedStage
from mesh.core.resources import NOTHING, ResourceSet
from mesh.stages.hosting import FoundStage, FoundStages
from mesh.stages.spec import StageSpec

CPU = ResourceSet.of({"cpu": 1})
POOLS = {"general": ResourceSet.of({"cpu": 4})}
LEASES = {("lab", "standard")}


def claimed(name="s", token=5, *, slot=CPU, cancelled=False):
    spec = StageSpec(stage=name, run="r", tenant="lab", tasks=(), slot=slot, width=1)
    return ClaimedStage(claim=Claim(stage=name, mesh="west", incarnation=9, token=token), spec=spec, inputs={}, cancelled=cancelled)


def note(claim=5, *, pool="general", flavor="standard", slots=1, token=3, **named):
    return StageNote(claim=claim, pool=pool, flavor=flavor, slots=slots, token=token, **named)


def stage(name="s", kept=None, **named):
    return FoundStage(stage=name, note=written(kept or note()), holder=2, **named)


def found(*stages):
    return FoundStages(incarnation=1, since=1, stages=stages)


def sorted_out(found_stages, claims, pools=POOLS, leases=LEASES):
    return recovery_of(found(*found_stages), claims, capacity=pools, leases=leases)


def names(recovery):
    return [each.claimed.claim.stage for each in recovery.stages], [each.claim.stage for each in recovery.missing]


def test_running_claimed_stage_continues_in_its_pool():
    recovery = sorted_out([stage(kept=note(slots=2))], [claimed()])
    (goes_on,) = recovery.stages
    assert (goes_on.holder, goes_on.is_preempted, goes_on.amounts, goes_on.payer) == (2, False, CPU.times(2), ("lab", "standard"))
    assert (goes_on.found.pool, goes_on.found.slots, goes_on.found.offer.workload) == ("general", 2, "s")
    assert recovery.missing == ()


def test_running_unclaimed_stage_does_not_continue():
    assert names(sorted_out([stage()], [])) == ([], [])


@pytest.mark.parametrize(
    ("paid", "leases", "orphans"),
    [
        pytest.param({"tenant": "lab", "slot": CPU}, LEASES, [("t", CPU.times(2))], id="that a lease of the session pays for"),
        pytest.param({"tenant": "lab", "slot": CPU}, set(), [], id="whose lease is gone"),
        pytest.param({"tenant": "lab", "slot": NOTHING}, LEASES, [], id="that takes nothing"),
        pytest.param({}, LEASES, [], id="noted by an earlier version"),
    ],
)
def test_paid_for_until_it_has_stopped_is_what_does_not_go_on(paid, leases, orphans):
    kept = note(slots=2, **paid)
    recovery = sorted_out([stage("s"), stage("t", kept)], [claimed("s", slot=NOTHING)], leases=leases)
    assert [(orphan.stage, orphan.amounts) for orphan in recovery.orphans] == orphans


def test_claimed_stage_that_does_not_run_is_returned():
    assert names(sorted_out([stage("t")], [claimed("s"), claimed("t")])) == (["t"], ["s"])


@pytest.mark.parametrize(
    ("kept", "pools", "leases"),
    [
        pytest.param(note(claim=4), POOLS, LEASES, id="started under another claim"),
        pytest.param(note(), {}, LEASES, id="whose pool is gone"),
        pytest.param(note(slots=5), POOLS, LEASES, id="whose pool has shrunk"),
        pytest.param(note(), POOLS, set(), id="whose lease is gone"),
    ],
)
def test_stage_whose_pool_is_gone_is_returned(kept, pools, leases):
    assert names(sorted_out([stage(kept=kept)], [claimed()], pools, leases)) == ([], ["s"])


def test_note_of_another_version_is_returned():
    unread = replace(stage(), note=b'{"wrote": "somebody else"}')
    assert note_of(unread) is None
    assert names(sorted_out([unread], [claimed()])) == ([], ["s"])


def test_room_goes_to_the_earlier_claims():
    stages = [stage(name, note(claim=token, slots=2)) for name, token in (("a", 7), ("b", 5), ("c", 6))]
    claims = [claimed("a", 7), claimed("b", 5), claimed("c", 6)]
    assert names(sorted_out(stages, claims)) == (["b", "c"], ["a"])


def test_a_stage_that_takes_nothing_needs_no_lease():
    (goes_on,) = sorted_out([stage()], [claimed(slot=NOTHING)], leases=set()).stages
    assert goes_on.payer is None


def test_stopping_stage_is_preempted_unless_it_was_cancelled():
    stopped = [stage(is_cancelled=True)]
    assert [sorted_out(stopped, [claimed(cancelled=by_user)]).stages[0].is_preempted for by_user in (False, True)] == [True, False]


def test_highest_token_of_session_claim_or_lease_counts():
    assert seen_in(found()) == 1
    assert seen_in(found(stage())) == 5
    assert seen_in(found(stage(kept=note(token=8)))) == 8
    assert seen_in(replace(found(stage()), incarnation=11)) == 11
