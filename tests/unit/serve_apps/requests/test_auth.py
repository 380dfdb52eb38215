"""API keys: issued ones are accepted, and no other."""

import hashlib
import re

import pytest

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
)

LAB = TenantPath("acme/lab")


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
    assert authenticate(f"Bearer {text}", ring.find) == Principal(key=text[4:12], tenant=LAB)
    assert authenticate(f"  bearer   {text} ", ring.find) == Principal(key=text[4:12], tenant=LAB)


def test_issuing_goes_round_a_name_that_is_taken(monkeypatch):
    ring, names = MemoryKeyRing(), iter(["00000001", "00000001", "00000002"])
    monkeypatch.setattr("serve_apps.requests.auth.secrets.token_hex", lambda _: next(names))
    texts = [issue(ring, LAB, now_ms=7), issue(ring, LAB, now_ms=8)]
    assert [text[4:12] for text in texts] == ["00000001", "00000002"]
    assert all(isinstance(authenticate(f"Bearer {text}", ring.find), Principal) for text in texts)


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
    assert authenticate(asked, ring.find) == Denied(reason=reason)


def test_revocation_is_reported_only_to_the_keys_holder():
    ring = MemoryKeyRing()
    text = issue(ring, LAB, now_ms=7)
    ring.revoke(text[4:12])
    assert authenticate(f"Bearer {text}", ring.find) == Denied(reason=Denial.REVOKED)
    assert authenticate(f"Bearer {text[:12]}_{'a' * 43}", ring.find) == Denied(reason=Denial.UNKNOWN)


def test_the_secret_of_one_key_does_not_open_another():
    first, record = mint(LAB, now_ms=7)
    second, other = mint(LAB, now_ms=7)
    ring = {record.key: record, other.key: other}
    assert authenticate(f"Bearer {first[:12]}_{second[13:]}", ring.get) == Denied(reason=Denial.UNKNOWN)


def test_unknown_id_is_refused_even_with_the_dummy_digest(monkeypatch):
    monkeypatch.setattr("serve_apps.requests.auth._digest", lambda _: "0" * 64)
    assert authenticate("Bearer smk_00000000_" + "a" * 43, lambda _: None) == Denied(reason=Denial.UNKNOWN)


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
    assert Principal(key="00000001", tenant=LAB).may(TenantPath(tenant)) is reached


def test_a_meshs_key_lets_its_mesh_in_and_no_tenant():
    ring = MemoryKeyRing()
    text = issue_for_mesh(ring, MeshId("east"), now_ms=7)
    assert re.fullmatch(r"smm_[0-9a-f]{8}_[A-Za-z0-9_-]{43}", text)
    assert authenticate_mesh(f"Bearer {text}", ring.find) == MeshPrincipal(key=text[4:12], mesh=MeshId("east"))
    assert authenticate(f"Bearer {text}", ring.find) == Denied(reason=Denial.MALFORMED)
    assert authenticate(f"Bearer smk_{text[4:]}", ring.find) == Denied(reason=Denial.UNKNOWN)


def test_a_tenants_key_lets_no_mesh_in():
    ring = MemoryKeyRing()
    text = issue(ring, LAB, now_ms=7)
    assert authenticate_mesh(f"Bearer {text}", ring.find) == Denied(reason=Denial.MALFORMED)
    assert authenticate_mesh(f"Bearer smm_{text[4:]}", ring.find) == Denied(reason=Denial.UNKNOWN)


def test_revoked_mesh_key_is_reported_only_to_its_holder():
    ring = MemoryKeyRing()
    text = issue_for_mesh(ring, MeshId("east"), now_ms=7)
    ring.revoke(text[4:12])
    assert authenticate_mesh(f"Bearer {text}", ring.find) == Denied(reason=Denial.REVOKED)
    assert authenticate_mesh(f"Bearer {text[:13]}{'a' * 43}", ring.find) == Denied(reason=Denial.UNKNOWN)


def test_the_id_in_a_keys_text_finds_it_in_the_ring():
    ring = MemoryKeyRing()
    text = issue(ring, TenantPath("lab"), 0)
    assert ring.find(id_of(text)).tenant == "lab"
