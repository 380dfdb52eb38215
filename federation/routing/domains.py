"""Domains of trust: a Ray cluster is one, since Ray separates nobody within it (ADR 0032).

A cluster that is not `shared` takes the work of one top-level tenant. Which tenants it admits follows from its meshes' records and the
tenant tree in force; a tenant that was taken out of the tree counts as long as its work holds leases there. Where that makes several, no
mesh of the cluster takes anything new, from anybody: which of them was meant is for a person to say.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from federation.snapshot import MeshRecord, Snapshot
from federation.tenants import top_level_of
from mesh.ids import MeshId, TenantPath


def admitted_top_level(record_tenants: Iterable[str], top_level: Iterable[TenantPath]) -> frozenset[TenantPath]:
    """Those of the top-level tenants of which a mesh admits some tenant.

    Args:
        record_tenants: Paths, or `*`, as for `openness.may_use`.
        top_level: All that the tree has.
    """
    told = {top_level_of(path) for path in record_tenants}
    return frozenset(top_level if "*" in told else told.intersection(top_level))


def crowded(snapshot: Snapshot) -> Mapping[MeshId, tuple[TenantPath, ...]]:
    """The meshes on clusters that are not shared and yet admit several top-level tenants, each mesh with all of these, in order."""
    top_level = snapshot.tree.top_level
    of_cluster: defaultdict[str, list[MeshRecord]] = defaultdict(list)
    for view in snapshot.meshes:  # A mesh that does not know its cluster is taken to have one of its own.
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
