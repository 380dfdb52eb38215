"""Authentication: an API key in, a principal or a named denial out.

A tenant's key reads `smk_<id>_<secret>`, a mesh's `smm_<id>_<secret>`. The id (8 hex digits) finds the record; the secret (43
characters, 256 random bits) proves possession. The text is shown once, when it is minted; the ring keeps a digest of the
secret.

A wrong secret and an unknown id cost the same work and get the same response, so that no caller learns which ids exist. Only
callers with the right secret learn that a key was revoked.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from federation.api_keys import ApiKey, KeyRing
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Denied:
    """Failed authentication."""

    reason: Denial


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Holder of a tenant's or operator's key."""

    key: str  #: Id of the key, for logs; the secret is stored nowhere.
    tenant: TenantPath
    user: str = ""  #: User of the key; empty: none.

    def may(self, tenant: TenantPath) -> bool:
        """Return whether the key covers the tenant: its own tenant and those below it."""
        return tenant == self.tenant or tenant.startswith(f"{self.tenant}/")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshPrincipal:
    """Holder of a mesh's key."""

    key: str  #: See `Principal`.
    mesh: MeshId


def mint(tenant: TenantPath, now_ms: int, user: str = "") -> tuple[str, ApiKey]:
    """Make a key of the tenant: return its text, to be shown once, and its record for the ring.

    Args:
        now_ms: Milliseconds since the epoch.
        user: User of the key; empty: none.
    """
    key, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
    record = ApiKey(key=key, tenant=tenant, sha256=_digest(secret), created_ms=now_ms, user=user)
    return f"{TENANTS_KEY}_{key}_{secret}", record


def mint_for_mesh(mesh: MeshId, now_ms: int) -> tuple[str, ApiKey]:
    """Make a key of the mesh. See `mint`."""
    key, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
    return f"{MESHS_KEY}_{key}_{secret}", ApiKey(key=key, tenant=TenantPath(""), mesh=mesh, sha256=_digest(secret), created_ms=now_ms)


def issue(ring: KeyRing, tenant: TenantPath, now_ms: int, user: str = "") -> str:
    """Make a key, store it in the ring, and return its text, to be shown once.

    Args:
        now_ms: Milliseconds since the epoch.
        user: See `mint`.
    Raises:
        StoreUnavailable: The ring does not answer; the key may have been stored, but no one has its text.
    """
    return _kept(ring, lambda: mint(tenant, now_ms, user))


def issue_for_mesh(ring: KeyRing, mesh: MeshId, now_ms: int) -> str:
    """Make a key of the mesh and store it in the ring. See `issue`."""
    return _kept(ring, lambda: mint_for_mesh(mesh, now_ms))


def id_of(text: str) -> str:
    """Return the id under which the ring finds the key of this text."""
    return text.split("_")[1]


def _kept(ring: KeyRing, mint_one: Callable[[], tuple[str, ApiKey]]) -> str:
    while True:
        text, record = mint_one()
        if ring.add(record):  # The id is taken with a chance of 1 in 2^32 per existing key.
            return text


def authenticate(header: str | None, lookup: Callable[[str], ApiKey | None]) -> Principal | Denied:
    """Return the holder of the tenant's key in an `Authorization` header, or the denial.

    Args:
        lookup: `KeyRing.find`.
    Raises:
        StoreUnavailable: From `lookup`.
    """
    record = _proven(header, TENANTS_KEY, lookup)
    return record if isinstance(record, Denied) else Principal(key=record.key, tenant=record.tenant, user=record.user)


def authenticate_mesh(header: str | None, lookup: Callable[[str], ApiKey | None]) -> MeshPrincipal | Denied:
    """Return the holder of the mesh's key in an `Authorization` header, or the denial. See `authenticate`."""
    record = _proven(header, MESHS_KEY, lookup)
    return record if isinstance(record, Denied) else MeshPrincipal(key=record.key, mesh=record.mesh or MeshId(""))


def _proven(header: str | None, kind: str, lookup: Callable[[str], ApiKey | None]) -> ApiKey | Denied:
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
    return Denied(reason=Denial.REVOKED) if record.revoked else record


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
