"""API keys: issued ones are accepted, and no other."""

import hashlib
import re

import pytest

from federation.api_keys import EVERYBODY, Role, covers
from federation.store.memory.key_ring import MemoryKeyRing
from mesh.core.ids import MeshId, TenantPath
from serve_apps.requests.auth import (
    Denial,
    Denied,
    MeshPrincipal,
    Principal,
    authenticate,
    authenticate_mesh,
    id_of,
    issue,
    issue_for_mesh,
    mint,
    rotate,
)

LAB = TenantPath("acme/lab")
NOW_MS = 1_000


def test_key_has_the_documented_form_and_256_random_bits():
    text, record = mint(LAB, now_ms=7)
    assert re.fullmatch(r"smk_[0-9a-f]{8}_[A-Za-z0-9_-]{43}", text)
    assert (record.key, record.tenant, record.created_ms, record.revoked) == (text[4:12], LAB, 7, False)


def test_the_record_holds_the_digest_and_never_the_secret():
    text, record = mint(LAB, now_ms=7)
    assert record.sha256 == hashlib.sha256(text[13:].encode()).hexdigest()
    assert text[13:] not in str((record, record.sha256))


def test_no_two_keys_are_alike():
    texts = {mint(LAB, now_ms=7)[0][13:] for _ in range(100)}
    assert len(texts) == 100


def test_an_issued_key_lets_its_holder_in():
    ring = MemoryKeyRing()
    text = issue(ring, LAB, now_ms=7)
    assert authenticate(f"Bearer {text}", ring.find, NOW_MS) == Principal(key=text[4:12], tenant=LAB)
    assert authenticate(f"  bearer   {text} ", ring.find, NOW_MS) == Principal(key=text[4:12], tenant=LAB)


def test_issuing_goes_round_a_name_that_is_taken(monkeypatch):
    ring, names = MemoryKeyRing(), iter(["00000001", "00000001", "00000002"])
    monkeypatch.setattr("serve_apps.requests.auth.secrets.token_hex", lambda _: next(names))
    texts = [issue(ring, LAB, now_ms=7), issue(ring, LAB, now_ms=8)]
    assert [text[4:12] for text in texts] == ["00000001", "00000002"]
    assert all(isinstance(authenticate(f"Bearer {text}", ring.find, NOW_MS), Principal) for text in texts)


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        pytest.param(None, Denial.MISSING, id="there is no header"),
        pytest.param("", Denial.MALFORMED, id="the header is empty"),
        pytest.param("Bearer", Denial.MALFORMED, id="the key is missing"),
        pytest.param("Basic {text}", Denial.MALFORMED, id="the scheme is different"),
        pytest.param("{text}", Denial.MALFORMED, id="the scheme is missing"),
        pytest.param("Bearer {text}x", Denial.MALFORMED, id="the key is too long"),
        pytest.param("Bearer {text} {text}", Denial.MALFORMED, id="there are two keys"),
        pytest.param("Bearer smk_00000000_" + "ä" * 43, Denial.MALFORMED, id="the secret has invalid characters"),
        pytest.param("Bearer smk_00000000_" + "a" * 43, Denial.UNKNOWN, id="the id is unknown"),
        pytest.param("Bearer {head}_" + "a" * 43, Denial.UNKNOWN, id="the secret is wrong"),
    ],
)
def test_access_is_refused_when(header, reason):
    ring = MemoryKeyRing()
    text = issue(ring, LAB, now_ms=7)
    asked = header.format(text=text, head=text[:12]) if header is not None else None
    assert authenticate(asked, ring.find, NOW_MS) == Denied(reason=reason)


def test_revocation_is_reported_only_to_the_keys_holder():
    ring = MemoryKeyRing()
    text = issue(ring, LAB, now_ms=7)
    ring.revoke(text[4:12])
    assert authenticate(f"Bearer {text}", ring.find, NOW_MS) == Denied(reason=Denial.REVOKED)
    assert authenticate(f"Bearer {text[:12]}_{'a' * 43}", ring.find, NOW_MS) == Denied(reason=Denial.UNKNOWN)


def test_the_secret_of_one_key_does_not_open_another():
    first, record = mint(LAB, now_ms=7)
    second, other = mint(LAB, now_ms=7)
    ring = {record.key: record, other.key: other}
    assert authenticate(f"Bearer {first[:12]}_{second[13:]}", ring.get, NOW_MS) == Denied(reason=Denial.UNKNOWN)


def test_unknown_id_is_refused_even_with_the_dummy_digest(monkeypatch):
    monkeypatch.setattr("serve_apps.requests.auth._digest", lambda _: "0" * 64)
    assert authenticate("Bearer smk_00000000_" + "a" * 43, lambda _: None, NOW_MS) == Denied(reason=Denial.UNKNOWN)


