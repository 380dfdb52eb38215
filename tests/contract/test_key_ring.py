"""Contract of API key rings, in memory and on a real Redis."""

from dataclasses import replace

import pytest

from federation.api_keys import EVERYBODY, ApiKey, KeyRing, Role, revoke_orphans
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


@pytest.mark.every_form
def test_a_key_expires_at_the_earliest_of_its_ends(ring):
    ring.add(replace(a_key(), expires_ms=900, role=Role.VIEWER))
    ring.add(a_key("00000002"))
    assert [ring.expire("00000001", 500), ring.expire("00000001", 700), ring.expire("00000002", 800)] == [True] * 3
    assert ring.expire("00000003", 1) is False
    assert ring.find("00000001") == replace(a_key(), expires_ms=500, role=Role.VIEWER, rotated=True)
    assert [(line.key, line.expires_ms, line.role) for line in ring.list()] == [
        ("00000001", 500, Role.VIEWER),
        ("00000002", 800, Role.OPERATOR),
    ]


def test_a_revoked_key_stays_revoked_when_it_expires(ring):
    ring.add(a_key())
    ring.revoke("00000001")
    ring.expire("00000001", 500)
    ring.revoke("00000001")
    assert ring.find("00000001") == replace(a_key(), expires_ms=500, revoked=True, rotated=True)


@pytest.mark.every_form
def test_the_last_use_of_a_key_is_listed(ring):
    ring.add(a_key())
    ring.add(a_key("00000002"))
    ring.note_use("00000001", 40)
    ring.note_use("00000001", 60)
    assert [(line.key, line.used_ms) for line in ring.list()] == [("00000001", 60), ("00000002", 0)]
    assert ring.find("00000001") == a_key()


def test_names_of_other_fields_are_no_keys(ring):
    ring.add(a_key())
    ring.expire("00000001", 500)
    ring.note_use("00000001", 60)
    for name in ("00000001|end", "00000001|used"):
        assert ring.find(name) is None
        assert ring.revoke(name) is False


def test_keys_that_cover_no_tenant_are_revoked(ring):
    for number, tenant in enumerate(("acme", "acme/lab", "acme/lab/nlp", "acme/laboratory", EVERYBODY)):
        ring.add(a_key(f"0000000{number}", tenant=tenant))
    ring.add(ApiKey(key="00000009", tenant=TenantPath(""), mesh=MeshId("east"), sha256="a" * 64, created_ms=5))
    assert set(revoke_orphans(ring, [TenantPath("acme/lab")])) == {"00000002", "00000003"}
    assert revoke_orphans(ring, [TenantPath("acme/lab")]) == ()
    assert {line.key for line in ring.list() if line.revoked} == {"00000002", "00000003"}
