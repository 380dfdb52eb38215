"""Replacing the tenant tree on a real Redis: keys of removed tenants are revoked, and their schedules paused."""

import pytest

from dag.schedules.schedule import Rules, Schedule, Template
from dag.store.redis_schedules import RedisScheduleStore
from federation.errors import StoreUnavailable
from federation.leases import LeaseTerms
from federation.store.redis.fixtures import running_redis
from federation.store.redis.key_ring import RedisKeyRing
from federation.store.redis.keys import Keys
from federation.store.redis.ledger import RedisLedger
from federation.tenants import Tenant, TenantTree
from mesh.core.ids import TenantPath
from serve_apps.requests.auth import id_of, issue
from serve_apps.standalone.tenant_replacement import Orphans, orphans_after, replace_tenants

BOTH = TenantTree([Tenant(path=TenantPath("acme"), parent=None), Tenant(path=TenantPath("beta"), parent=None)])
ACME = TenantTree([Tenant(path=TenantPath("acme"), parent=None)])


class Dying(RedisKeyRing):
    """Ring of a process that dies after the tree is replaced."""

    def list(self):
        if tuple(self.ledger.configured_at()[1].tenants) == ("acme",):
            raise StoreUnavailable("the process has died")
        return super().list()


@pytest.fixture
def redis_server():
    with running_redis() as client:
        yield client


@pytest.fixture
def ledger(redis_server) -> RedisLedger:
    return RedisLedger(redis_server, Keys("contract"), terms=LeaseTerms(ttl_ms=10_000, grace_ms=3_000), founding=True)


@pytest.fixture
def schedules(redis_server) -> RedisScheduleStore:
    return RedisScheduleStore(redis_server, Keys("contract"))


def known(ledger):
    return ledger.configured_at()[1]


@pytest.mark.parametrize("dies", [False, True], ids=["at once", "after an interruption"])
def test_a_key_of_a_removed_tenant_does_not_reach_a_new_one(ledger, redis_server, schedules, dies):
    ring, dying = (kind(redis_server, Keys("contract")) for kind in (RedisKeyRing, Dying))
    dying.ledger = ledger
    replace_tenants(ledger, ring, schedules, BOTH, known=known(ledger))
    acme, beta = (id_of(issue(ring, TenantPath(tenant), 0)) for tenant in ("acme", "beta"))
    assert orphans_after(ring, schedules, ACME, known=known(ledger)) == Orphans(keys=(beta,))
    if dies:
        with pytest.raises(StoreUnavailable):
            replace_tenants(ledger, dying, schedules, ACME, known=known(ledger))
        assert not ring.find(beta).revoked
    else:
        assert replace_tenants(ledger, ring, schedules, ACME, known=known(ledger)).keys == (beta,)
    left = Orphans(keys=(beta,)) if dies else Orphans()
    assert orphans_after(ring, schedules, BOTH, known=known(ledger)) == left
    assert ring.find(beta).revoked is not dies
    assert replace_tenants(ledger, ring, schedules, BOTH, known=known(ledger)) == left
    assert [ring.find(key).revoked for key in (acme, beta)] == [False, True]


@pytest.mark.parametrize("dies", [False, True], ids=["at once", "after an interruption"])
def test_a_schedule_of_a_removed_tenant_stays_paused(ledger, redis_server, schedules, dies):
    ring, dying = (kind(redis_server, Keys("contract")) for kind in (RedisKeyRing, Dying))
    dying.ledger = ledger
    replace_tenants(ledger, ring, schedules, BOTH, known=known(ledger))
    rules = Rules(cron="0 3 * * *", digest="d")
    for tenant in ("acme", "beta"):
        made = Schedule(tenant=TenantPath(tenant), name="s", uid="u", rules=rules, created_ms=1, cursor_ms=1, next_ms=2, queued_ms=1)
        schedules.put(made, Template(spec=b"{}", blobs={}))
    left = Orphans(schedules=((TenantPath("beta"), "s"),))
    assert orphans_after(ring, schedules, ACME, known=known(ledger)) == left
    if dies:
        with pytest.raises(StoreUnavailable):
            replace_tenants(ledger, dying, schedules, ACME, known=known(ledger))
    else:
        assert replace_tenants(ledger, ring, schedules, ACME, known=known(ledger)) == left
    replace_tenants(ledger, ring, schedules, BOTH, known=known(ledger))
    acme, beta = (schedules.load(TenantPath(tenant), "s") for tenant in ("acme", "beta"))
    assert (acme.is_paused, beta.is_paused, beta.queued_ms) == (False, True, None)
