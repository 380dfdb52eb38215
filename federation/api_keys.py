"""API keys that authenticate clients as tenants and meshes as themselves, and the port of the store that keeps the keys.

The store keeps only the SHA-256 of a key's secret. The secret is 256 random bits, so no dictionary attack exists and a leaked store
reveals no key. A slow password hash would protect only passwords that people choose.
"""

from dataclasses import dataclass, field
from typing import Protocol

from mesh.core.ids import MeshId, TenantPath


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKeyLine:
    """Public form of an API key, without the digest."""

    key: str
    tenant: TenantPath
    created_ms: int
    revoked: bool
    mesh: MeshId | None = None
    user: str = ""


class KeyRing(Protocol):
    """Port of the key store. All methods raise StoreUnavailable."""

    def add(self, key: ApiKey) -> bool:
        """Add the key. Return False and change nothing if a key of this name exists, revoked or not."""

    def find(self, key: str) -> ApiKey | None:
        """Return the key of this name, revoked or not; None if there is none."""

    def revoke(self, key: str) -> bool:
        """Refuse the key from now on; this cannot be undone. Return False if there is no such key. Safe to repeat."""

    def list(self) -> tuple[ApiKeyLine, ...]:
        """Return all keys by mesh or tenant and then by age, revoked keys included."""


def line_of(key: ApiKey) -> ApiKeyLine:
    return ApiKeyLine(key=key.key, tenant=key.tenant, created_ms=key.created_ms, revoked=key.revoked, mesh=key.mesh, user=key.user)


def lines_of(keys: list[ApiKey]) -> tuple[ApiKeyLine, ...]:
    """Return the keys in listing order: keys of meshes first, then keys of tenants; by name, then oldest first."""
    return tuple(line_of(key) for key in sorted(keys, key=lambda key: (key.tenant, key.mesh or "", key.created_ms, key.key)))
