"""The seat of whoever coordinates runs, on real servers."""

from __future__ import annotations

from functools import partial

import pytest
import redis

from federation.leases import LeaseTerms
from federation.store.redis.election import CoordinatorElection
from federation.store.redis.fixtures import move_time
from federation.store.redis.keys import Keys
from federation.store.redis.ledger import RedisLedger
from federation.tenants import TenantTree

KEYS = Keys("contract")
#: The clock counts in full whatever passes between two calls.
TERMS = LeaseTerms(ttl_ms=600_000, grace_ms=300_000, max_step_ms=600_000)


@pytest.fixture(params=["redis_server", "cluster_client", "narrow_client", "narrow_newer_client"])
def client(request: pytest.FixtureRequest) -> redis.Redis:
    """A server with a ledger."""
    client: redis.Redis = request.getfixturevalue(request.param)
    ledger_on(client).configure(TenantTree(()))
    return client


def ledger_on(client: redis.Redis) -> RedisLedger:
    return RedisLedger(client, KEYS, terms=TERMS, uid="ours", founding=True)


def seats_on(client: redis.Redis) -> tuple[CoordinatorElection, CoordinatorElection]:
    return CoordinatorElection(client, KEYS, "one"), CoordinatorElection(client, KEYS, "two")


@pytest.mark.every_form
def test_one_has_the_seat_and_keeps_it(client: redis.Redis):
    one, two = seats_on(client)
    assert [one.hold(60_000), two.hold(60_000), one.hold(60_000)] == [True, False, True]


def test_a_seat_that_is_left_is_free_at_once(client: redis.Redis):
    one, two = seats_on(client)
    one.hold(60_000)
    one.leave()
    assert [two.hold(60_000), one.hold(60_000)] == [True, False]


def test_who_does_not_have_the_seat_leaves_nothing(client: redis.Redis):
    one, two = seats_on(client)
    one.hold(60_000)
    two.leave()
    assert two.hold(60_000) is False


def test_a_seat_that_nobody_keeps_is_free_when_its_time_is_over(redis_server: redis.Redis):
    ledger_on(redis_server).configure(TenantTree(()))
    one, two = seats_on(redis_server)
    one.hold(60_000)
    later = partial(move_time, redis_server, KEYS)
    later(60_500)
    assert two.hold(60_000) is True


def test_it_is_another_seat_than_the_planners(client: redis.Redis):
    one, _ = seats_on(client)
    one.hold(60_000)
    assert ledger_on(client).elect("planner", 60_000) is not None


def test_without_a_ledger_nobody_coordinates(redis_server: redis.Redis):
    one, _ = seats_on(redis_server)
    assert one.hold(60_000) is False
    one.leave()
    assert redis_server.dbsize() == 0