@pytest.mark.parametrize(
    ("tenant", "reached"),
    [
        ("acme/lab", True),
        ("acme/lab/nlp", True),
        ("acme/lab/nlp/x", True),
        ("acme", False),
        ("acme/ops", False),
        ("acme/laboratory", False),
        ("", False),
    ],
)
def test_a_key_reaches_its_tenant_and_all_below(tenant, reached):
    assert covers(LAB, TenantPath(tenant)) is reached


def test_a_meshs_key_lets_its_mesh_in_and_no_tenant():
    ring = MemoryKeyRing()
    text = issue_for_mesh(ring, MeshId("east"), now_ms=7)
    assert re.fullmatch(r"smm_[0-9a-f]{8}_[A-Za-z0-9_-]{43}", text)
    assert authenticate_mesh(f"Bearer {text}", ring.find, NOW_MS) == MeshPrincipal(key=text[4:12], mesh=MeshId("east"))
    assert authenticate(f"Bearer {text}", ring.find, NOW_MS) == Denied(reason=Denial.MALFORMED)
    assert authenticate(f"Bearer smk_{text[4:]}", ring.find, NOW_MS) == Denied(reason=Denial.UNKNOWN)


def test_a_tenants_key_lets_no_mesh_in():
    ring = MemoryKeyRing()
    text = issue(ring, LAB, now_ms=7)
    assert authenticate_mesh(f"Bearer {text}", ring.find, NOW_MS) == Denied(reason=Denial.MALFORMED)
    assert authenticate_mesh(f"Bearer smm_{text[4:]}", ring.find, NOW_MS) == Denied(reason=Denial.UNKNOWN)


def test_revoked_mesh_key_is_reported_only_to_its_holder():
    ring = MemoryKeyRing()
    text = issue_for_mesh(ring, MeshId("east"), now_ms=7)
    ring.revoke(text[4:12])
    assert authenticate_mesh(f"Bearer {text}", ring.find, NOW_MS) == Denied(reason=Denial.REVOKED)
    assert authenticate_mesh(f"Bearer {text[:13]}{'a' * 43}", ring.find, NOW_MS) == Denied(reason=Denial.UNKNOWN)


def test_the_id_in_a_keys_text_finds_it_in_the_ring():
    ring = MemoryKeyRing()
    text = issue(ring, TenantPath("lab"), 0)
    assert ring.find(id_of(text)).tenant == "lab"


def test_a_key_is_refused_from_its_end_on():
    ring = MemoryKeyRing()
    text = issue(ring, LAB, now_ms=7, expires_ms=NOW_MS)
    assert isinstance(authenticate(f"Bearer {text}", ring.find, NOW_MS - 1), Principal)
    assert authenticate(f"Bearer {text}", ring.find, NOW_MS) == Denied(reason=Denial.EXPIRED)
    assert authenticate(f"Bearer {text[:12]}_{'a' * 43}", ring.find, NOW_MS) == Denied(reason=Denial.UNKNOWN)


def test_a_rotated_key_is_good_until_the_overlap_ends():
    ring = MemoryKeyRing()
    old = issue(ring, LAB, now_ms=7, user="ann", role=Role.SUBMITTER)
    new = rotate(ring, ring.find(id_of(old)), NOW_MS, overlap_ms=50)
    assert [isinstance(authenticate(f"Bearer {text}", ring.find, NOW_MS + 49), Principal) for text in (old, new)] == [True, True]
    assert authenticate(f"Bearer {old}", ring.find, NOW_MS + 50) == Denied(reason=Denial.EXPIRED)
    found = authenticate(f"Bearer {new}", ring.find, NOW_MS + 50)
    assert (found.tenant, found.user, found.role, found.expires_ms) == (LAB, "ann", Role.SUBMITTER, 0)


def test_a_rotated_key_lives_as_long_as_the_old_one_was_to():
    ring = MemoryKeyRing()
    old = ring.find(id_of(issue(ring, LAB, now_ms=100, expires_ms=600)))
    new = ring.find(id_of(rotate(ring, old, now_ms=500, overlap_ms=10_000)))
    assert (new.expires_ms, ring.find(old.key).expires_ms) == (1_000, 600)


def test_a_meshs_key_is_rotated_as_one():
    ring = MemoryKeyRing()
    old = ring.find(id_of(issue_for_mesh(ring, MeshId("east"), now_ms=7)))
    new = rotate(ring, old, now_ms=NOW_MS, overlap_ms=0)
    assert authenticate_mesh(f"Bearer {new}", ring.find, NOW_MS) == MeshPrincipal(key=id_of(new), mesh=MeshId("east"))
    assert ring.find(old.key).expires_ms == NOW_MS


@pytest.mark.parametrize("held", Role)
@pytest.mark.parametrize("needed", Role)
def test_each_role_includes_those_before_it(held, needed):
    ranks = ["viewer", "submitter", "operator", "admin"]
    assert held.includes(needed) is (ranks.index(held.value) >= ranks.index(needed.value))


def test_a_key_of_everybody_covers_every_tenant():
    assert covers(EVERYBODY, LAB)
