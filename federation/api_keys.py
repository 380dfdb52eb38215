"""API keys that authenticate clients as tenants and meshes as themselves, and the port of the store that keeps the keys.

A key has a role on a subtree of tenants, may expire, and is revoked for good. See ADR 0070.

The store keeps only the SHA-256 of a key's secret. The secret is 256 random bits, so no dictionary attack exists and a leaked store
reveals no key. A slow password hash would protect only passwords that people choose.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from mesh.core.ids import MeshId, TenantPath

#: Tenant of a key that covers all tenants.
EVERYBODY = TenantPath("*")


class Role(str, Enum):
    """Permissions of a key in the tenants that it covers. Each role may also do what the roles above it may."""

    VIEWER = "viewer"
    """See runs, results, logs, quota and queues, and plan without submitting."""
    SUBMITTER = "submitter"
    """Submit, signal, cancel, resume and remove runs; drop cached values."""
    OPERATOR = "operator"
    """Suspend, drain and resume tenants; with a key of all tenants also drain meshes and requeue dead letters."""
    ADMIN = "admin"
    """List and revoke keys."""

    def includes(self, needed: "Role") -> bool:
        """Return whether a key of this role may do what needs the other role."""
        return _ROLES.index(self) >= _ROLES.index(needed)


_ROLES = tuple(Role)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """Stored form of an API key."""

    key: str  #: Public name: 8 hex digits.
    tenant: TenantPath  #: The key gives access to this tenant and all tenants below it. Empty for the key of a mesh.
    sha256: str = field(repr=False)  #: Hex digest of the secret.
    created_ms: int  #: Since the epoch.
    revoked: bool = False
    mesh: MeshId | None = None  #: The mesh that the key authenticates; such a key gives access to no tenant.
    user: str = ""  #: User of the key; submissions with the key belong to this user. Empty: the caller names the user.
    role: Role = Role.OPERATOR  #: Role of a tenant's key; unused for the key of a mesh.
    expires_ms: int = 0  #: The key is refused from this time on; since the epoch. 0: never.
    rotated: bool = False  #: Whether `expires_ms` is from `KeyRing.expire`, and no longer shows for how long the key was made.


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKeyLine:
    """Public form of an API key, without the digest."""

    key: str
    tenant: TenantPath
    created_ms: int
    revoked: bool
    mesh: MeshId | None = None
    user: str = ""
    role: Role = Role.OPERATOR
    expires_ms: int = 0
    used_ms: int = 0  #: Last use, to the minute; 0: never used.


class KeyRing(Protocol):
    """Port of the key store. All methods raise StoreUnavailable."""

    def add(self, key: ApiKey) -> bool:
        """Add the key. Return False and change nothing if a key of this name exists, revoked or not."""

    def find(self, key: str) -> ApiKey | None:
        """Return the key of this name, revoked or not; None if there is none."""

    def revoke(self, key: str) -> bool:
        """Refuse the key from now on; this cannot be undone. Return False if there is no such key. Safe to repeat."""

    def expire(self, key: str, at_ms: int) -> bool:
        """Let the key expire at this time, or when it would have expired anyway. Return False if there is no such key. Safe to repeat."""

    def note_use(self, key: str, at_ms: int) -> None:
        """Record the last use of a key that exists."""

    def list(self) -> tuple[ApiKeyLine, ...]:
        """Return all keys by mesh or tenant and then by age, revoked keys included."""


def line_of(key: ApiKey, used_ms: int = 0) -> ApiKeyLine:
    return ApiKeyLine(
        key=key.key,
        tenant=key.tenant,
        created_ms=key.created_ms,
        revoked=key.revoked,
        mesh=key.mesh,
        user=key.user,
        role=key.role,
        expires_ms=key.expires_ms,
        used_ms=used_ms,
    )


def lines_of(keys: list[ApiKey], used_ms: Mapping[str, int]) -> tuple[ApiKeyLine, ...]:
    """Return the keys in listing order: keys of meshes first, then keys of tenants; by name, then oldest first.

    Args:
        used_ms: Last use of the keys that were used.
    """
    ordered = sorted(keys, key=lambda key: (key.tenant, key.mesh or "", key.created_ms, key.key))
    return tuple(line_of(key, used_ms.get(key.key, 0)) for key in ordered)


def covers(top: TenantPath, tenant: TenantPath) -> bool:
    """Return whether a key of the first tenant gives access to the second one: to itself and those below it."""
    return top in (tenant, EVERYBODY) or tenant.startswith(f"{top}/")


def earlier(*times_ms: int) -> int:
    """Return the earliest of these times; 0 stands for never."""
    return min((at_ms for at_ms in times_ms if at_ms), default=0)


def orphans_of(ring: KeyRing, tenants: Collection[TenantPath]) -> tuple[str, ...]:
    """Return the ids of the valid keys that cover none of these tenants. Raises StoreUnavailable."""
    valid = (line for line in ring.list() if not line.revoked and line.mesh is None)
    return tuple(line.key for line in valid if not any(covers(line.tenant, tenant) for tenant in tenants))


def revoke_orphans(ring: KeyRing, tenants: Collection[TenantPath]) -> tuple[str, ...]:
    """Revoke the keys that `orphans_of` finds, and return their ids. Raises StoreUnavailable."""
    orphans = orphans_of(ring, tenants)
    for key in orphans:
        ring.revoke(key)
    return orphans
