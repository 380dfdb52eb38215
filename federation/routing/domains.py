"""Domains of trust: a Ray cluster is one domain, since Ray does not separate tenants within it (ADR 0032).

A cluster that is not `shared` admits the work of one top-level tenant. The records of its meshes and the tenant tree in force decide
which tenants it admits; a tenant that was removed from the tree counts as long as its work holds leases there. If several top-level
tenants result, no mesh of the cluster admits anything new from any tenant until a person decides which of them was meant.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from federation.snapshot import FederationSnapshot, MeshRecord
from federation.tenants import top_level_of
from mesh.core.ids import MeshId, TenantPath


def admitted_top_level(record_tenants: Iterable[str], top_level: Iterable[TenantPath]) -> frozenset[TenantPath]:
    """Return the top-level tenants of which a mesh admits some tenant.

    Args:
        record_tenants: Paths, or `*`, as for `mesh_filters.may_use`.
        top_level: All top-level tenants of the tree.
    """
    reported = {top_level_of(path) for path in record_tenants}
    return frozenset(top_level if "*" in reported else reported.intersection(top_level))


def crowded(snapshot: FederationSnapshot) -> Mapping[MeshId, tuple[TenantPath, ...]]:
    """Return the meshes on unshared clusters that admit several top-level tenants, each with all of these tenants in order."""
    top_level = snapshot.tree.top_level
    of_cluster: defaultdict[str, list[MeshRecord]] = defaultdict(list)
    for view in snapshot.meshes:  # A mesh of unknown cluster counts as the only one on its cluster.
        of_cluster[view.record.cluster or f"mesh {view.record.mesh}"].append(view.record)
    unshared = {cluster: records for cluster, records in of_cluster.items() if not all(record.shared for record in records)}
    if not unshared:
        return {}
    holders: defaultdict[MeshId, set[TenantPath]] = defaultdict(set)
    for mesh, tenant in {(lease.mesh, lease.tenant) for lease in snapshot.leases}:
        holders[mesh].add(top_level_of(tenant))
    found: dict[MeshId, tuple[TenantPath, ...]] = {}
    for records in unshared.values():
        together = frozenset().union(*(admitted_top_level(record.tenants, top_level) | holders[record.mesh] for record in records))
        if len(together) > 1:
            found.update(dict.fromkeys((record.mesh for record in records), tuple(sorted(together))))
    return found
