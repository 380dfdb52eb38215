"""What the books of a mesh say together."""

from __future__ import annotations

from child_bed import CPU, Federation


def test_what_runs_may_be_asked_to_stop_until_it_has_been_asked(busy):
    books = busy.child._books
    (occupant,) = books.occupants()
    assert (occupant.stage, occupant.tenant, occupant.pool, occupant.amounts) == ("s", "acme", "general", CPU)
    assert tuple(books.leaving()) == ()
    books.running["s"].preempt(busy.host)
    (leaving,) = books.leaving()
    assert (leaving.stage, leaving.pool, leaving.amounts) == ("s", "general", CPU)
    assert tuple(books.occupants()) == ()


def test_a_lease_is_waited_for_while_a_stage_of_its_tenant_does_not_run(busy):
    books = busy.child._books
    assert not books.is_waited_for(("acme", "standard"))
    busy.submit("late", slot=CPU.times(9))
    busy.beat()
    assert books.is_waited_for(("acme", "standard"))
    assert not books.is_waited_for(("other", "standard"))


def test_the_record_that_is_told_has_what_is_in_use():
    federation = Federation()
    federation.submit("s", slot=CPU.times(3))
    federation.beat()
    assert [kept.used for kept in federation.child._books.as_reported().pools] == [CPU.times(3)]


def test_with_the_session_all_of_it_is_void(busy):
    books, before = busy.child._books, busy.child._books.admission
    books.begin()
    assert books.admission is not before
    assert (books.running, books.accounting.claims(), dict(books.admission.workloads)) == ({}, (), {})
