"""Contract of tokens and versions: they identify late and repeated calls."""

from dataclasses import replace

import pytest
from two_teams import A100, LAB, ONE_GPU, ask, gpu, gpus, record

from federation.errors import FutureToken
from federation.leases import HeartbeatReport, LookAgain, QuotaDemand
from federation.manual_mesh import ManualMesh


def test_tokens_only_rise(west, east):
    ask(west)
    ask(east)
    tokens = [west.session.incarnation, east.session.incarnation, west.lease(LAB, A100).token, east.lease(LAB, A100).token]
    assert tokens == sorted(set(tokens))


def test_a_question_that_is_carried_out_twice_grants_once(ledger, west):
    demand = QuotaDemand(tenant=LAB, flavor=A100, slot=ONE_GPU, slots=2)
    ledger.acquire(west.session, (demand,))
    again = ledger.acquire(west.session, (demand,))
    assert again.answers == (LookAgain(),)
    assert [lease.held for lease in again.response.leases] == [gpu(2)]
    assert gpus(ledger, LAB) == 2


def test_lease_released_whole_gets_a_new_token(west):
    ask(west)
    first = west.lease(LAB, A100).token
    west.release(LAB, A100)
    ask(west)
    assert west.lease(LAB, A100).token > first


def test_token_from_the_future_is_refused(ledger, west, store):
    if not store.believes_tokens:
        west.session = replace(west.session, mark=2**53 - 1)
        west.heartbeat()
        ask(west)
        assert ManualMesh(ledger, record(), seen=2**53 - 1).session.incarnation < 2**52
        return
    with pytest.raises(FutureToken):
        ledger.heartbeat(replace(west.session, mark=2**53 - 1), record(), HeartbeatReport(number=1))
    with pytest.raises(FutureToken):
        ledger.join(record(), seen=2**53 - 1)
