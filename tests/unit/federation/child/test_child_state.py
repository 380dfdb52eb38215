"""What the books of a mesh say together."""

from __future__ import annotations

from child_bed import CPU, Federation


def test_what_runs_may_be_asked_to_stop_until_it_has_been_asked(busy):
    child_state = busy.child._child_state
    (occupant,) = child_state.occupants()
    assert (occupant.stage, occupant.tenant, occupant.pool, occupant.amounts) == ("s", "acme", "general", CPU)
    assert tuple(child_state.leaving()) == ()
    child_state.running["s"].preempt(busy.host)
    (leaving,) = child_state.leaving()
    assert (leaving.stage, leaving.pool, leaving.amounts) == ("s", "general", CPU)
    assert tuple(child_state.occupants()) == ()


def test_a_lease_is_waited_for_while_a_stage_of_its_tenant_does_not_run(busy):
    child_state = busy.child._child_state
    assert not child_state.is_waited_for(("acme", "standard"))
    busy.submit("late", slot=CPU.times(9))
    busy.heartbeat()
    assert child_state.is_waited_for(("acme", "standard"))
    assert not child_state.is_waited_for(("other", "standard"))


def test_the_record_that_is_told_has_what_is_in_use():
    federation = Federation()
    federation.submit("s", slot=CPU.times(3))
    federation.heartbeat()
    assert [kept.used for kept in federation.child._child_state.as_reported().pools] == [CPU.times(3)]


def test_with_the_session_all_of_it_is_void(busy):
    child_state, before = busy.child._child_state, busy.child._child_state.admission
    child_state.begin()
    assert child_state.admission is not before
    assert (child_state.running, child_state.accounting.claims(), dict(child_state.admission.workloads)) == ({}, (), {})
