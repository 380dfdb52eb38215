"""Contents of a child's heartbeat."""

from __future__ import annotations

import pytest

from federation.child.child_session import ChildSession
from federation.child.lease_accounting import LeaseAccounting
from federation.child.quota_demand import OpenDemand
from federation.errors import StoreUnavailable, UnfitName
from federation.leases import Lease, LeaseUse, LedgerResponse, QuotaDemand, Session
from federation.snapshot import MeshRecord
from mesh.core.resources import ResourceSet

CPU = ResourceSet.of({"cpu": 1})
EAST = MeshRecord(mesh="east", labels={}, pools=(), cluster="c1")


class Listener:
    """Ledger that records heartbeats."""

    def __init__(self):
        self.heartbeats = []
        self.is_mute = False  #: It takes effect and does not answer.
        self.unfit = ""  #: Tenant whose demands it refuses.
        self.leases = ()  #: Leases in its answers.

    def heartbeat(self, _session, _record, heartbeat):
        self.heartbeats.append(heartbeat)
        if self.is_mute:
            raise StoreUnavailable("no answer")
        if any(demand.tenant == self.unfit for demand in heartbeat.demands or ()):
            raise UnfitName(self.unfit)
        return LedgerResponse(leases=self.leases)


class Wanting:
    """State of a mesh that runs nothing and has demands."""

    def __init__(self, *demands):
        self.accounting = LeaseAccounting()
        self.open = demands

    def as_reported(self):
        return EAST

    def demands(self):
        return self.open

    def lease_uses(self):
        return self.accounting.lease_uses(lambda _stage: 7)


def demand(number, since_ms=0, beyond=0):
    return OpenDemand(demand=QuotaDemand(tenant=f"t{number:05}", flavor="standard", slot=CPU), since_ms=since_ms, beyond=beyond)


def begun():
    ledger, child_session = Listener(), ChildSession()
    child_session.begin(Session(mesh="east", incarnation=1, ttl_ms=30_000))
    return ledger, child_session


def rows(*demands, now_ms=0):
    return tuple(one.as_row(now_ms) for one in demands)


def test_unchanged_demands_are_sent_once_with_waiting_time():
    ledger, child_session = begun()
    child_state = Wanting(demand(1, since_ms=300), demand(2, since_ms=1_000))
    child_session.renew(ledger, child_state, 1_000)
    child_session.renew(ledger, child_state, 2_000)
    assert [[demand.waited_ms for demand in ledger.heartbeats[0].demands], ledger.heartbeats[1].demands] == [[700, 0], None]


def test_demands_are_resent_when_their_oldest_work_changes():
    ledger, child_session = begun()
    for now in (Wanting(demand(1, beyond=5)), Wanting(demand(1, beyond=6)), Wanting(demand(1, since_ms=3, beyond=6))):
        child_session.renew(ledger, now, 1_000)
    assert [heartbeat.demands is None for heartbeat in ledger.heartbeats] == [False, True, False]


def test_demands_are_resent_after_a_changed_lease():
    ledger, child_session = begun()
    ledger.leases = (Lease(tenant="t1", mesh="east", flavor="standard", held=CPU, target=CPU, version=1),)
    child_session.renew(ledger, Wanting(demand(1)), 0)
    ledger.leases = ()
    child_session.renew(ledger, Wanting(demand(1)), 0)
    child_session.renew(ledger, Wanting(demand(1)), 0)
    assert [heartbeat.demands is None for heartbeat in ledger.heartbeats] == [False, False, True]


def test_oversized_demand_is_left_out_of_the_heartbeat():
    ledger, child_session = begun()
    ledger.unfit = "t00001"
    child_session.renew(ledger, Wanting(demand(1), demand(2)), 0)
    assert [heartbeat.demands for heartbeat in ledger.heartbeats] == [rows(demand(1), demand(2)), ()]


def test_unanswered_demands_are_resent_unchanged():
    ledger, child_session = begun()
    ledger.is_mute = True
    with pytest.raises(StoreUnavailable):
        child_session.renew(ledger, Wanting(demand(1)), 0)
    ledger.is_mute = False
    child_session.renew(ledger, Wanting(), 0)  # As before the first, but the ledger may have got that.
    child_session.renew(ledger, Wanting(), 0)
    assert [heartbeat.demands for heartbeat in ledger.heartbeats] == [rows(demand(1)), (), None]


def test_lease_use_is_sent_until_the_ledger_has_answered():
    ledger, child_session = begun()
    child_state = Wanting()
    child_state.accounting.apply(
        LedgerResponse(leases=(Lease(tenant="t1", mesh="east", flavor="standard", held=CPU, target=CPU, version=1),))
    )
    child_state.accounting.spend("s", ("t1", "standard"), CPU, 0)
    ledger.is_mute = True
    with pytest.raises(StoreUnavailable):
        child_session.renew(ledger, child_state, 0)
    ledger.is_mute = False
    child_session.renew(ledger, child_state, 0)
    child_session.renew(ledger, child_state, 0)
    known = (LeaseUse(tenant="t1", flavor="standard", priority=7),)
    assert [heartbeat.lease_uses for heartbeat in ledger.heartbeats] == [known, known, ()]
    (claim,) = child_state.accounting.claims()
    assert claim.priority == 7
    child_state.accounting.put_back("s", 0)
    child_session.renew(ledger, child_state, 0)
    assert ledger.heartbeats[-1].lease_uses == ()  # The idle part is unchanged.
