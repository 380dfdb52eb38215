"""A tenant tree as rows of the ledger, and back."""

import json
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

from federation.tenants import SEPARATOR, FlavorResource, Quota, Tenant, TenantTree
from mesh.ids import FlavorName, TenantPath


def tenant_rows(tree: TenantTree) -> list[list[str]]:
    """Path, parent or nothing, the tenant as JSON."""
    return [[tenant.path, tenant.parent or "", _tenant_json(tenant)] for tenant in tree.tenants.values()]


def quota_rows(tree: TenantTree) -> Iterator[list[str]]:
    """A row for each tenant and flavor, of what is not all zero: its limits, and what it has from its children."""
    keys = sorted(tree.flavor_resources())
    for path in tree.tenants:
        for flavor, of_flavor in groupby(keys, key=itemgetter(0)):
            parts = [part for key in of_flavor for part in _quota_parts(tree, path, key)]
            if parts:
                yield [path, flavor, SEPARATOR.join(parts)]


def _quota_parts(tree: TenantTree, path: TenantPath, key: FlavorResource) -> list[str]:
    own, kept, limit = tree.own_quota(path, key), tree.kept(path, key), tree.quota(path, key).borrowing_limit
    return [key[1], str(own), str(kept), "-" if limit is None else str(limit)] if own or kept or limit is not None else []


def usage_of(rows: dict[str, str]) -> dict[tuple[TenantPath, FlavorName, str], int]:
    """What each node is charged: held, not aimed at."""
    return {node: held for node, held in _charged(rows) if held}


def _charged(rows: dict[str, str]) -> Iterator[tuple[tuple[TenantPath, FlavorName, str], int]]:
    """Each node for which something is held or aimed at, and what is held."""
    for name, row in rows.items():
        kind, _, node = name.partition(SEPARATOR)
        if kind == "use":
            path, _, flavor = node.partition(SEPARATOR)
            parts = row.split(SEPARATOR)
            for resource, held in zip(parts[::3], parts[1::3], strict=True):
                yield (TenantPath(path), FlavorName(flavor), resource), int(held)


def tree_of(rows: dict[str, str]) -> TenantTree:
    """The configured tenants, and the vanished ones that are still charged, or that a plan has still promised something."""
    configured = configured_of(rows)
    parents = {
        TenantPath(name.removeprefix("parent" + SEPARATOR)): TenantPath(parent[1:]) if parent[1:] else None
        for name, parent in rows.items()
        if name.startswith("parent" + SEPARATOR)
    }
    gone = {path: parent for path, parent in parents.items() if path not in configured.tenants}
    return configured.with_vanished(gone, dict(_charged(rows)))


def configured_of(rows: dict[str, str]) -> TenantTree:
    """The configured tenants alone."""
    return TenantTree([_tenant_of(packed) for name, packed in rows.items() if name.startswith("tenant" + SEPARATOR)])


def _tenant_json(tenant: Tenant) -> str:
    quotas = [
        [flavor, resource, quota.nominal, quota.borrowing_limit, quota.lending_limit] for (flavor, resource), quota in tenant.quotas.items()
    ]
    row = {
        "path": tenant.path,
        "parent": tenant.parent,
        "quotas": quotas,
        "functions": tenant.functions,
        "pickled_code": tenant.pickled_code,
    }
    return json.dumps(row)


def _tenant_of(packed: str) -> Tenant:
    row = json.loads(packed)
    quotas: dict[FlavorResource, Quota] = {
        (FlavorName(flavor), resource): Quota(nominal=nominal, borrowing_limit=borrowing, lending_limit=lending)
        for flavor, resource, nominal, borrowing, lending in row["quotas"]
    }
    return Tenant(
        path=TenantPath(row["path"]),
        parent=row["parent"],
        quotas=quotas,
        functions=tuple(row["functions"]),
        pickled_code=row["pickled_code"],
    )
