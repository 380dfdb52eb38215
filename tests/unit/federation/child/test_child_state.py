"""Views over the whole state of a child mesh."""

from __future__ import annotations

from child_bed import CPU, Federation


def test_running_stage_is_an_occupant_until_it_is_preempted(busy):
    child_state = busy.child._child_state
    (occupant,) = child_state.occupants()
    assert (occupant.stage, occupant.tenant, occupant.pool, occupant.amounts) == ("s", "acme", "general", CPU)
    assert tuple(child_state.leaving()) == ()
    child_state.running["s"].preempt(busy.host)
    (leaving,) = child_state.leaving()
    assert (leaving.stage, leaving.pool, leaving.amounts) == ("s", "general", CPU)
    assert tuple(child_state.occupants()) == ()


def test_lease_is_demanded_while_a_stage_of_its_tenant_waits(busy):
    child_state = busy.child._child_state
    assert not child_state.is_waited_for(("acme", "standard"))
    busy.submit("late", slot=CPU.times(9))
    busy.heartbeat()
    assert child_state.is_waited_for(("acme", "standard"))
    assert not child_state.is_waited_for(("other", "standard"))


def test_reported_record_holds_resources_in_use():
    federation = Federation()
    federation.submit("s", slot=CPU.times(3))
    federation.heartbeat()
    assert [kept.used for kept in federation.child._child_state.as_reported().pools] == [CPU.times(3)]


def test_with_the_session_all_of_it_is_void(busy):
    child_state, before = busy.child._child_state, busy.child._child_state.admission
    child_state.begin()
    assert child_state.admission is not before
    assert (child_state.running, child_state.accounting.claims(), dict(child_state.admission.workloads)) == ({}, (), {})
