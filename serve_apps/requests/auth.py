"""Who asks: an API key in, a principal or a named denial out.

A tenant's key reads `smk_<id>_<secret>`, a mesh's `smm_<id>_<secret>`: the id (8 hex digits) finds the record, the secret (43
characters, 256 random bits) proves that it is meant. The text is shown once, when it is minted; the ring keeps the digest of
the secret.

A wrong secret and an unknown id cost the same work and get the same answer, so nobody learns which ids exist. That a key
was revoked is told to nobody but whoever knows its secret.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from federation.api_keys import ApiKey, KeyRing
from mesh.ids import MeshId, TenantPath

#: What keys begin with: those of tenants, those of meshes.
TENANTS_KEY, MESHS_KEY = "smk", "smm"
_KEY_TEXT = re.compile(r"(?P<kind>smk|smm)_(?P<key>[0-9a-f]{8})_(?P<secret>[A-Za-z0-9_-]{43})")
#: Compared with when there is no such key. No secret has this digest in practice: it would have to be found first.
_NOBODY = ApiKey(key="", tenant=TenantPath(""), sha256="0" * 64, created_ms=0)


class Denial(str, Enum):
    """Why nobody is let in; all of them are HTTP's 401."""

    MISSING = "MISSING"
    """There is no Authorization header."""
    MALFORMED = "MALFORMED"
    """The header is not `Bearer smk_<id>_<secret>` (for a mesh: `smm_…`)."""
    UNKNOWN = "UNKNOWN"
    """There is no such key."""
    REVOKED = "REVOKED"
    """The key was good once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Denied:
    """Nobody is let in."""

    reason: Denial


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Whoever holds a key."""

    key: str  #: The id of the key, for logs; the secret is nowhere.
    tenant: TenantPath
    user: str = ""  #: Whose key it is; empty: nobody's in particular.

    def may(self, tenant: TenantPath) -> bool:
        """Whether the key reaches the tenant: its own, and all below it."""
        return tenant == self.tenant or tenant.startswith(f"{self.tenant}/")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshPrincipal:
    """Whoever holds a mesh's key."""

    key: str  #: As for `Principal`.
    mesh: MeshId


def mint(tenant: TenantPath, now_ms: int, user: str = "") -> tuple[str, ApiKey]:
    """A new key for the tenant: the text for its holder, to be shown once, and the record for the ring.

    Args:
        now_ms: Milliseconds since the epoch.
        user: Whose key it is; empty: nobody's in particular.
    """
    key, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
    record = ApiKey(key=key, tenant=tenant, sha256=_digest(secret), created_ms=now_ms, user=user)
    return f"{TENANTS_KEY}_{key}_{secret}", record


def mint_for_mesh(mesh: MeshId, now_ms: int) -> tuple[str, ApiKey]:
    """A new key for the mesh. As `mint`."""
    key, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
    return f"{MESHS_KEY}_{key}_{secret}", ApiKey(key=key, tenant=TenantPath(""), mesh=mesh, sha256=_digest(secret), created_ms=now_ms)


def issue(ring: KeyRing, tenant: TenantPath, now_ms: int, user: str = "") -> str:
    """Mint a key and keep it in the ring; the text, to be shown once.

    Args:
        now_ms: Milliseconds since the epoch.
        user: See `mint`.
    Raises:
        StoreUnavailable: The ring does not answer; whether the key was kept is not known, and nobody has its text.
    """
    return _kept(ring, lambda: mint(tenant, now_ms, user))


def issue_for_mesh(ring: KeyRing, mesh: MeshId, now_ms: int) -> str:
    """Mint a key for the mesh and keep it. As `issue`."""
    return _kept(ring, lambda: mint_for_mesh(mesh, now_ms))


def id_of(text: str) -> str:
    """By which the ring finds the key of this text, as `issue` has given it."""
    return text.split("_")[1]


def _kept(ring: KeyRing, mint_one: Callable[[], tuple[str, ApiKey]]) -> str:
    while True:
        text, record = mint_one()
        if ring.add(record):  # One in 2^32 times per key there is, the id is taken.
            return text


def authenticate(header: str | None, lookup: Callable[[str], ApiKey | None]) -> Principal | Denied:
    """The holder of the tenant's key in an `Authorization` header.

    Args:
        lookup: `KeyRing.find`.
    Raises:
        StoreUnavailable: From `lookup`.
    """
    record = _proven(header, TENANTS_KEY, lookup)
    return record if isinstance(record, Denied) else Principal(key=record.key, tenant=record.tenant, user=record.user)


def authenticate_mesh(header: str | None, lookup: Callable[[str], ApiKey | None]) -> MeshPrincipal | Denied:
    """The holder of the mesh's key in an `Authorization` header. As `authenticate`."""
    record = _proven(header, MESHS_KEY, lookup)
    return record if isinstance(record, Denied) else MeshPrincipal(key=record.key, mesh=record.mesh or MeshId(""))


def _proven(header: str | None, kind: str, lookup: Callable[[str], ApiKey | None]) -> ApiKey | Denied:
    """The record of a key of this kind whose secret the header knows."""
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
