"""Authentication: an API key in, a principal or a named denial out.

A tenant's key reads `smk_<id>_<secret>`, a mesh's `smm_<id>_<secret>`. The id (8 hex digits) finds the record; the secret (43
characters, 256 random bits) proves possession. The text is shown once, when it is minted; the ring keeps a digest of the
secret.

A wrong secret and an unknown id cost the same work and get the same response, so that no caller learns which ids exist. Only
callers with the right secret learn that a key was revoked or has expired.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from federation.api_keys import ApiKey, KeyRing, Role
from mesh.core.ids import MeshId, TenantPath

#: Prefixes of keys: tenants' and meshes'.
TENANTS_KEY, MESHS_KEY = "smk", "smm"
_KEY_TEXT = re.compile(r"(?P<kind>smk|smm)_(?P<key>[0-9a-f]{8})_(?P<secret>[A-Za-z0-9_-]{43})")
#: Digest to compare with if there is no such key. No practical secret has this digest.
_NOBODY = ApiKey(key="", tenant=TenantPath(""), sha256="0" * 64, created_ms=0)


class Denial(str, Enum):
    """Why a key was denied; always HTTP 401."""

    MISSING = "MISSING"
    """There is no Authorization header."""
    MALFORMED = "MALFORMED"
    """The header is not `Bearer smk_<id>_<secret>` (for a mesh: `smm_…`)."""
    UNKNOWN = "UNKNOWN"
    """There is no such key."""
    REVOKED = "REVOKED"
    """The key was revoked."""
    EXPIRED = "EXPIRED"
    """The key has expired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Denied:
    """Failed authentication."""

    reason: Denial


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Holder of a key of a tenant, or of all tenants."""

    key: str  #: Id of the key, for logs; the secret is stored nowhere.
    tenant: TenantPath
    user: str = ""  #: User of the key; empty: none.
    role: Role = Role.OPERATOR
    expires_ms: int = 0  #: Since the epoch; 0: never.


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshPrincipal:
    """Holder of a mesh's key."""

    key: str  #: See `Principal`.
    mesh: MeshId


def mint(tenant: TenantPath, now_ms: int, user: str = "", *, role: Role = Role.OPERATOR, expires_ms: int = 0) -> tuple[str, ApiKey]:
    """Make a key of the tenant: return its text, to be shown once, and its record for the ring.

    Args:
        now_ms: Milliseconds since the epoch.
        user: User of the key; empty: none.
        expires_ms: Milliseconds since the epoch; 0: never.
    """
    key, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
    digest = _digest(secret)
    record = ApiKey(key=key, tenant=tenant, sha256=digest, created_ms=now_ms, user=user, role=role, expires_ms=expires_ms)
    return f"{TENANTS_KEY}_{key}_{secret}", record


def mint_for_mesh(mesh: MeshId, now_ms: int) -> tuple[str, ApiKey]:
    """Make a key of the mesh. See `mint`."""
    key, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
    return f"{MESHS_KEY}_{key}_{secret}", ApiKey(key=key, tenant=TenantPath(""), mesh=mesh, sha256=_digest(secret), created_ms=now_ms)


def issue(ring: KeyRing, tenant: TenantPath, now_ms: int, user: str = "", *, role: Role = Role.OPERATOR, expires_ms: int = 0) -> str:
    """Make a key, store it in the ring, and return its text, to be shown once.

    Args:
        now_ms: Milliseconds since the epoch.
        user: See `mint`.
        expires_ms: See `mint`.
    Raises:
        StoreUnavailable: The ring does not answer; the key may have been stored, but no one has its text.
    """
    return _kept(ring, lambda: mint(tenant, now_ms, user, role=role, expires_ms=expires_ms))


def issue_for_mesh(ring: KeyRing, mesh: MeshId, now_ms: int) -> str:
    """Make a key of the mesh and store it in the ring. See `issue`."""
    return _kept(ring, lambda: mint_for_mesh(mesh, now_ms))


def rotate(ring: KeyRing, old: ApiKey, now_ms: int, overlap_ms: int) -> str:
    """Make a key that may do what an old one may, let the old one expire after the overlap, and return the new one's text.

    The new key lives as long as the old one was made for, or for ever.

    Args:
        old: A valid key of a tenant or mesh that was not rotated before.
        now_ms: Milliseconds since the epoch.

    Raises:
        StoreUnavailable: The ring does not answer. The old key may not expire then; both keys can be revoked.
    """
    if old.mesh is not None:
        text = issue_for_mesh(ring, old.mesh, now_ms)
    else:
        expires_ms = now_ms + old.expires_ms - old.created_ms if old.expires_ms else 0
        text = issue(ring, old.tenant, now_ms, old.user, role=old.role, expires_ms=expires_ms)
    ring.expire(old.key, now_ms + overlap_ms)
    return text


def id_of(text: str) -> str:
    """Return the id under which the ring finds the key of this text."""
    return text.split("_")[1]


def _kept(ring: KeyRing, mint_one: Callable[[], tuple[str, ApiKey]]) -> str:
    while True:
        text, record = mint_one()
        if ring.add(record):  # The id is taken with a chance of 1 in 2^32 per existing key.
            return text


def authenticate(header: str | None, lookup: Callable[[str], ApiKey | None], now_ms: int) -> Principal | Denied:
    """Return the holder of the tenant's key in an `Authorization` header, or the denial.

    Args:
        lookup: `KeyRing.find`.
        now_ms: Milliseconds since the epoch.
    Raises:
        StoreUnavailable: From `lookup`.
    """
    record = _proven(header, TENANTS_KEY, lookup, now_ms)
    if isinstance(record, Denied):
        return record
    return Principal(key=record.key, tenant=record.tenant, user=record.user, role=record.role, expires_ms=record.expires_ms)


def authenticate_mesh(header: str | None, lookup: Callable[[str], ApiKey | None], now_ms: int) -> MeshPrincipal | Denied:
    """Return the holder of the mesh's key in an `Authorization` header, or the denial. See `authenticate`."""
    record = _proven(header, MESHS_KEY, lookup, now_ms)
    return record if isinstance(record, Denied) else MeshPrincipal(key=record.key, mesh=record.mesh or MeshId(""))


def key_in(header: str | None) -> str | None:
    """Return the id of the key in an `Authorization` header; None: it holds none. Nothing is proven by it."""
    _, _, text = (header or "").strip().partition(" ")
    match = _KEY_TEXT.fullmatch(text.strip())
    return match["key"] if match is not None else None


def _proven(header: str | None, kind: str, lookup: Callable[[str], ApiKey | None], now_ms: int) -> ApiKey | Denied:
    """Return the record of a key of this kind if the header has its secret."""
    if header is None:
        return Denied(reason=Denial.MISSING)
    scheme, _, text = header.strip().partition(" ")
    match = _KEY_TEXT.fullmatch(text.strip())
    if scheme.lower() != "bearer" or match is None or match["kind"] != kind:
        return Denied(reason=Denial.MALFORMED)
    found = lookup(match["key"])
    record = found or _NOBODY
    is_kind = (record.mesh is not None) == (kind == MESHS_KEY)
    if not hmac.compare_digest(_digest(match["secret"]), record.sha256) or found is None or not is_kind:
        return Denied(reason=Denial.UNKNOWN)
    if record.revoked:
        return Denied(reason=Denial.REVOKED)
    return Denied(reason=Denial.EXPIRED) if 0 < record.expires_ms <= now_ms else record


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
