"""The tenant tree and its quota arithmetic.

Every tenant has, for each (flavor, resource): a nominal quota, a borrowing limit (what it may use above its own) and a
lending limit (what siblings may use of its own). Quantities bubble up as in Kueue's cohorts: a node charges its parent
only with what exceeds the part of its quota that it never lends.

    own quota(n)       = nominal(n) + sum over children of (own quota(c) - kept(c))
    kept(n)            = max(0, own quota(n) - lending limit(n)) if it has one, else 0
    use(n)             = leases of n itself + sum over children of max(0, use(c) - kept(c))
    available(root)    = own quota - use                              # negative after a cut
    available(n)       = max(0, kept - use) + min(available(parent), cap)
      cap              = (own quota - kept) - max(0, use - kept) + borrowing limit     # no cap without a limit

Unlike a Kueue ClusterQueue, any tenant may hold leases, also one with children. Source: Kueue
`pkg/cache/scheduler/resource_node.go`, read as arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from mesh.ids import FlavorName, TenantPath

FlavorResource = tuple[FlavorName, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """The limits of one tenant for one (flavor, resource), in units; None means no limit."""

    nominal: int = 0
    borrowing_limit: int | None = None
    lending_limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A node of the tree."""

    path: TenantPath
    parent: TenantPath | None
    quotas: Mapping[FlavorResource, Quota] = field(default_factory=dict)
    functions: tuple[str, ...] = ()  #: Allow-list of `module:qualname` patterns for JSON specs; inherited when empty.
    pickled_code: bool = False  #: May its clients send pickled functions? They run in the tenant's own workers only.
