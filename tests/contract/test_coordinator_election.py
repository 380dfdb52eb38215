"""Leader election of the coordinator, on real servers."""

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
#: The clock counts the whole time between two calls.
TERMS = LeaseTerms(ttl_ms=600_000, grace_ms=300_000, max_step_ms=600_000)


@pytest.fixture(params=["redis_server", "cluster_client", "narrow_client", "narrow_newer_client"])
def client(request: pytest.FixtureRequest) -> redis.Redis:
    """A server with a ledger."""
    client: redis.Redis = request.getfixturevalue(request.param)
    ledger_on(client).configure(TenantTree(()))
    return client


def ledger_on(client: redis.Redis) -> RedisLedger:
    return RedisLedger(client, KEYS, terms=TERMS, uid="ours", founding=True)


def elections_on(client: redis.Redis) -> tuple[CoordinatorElection, CoordinatorElection]:
    return CoordinatorElection(client, KEYS, "one"), CoordinatorElection(client, KEYS, "two")


@pytest.mark.every_form
def test_elected_coordinator_stays_elected(client: redis.Redis):
    one, two = elections_on(client)
    assert [one.hold(60_000), two.hold(60_000), one.hold(60_000)] == [True, False, True]


def test_resigned_election_is_free_at_once(client: redis.Redis):
    one, two = elections_on(client)
    one.hold(60_000)
    one.leave()
    assert [two.hold(60_000), one.hold(60_000)] == [True, False]


def test_candidate_that_is_not_elected_cannot_resign(client: redis.Redis):
    one, two = elections_on(client)
    one.hold(60_000)
    two.leave()
    assert two.hold(60_000) is False


def test_unrenewed_election_expires(redis_server: redis.Redis):
    ledger_on(redis_server).configure(TenantTree(()))
    one, two = elections_on(redis_server)
    one.hold(60_000)
    later = partial(move_time, redis_server, KEYS)
    later(60_500)
    assert two.hold(60_000) is True


def test_coordinator_and_planner_elections_are_separate(client: redis.Redis):
    one, _ = elections_on(client)
    one.hold(60_000)
    assert ledger_on(client).elect("planner", 60_000) is not None


def test_coordinator_needs_a_ledger(redis_server: redis.Redis):
    one, _ = elections_on(redis_server)
    assert one.hold(60_000) is False
    one.leave()
    assert redis_server.dbsize() == 0
