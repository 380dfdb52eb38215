"""Contract of API key rings, in memory and on a real Redis."""

import pytest

from federation.api_keys import ApiKey, KeyRing
from federation.store.memory.key_ring import MemoryKeyRing
from federation.store.redis.key_ring import RedisKeyRing
from federation.store.redis.keys import Keys
from mesh.core.ids import MeshId, TenantPath


@pytest.fixture(params=["memory", "redis_server", "cluster_client", "narrow_client", "narrow_newer_client"])
def ring(request) -> KeyRing:
    return MemoryKeyRing() if request.param == "memory" else RedisKeyRing(request.getfixturevalue(request.param), Keys("contract"))


def a_key(name: str = "00000001", *, tenant: str = "acme/lab", created_ms: int = 5) -> ApiKey:
    return ApiKey(key=name, tenant=TenantPath(tenant), sha256="a" * 64, created_ms=created_ms)


def test_a_key_is_found_as_it_was_added(ring):
    assert ring.add(a_key())
    assert ring.find("00000001") == a_key()
    assert ring.find("00000002") is None


def test_a_name_is_given_once_and_for_ever(ring):
    ring.add(a_key())
    assert ring.add(a_key(tenant="other")) is False
    ring.revoke("00000001")
    assert ring.add(a_key()) is False
    found = ring.find("00000001")
    assert (found.tenant, found.revoked) == ("acme/lab", True)


@pytest.mark.every_form
def test_revoking_marks_the_key_and_nothing_else(ring):
    ring.add(a_key())
    ring.add(a_key("00000002"))
    assert [ring.revoke("00000001"), ring.revoke("00000001"), ring.revoke("00000003")] == [True, True, False]
    assert ring.find("00000001") == ApiKey(key="00000001", tenant=TenantPath("acme/lab"), sha256="a" * 64, created_ms=5, revoked=True)
    assert ring.find("00000002") == a_key("00000002")
    assert ring.find("00000003") is None


def test_keys_are_listed_by_tenant_and_age_without_any_digest(ring):
    for key in (a_key("c", created_ms=1), a_key("b", created_ms=2), a_key("d", created_ms=1), a_key("a", tenant="acme")):
        ring.add(key)
    ring.revoke("b")
    assert [(line.key, line.tenant, line.revoked) for line in ring.list()] == [
        ("a", "acme", False),
        ("c", "acme/lab", False),
        ("d", "acme/lab", False),
        ("b", "acme/lab", True),
    ]
    assert "a" * 64 not in repr(ring.list())


def test_the_digest_does_not_show_in_logs():
    assert "a" * 64 not in repr(a_key())


def test_a_meshs_key_is_kept_and_listed_as_one(ring):
    key = ApiKey(key="00000009", tenant=TenantPath(""), mesh=MeshId("east"), sha256="a" * 64, created_ms=5)
    ring.add(a_key())
    assert ring.add(key)
    assert ring.find("00000009") == key
    assert [(line.mesh, line.tenant) for line in ring.list()] == [("east", ""), (None, "acme/lab")]
    ring.revoke("00000009")
    assert ring.find("00000009").mesh == "east"
