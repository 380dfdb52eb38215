from __future__ import annotations

from dataclasses import replace

import pytest

from federation.child.running_stage import StageNote
from federation.child.stage_recovery import note_of, recovery_of, seen_in, workload_of
from federation.dispatch import Claim, ClaimedStage
from federation.leases import Lease, LedgerResponse, Session
from mesh.core.resources import NOTHING, ResourceSet
from mesh.stages.hosting import FoundStages, HeldStage
from mesh.stages.spec import StageSpec, TaskSpec

CPU = ResourceSet.of({"cpu": 1})
POOLS = {"general": ResourceSet.of({"cpu": 4})}
LEASES = (Lease(tenant="lab", mesh="west", flavor="standard", held=CPU, target=CPU, token=3),)


def claimed(name="s", token=5, *, slot=CPU, cancelled=False):
    spec = StageSpec(stage=name, run="r", tenant="lab", tasks=(), slot=slot, width=1, created_ms=8)
    return ClaimedStage(claim=Claim(stage=name, mesh="west", incarnation=9, token=token), spec=spec, inputs={}, cancelled=cancelled)


def note(claim=5, *, pool="general", flavor="standard", slots=1, token=3, tenant="lab", slot=CPU):
    return StageNote(claim=claim, pool=pool, flavor=flavor, slots=slots, token=token, tenant=tenant, slot=slot)


def stage(name="s", kept=None, **named):
    return HeldStage(stage=name, note=(kept or note()).encoded(), holder=2, **named)


def found(*stages):
    return FoundStages(incarnation=1, since=1, stages=stages)


def sorted_out(found_stages, claims, pools=POOLS, leases=LEASES):
    session = Session(mesh="west", incarnation=9, ttl_ms=10_000, response=LedgerResponse(leases=tuple(leases)))
    return recovery_of(found(*found_stages), claims, session, capacity=pools, now_ms=0)


def names(recovery):
    return [running.claim.stage for running, _ in recovery.stages], [each.claim.stage for each in recovery.missing]


def test_running_claimed_stage_continues_in_its_pool():
    recovery = sorted_out([stage(kept=note(slots=2))], [claimed()])
    ((running, claim),) = recovery.stages
    assert (running.holder, running.is_preempted, running.is_whole) == (2, False, False)
    assert (running.note.amounts, running.note.payer) == (CPU.times(2), ("lab", "standard"))
    workload = workload_of(claim, running.note)
    assert (workload.pool, workload.slots, workload.offer.workload, workload.offer.created_ms) == ("general", 2, "s", 8)
    assert recovery.missing == ()


@pytest.mark.parametrize(
    ("left", "useful"),
    [
        pytest.param(("b", "c", "d"), 3, id="it can use a slot for each task that is left"),
        pytest.param(("d",), 1, id="it can give slots back"),
        pytest.param(None, 2, id="it keeps its slots while the tasks that are left are unknown"),
    ],
)
def test_recovered_stage_knows_its_useful_slots(left, useful):
    tasks = tuple(TaskSpec(node=node, attempt=1, function="call:m:f", resources=CPU) for node in "abcd")
    claim = claimed()
    wide = replace(claim, spec=replace(claim.spec, tasks=tasks, width=4))
    ((running, _),) = sorted_out([stage(kept=note(slots=2), left=left)], [wide]).stages
    assert running.useful == useful


def test_running_unclaimed_stage_does_not_continue():
    assert names(sorted_out([stage()], [])) == ([], [])


@pytest.mark.parametrize(
    ("slot", "leases", "orphans"),
    [
        pytest.param(CPU, LEASES, [("t", CPU.times(2))], id="that a lease of the session pays for"),
        pytest.param(CPU, (), [], id="whose lease is gone"),
        pytest.param(NOTHING, LEASES, [], id="that takes nothing"),
    ],
)
def test_paid_for_until_it_has_stopped_is_what_does_not_go_on(slot, leases, orphans):
    kept = note(slots=2, slot=slot)
    recovery = sorted_out([stage("s", note(slot=NOTHING)), stage("t", kept)], [claimed("s", slot=NOTHING)], leases=leases)
    assert [(orphan.claim.stage, orphan.note.amounts) for orphan in recovery.orphans] == orphans
    assert all(orphan.is_preempted and orphan.is_disowned for orphan in recovery.orphans)


def test_claimed_stage_that_does_not_run_is_returned():
    assert names(sorted_out([stage("t")], [claimed("s"), claimed("t")])) == (["t"], ["s"])


@pytest.mark.parametrize(
    ("kept", "pools", "leases"),
    [
        pytest.param(note(claim=4), POOLS, LEASES, id="it was started under another claim"),
        pytest.param(note(), {}, LEASES, id="its pool is gone"),
        pytest.param(note(slots=5), POOLS, LEASES, id="its pool is smaller now"),
        pytest.param(note(), POOLS, (), id="the lease that paid is gone"),
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
    ((running, _),) = sorted_out([stage(kept=note(slot=NOTHING))], [claimed(slot=NOTHING)], leases=()).stages
    assert running.note.payer is None


def test_stopping_stage_is_preempted_unless_it_was_cancelled():
    stopped = [stage(is_cancelled=True)]
    recovered = [sorted_out(stopped, [claimed(cancelled=by_user)]).stages[0][0] for by_user in (False, True)]
    assert [running.is_preempted for running in recovered] == [True, False]


def test_highest_token_of_session_claim_or_lease_counts():
    assert seen_in(found()) == 1
    assert seen_in(found(stage())) == 5
    assert seen_in(found(stage(kept=note(token=8)))) == 8
    assert seen_in(replace(found(stage()), incarnation=11)) == 11
