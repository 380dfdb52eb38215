"""Replacing the tenant tree on a real Redis: keys of removed tenants are revoked."""

import pytest

from federation.errors import StoreUnavailable
from federation.leases import LeaseTerms
from federation.store.redis.fixtures import running_redis
from federation.store.redis.key_ring import RedisKeyRing
from federation.store.redis.keys import Keys
from federation.store.redis.ledger import RedisLedger
from federation.tenants import Tenant, TenantTree
from mesh.core.ids import TenantPath
from serve_apps.requests.auth import id_of, issue
from serve_apps.standalone.tenant_replacement import keys_to_revoke, replace_tenants

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


@pytest.mark.parametrize("dies", [False, True], ids=["at once", "after an interruption"])
def test_a_key_of_a_removed_tenant_does_not_reach_a_new_one(ledger, redis_server, dies):
    ring, dying = (kind(redis_server, Keys("contract")) for kind in (RedisKeyRing, Dying))
    dying.ledger = ledger
    replace_tenants(ledger, ring, BOTH, known=ledger.configured_at()[1])
    acme, beta = (id_of(issue(ring, TenantPath(tenant), 0)) for tenant in ("acme", "beta"))
    assert keys_to_revoke(ring, ACME, known=ledger.configured_at()[1]) == (beta,)
    if dies:
        with pytest.raises(StoreUnavailable):
            replace_tenants(ledger, dying, ACME, known=ledger.configured_at()[1])
        assert not ring.find(beta).revoked
    else:
        assert replace_tenants(ledger, ring, ACME, known=ledger.configured_at()[1]) == (beta,)
    known = ledger.configured_at()[1]
    assert keys_to_revoke(ring, BOTH, known=known) == ((beta,) if dies else ())
    assert ring.find(beta).revoked is not dies
    assert replace_tenants(ledger, ring, BOTH, known=known) == ((beta,) if dies else ())
    assert [ring.find(key).revoked for key in (acme, beta)] == [False, True]
