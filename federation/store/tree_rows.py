"""A tenant tree as rows of the ledger, and back."""

import json
from collections.abc import Iterator

from federation.tenants import SEPARATOR, FlavorResource, Quota, Tenant, TenantTree
from mesh.ids import FlavorName, TenantPath


def tenant_rows(tree: TenantTree) -> list[list[str]]:
    """Path, parent or nothing, the tenant as JSON."""
    return [[tenant.path, tenant.parent or "", _tenant_json(tenant)] for tenant in tree.tenants.values()]


def quota_rows(tree: TenantTree) -> Iterator[list[str]]:
    """Rows that are not all zero: limits of a tenant, and what it has from its children."""
    for path in tree.tenants:
        for key in sorted(tree.flavor_resources()):
            own, kept, limit = tree.own_quota(path, key), tree.kept(path, key), tree.quota(path, key).borrowing_limit
            if own or kept or limit is not None:
                yield [path, *key, f"{own} {kept} {'-' if limit is None else limit}"]


def usage_of(rows: dict[str, str]) -> dict[tuple[TenantPath, FlavorName, str], int]:
    """What each node is charged: held, not aimed at."""
    held = {name: int(value.partition(" ")[0]) for name, value in rows.items() if name.startswith("use" + SEPARATOR)}
    return {_usage_key(name): units for name, units in held.items() if units}


def _usage_key(name: str) -> tuple[TenantPath, FlavorName, str]:
    _, path, flavor, resource = name.split(SEPARATOR, 3)
    return TenantPath(path), FlavorName(flavor), resource


def tree_of(rows: dict[str, str], usage: dict[tuple[TenantPath, FlavorName, str], int]) -> TenantTree:
    """The configured tenants, and the vanished ones that are still charged."""
    configured = configured_of(rows)
    parents = {
        TenantPath(name.removeprefix("parent" + SEPARATOR)): TenantPath(parent) if parent else None
        for name, parent in rows.items()
        if name.startswith("parent" + SEPARATOR)
    }
    gone = {path: parent for path, parent in parents.items() if path not in configured.tenants}
    return configured.with_vanished(gone, usage)


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
