"""What one heartbeat tells."""

from __future__ import annotations

import pytest

from federation.balance import LeaseBalance
from federation.errors import StoreUnavailable, UnfitName
from federation.leases import TOLD_MAX, Session, Told, Want
from federation.snapshot import MeshRecord
from federation.tenure import Tenure
from mesh.resources import ResourceSet

CPU = ResourceSet.of({"cpu": 1})
EAST = MeshRecord(mesh="east", labels={}, pools=(), cluster="c1")


class Listener:
    """A ledger that hears heartbeats."""

    def __init__(self):
        self.beats = []
        self.is_mute = False  #: It hears, and does not answer.
        self.unfit = ""  #: A tenant that it does not want to hear of.

    def heartbeat(self, _session, _record, beat):
        self.beats.append(beat)
        if self.is_mute:
            raise StoreUnavailable("no answer")
        if any(want.tenant == self.unfit for want in beat.wants or ()):
            raise UnfitName(self.unfit)
        return Told()


def want(number, priority=0):
    return Want(tenant=f"t{number:05}", flavor="standard", slot=CPU, priority=priority)


def renewed(*wants):
    ledger, tenure = Listener(), Tenure()
    tenure.begin(Session(mesh="east", incarnation=1, ttl_ms=30_000))
    tenure.renew(ledger, EAST, LeaseBalance(), lambda: wants)
    tenure.renew(ledger, EAST, LeaseBalance(), lambda: wants)
    return [beat.wants for beat in ledger.beats]


def test_of_more_wants_than_a_heartbeat_may_tell_the_most_urgent_are_told_and_once():
    wants = tuple(want(number, priority=number % 2) for number in range(2 * TOLD_MAX))
    assert renewed(*wants) == [tuple(each for each in wants if each.priority == 1), None]


def test_of_equally_urgent_wants_the_first_are_told():
    wants = tuple(want(number) for number in range(TOLD_MAX + 1))
    assert renewed(*wants) == [wants[:-1], None]


def test_a_want_that_the_ledger_cannot_hear_does_not_keep_the_heartbeat_from_being_answered():
    ledger, tenure = Listener(), Tenure()
    tenure.begin(Session(mesh="east", incarnation=1, ttl_ms=30_000))
    ledger.unfit = "t00001"
    tenure.renew(ledger, EAST, LeaseBalance(), lambda: (want(1), want(2)))
    assert [beat.wants for beat in ledger.beats] == [(want(1), want(2)), ()]


def test_wants_whose_telling_was_not_answered_are_told_anew_though_they_are_as_before():
    ledger, tenure = Listener(), Tenure()
    tenure.begin(Session(mesh="east", incarnation=1, ttl_ms=30_000))
    ledger.is_mute = True
    with pytest.raises(StoreUnavailable):
        tenure.renew(ledger, EAST, LeaseBalance(), lambda: (want(1),))
    ledger.is_mute = False
    tenure.renew(ledger, EAST, LeaseBalance(), tuple)  # As before the first: but the ledger may have heard that.
    tenure.renew(ledger, EAST, LeaseBalance(), tuple)
    assert [beat.wants for beat in ledger.beats] == [(want(1),), (), None]
