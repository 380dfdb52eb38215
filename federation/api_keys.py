"""Keys by which clients prove which tenant they are, and meshes which mesh; and the ring that keeps them.

Of a key's secret only the SHA-256 is kept. That is enough: a secret is 256 random bits, so there is no dictionary to try,
and whoever reads the ring learns no key. (A slow password hash would protect words that people choose.)
"""

from dataclasses import dataclass, field
from typing import Protocol

from mesh.ids import MeshId, TenantPath


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """One key, as it is kept."""

    key: str  #: Its public name: 8 hex digits.
    tenant: TenantPath  #: The key reaches this tenant and all below it. Empty: it is a mesh's.
    sha256: str = field(repr=False)  #: Hex digest of the secret.
    created_ms: int  #: Since the epoch.
    revoked: bool = False
    mesh: MeshId | None = None  #: The mesh that the key speaks for; it reaches no tenant.
    user: str = ""  #: Whose key it is: what is submitted with it is that user's. Empty: whoever uses it says who it is for.


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKeyLine:
    """A key as it may be shown: without the digest."""

    key: str
    tenant: TenantPath
    created_ms: int
    revoked: bool
    mesh: MeshId | None = None
    user: str = ""


class KeyRing(Protocol):
    """The port. Raises (all): StoreUnavailable."""

    def add(self, key: ApiKey) -> bool:
        """Keep the key; False (and nothing done) when there is one of this name, also a revoked one."""

    def find(self, key: str) -> ApiKey | None:
        """The key of this name, also when it is revoked."""

    def revoke(self, key: str) -> bool:
        """Refuse the key from now on; False when there is none of this name. Again is harmless, and there is no way back."""

    def list(self) -> tuple[ApiKeyLine, ...]:
        """All keys by mesh or tenant and age, also the revoked ones."""


def line_of(key: ApiKey) -> ApiKeyLine:
    """What may be shown of the key."""
    return ApiKeyLine(key=key.key, tenant=key.tenant, created_ms=key.created_ms, revoked=key.revoked, mesh=key.mesh, user=key.user)


def lines_of(keys: list[ApiKey]) -> tuple[ApiKeyLine, ...]:
    """The keys as a ring lists them: those of meshes, then those of tenants; by name, the older first."""
    return tuple(line_of(key) for key in sorted(keys, key=lambda key: (key.tenant, key.mesh or "", key.created_ms, key.key)))
