"""Tenant trees as rows of the ledger, and back."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, groupby
from operator import itemgetter

from federation.tenants import SEPARATOR, FlavorResource, Quota, Tenant, TenantTree
from mesh.core.ids import FlavorName, TenantPath

#: Prefix of tenants' own rows; the scripts read the rows with parents and quotas.
_TENANT = b"tenant" + SEPARATOR.encode()
_PART_ROWS_MAX, _PART_CHARACTERS_MAX = 500, 2**18
#: Most rows of one amendment.
AMENDED_ROWS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeDiff:
    """Rows to write and names of rows to delete: see `lua/lib_tree.lua`."""

    rows: dict[str, str]
    gone: tuple[str, ...]


def tree_diff(before: TenantTree, after: TenantTree) -> TreeDiff | None:
    """Return the rows that turn the first tree into the second; None if they are so many that writing the whole tree is better.

    The quota that a tenant lends to its ancestors changes only if the tenant or one below it has changed.
    """
    tenants = {*before.tenants, *after.tenants} if before.tenants.keys() != after.tenants.keys() else after.tenants
    changed = [path for path in tenants if before.tenants.get(path) != after.tenants.get(path)]
    if len(changed) > AMENDED_ROWS_MAX:
        return None
    paths = _with_all_above(before, changed) | _with_all_above(after, changed)
    rows = dict(rows_of(after, sorted(paths & after.tenants.keys())))
    gone = tuple(name for path in sorted(paths & before.tenants.keys()) for name in names_of(before, path) if name not in rows)
    return TreeDiff(rows=rows, gone=gone) if len(rows) + len(gone) <= AMENDED_ROWS_MAX else None


def _with_all_above(tree: TenantTree, paths: list[TenantPath]) -> set[TenantPath]:
    found: set[TenantPath] = set()
    for path in paths:
        above: TenantPath | None = path if path in tree.tenants else None
        while above is not None and above not in found:
            found.add(above)
            above = tree.tenants[above].parent
    return found


def rows_of(tree: TenantTree, paths: Iterable[TenantPath] | None = None) -> Iterator[tuple[str, str]]:
    """Yield all rows of these tenants with their names, grouped by tenant; None: all tenants."""
    keys = _keys_of(tree)
    for path in tree.tenants if paths is None else paths:
        tenant = tree.tenants[path]
        yield f"tenant|{path}", _tenant_json(tenant)
        yield f"parent|{path}", tenant.parent or ""
        for flavor, of_flavor in keys:
            parts = [part for key in of_flavor for part in _quota_parts(tree, tenant, key)]
            if parts:
                is_named = any(key in tenant.quotas for key in of_flavor)
                yield f"quota|{path}|{flavor}", ("" if is_named else SEPARATOR) + SEPARATOR.join(parts)


def names_of(tree: TenantTree, path: TenantPath) -> Iterator[str]:
    """Return the names that rows of a tenant may have."""
    return chain((f"tenant|{path}", f"parent|{path}"), (f"quota|{path}|{flavor}" for flavor, _ in _keys_of(tree)))


def _keys_of(tree: TenantTree) -> list[tuple[FlavorName, list[FlavorResource]]]:
    """Return all (flavor, resource) with a quota, grouped by flavor."""
    return [(flavor, list(keys)) for flavor, keys in groupby(sorted(tree.flavor_resources()), key=itemgetter(0))]


def _quota_parts(tree: TenantTree, tenant: Tenant, key: FlavorResource) -> list[str]:
    """Return the tenant's limits and the quota from its children; nothing if the tenant names none and its children lend it none."""
    own, kept = tree.own_quota(tenant.path, key), tree.kept(tenant.path, key)
    limit = tenant.quotas[key].borrowing_limit if key in tenant.quotas else None
    return [key[1], str(own), str(kept), "-" if limit is None else str(limit)] if own or key in tenant.quotas else []


def parts_of(rows: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """Yield parts that a script stores in a millisecond or two, whatever the sizes of tree and rows."""
    part: list[tuple[str, str]] = []
    size = 0
    for row in rows:
        if part and (len(part) == _PART_ROWS_MAX or size + len(row[1]) > _PART_CHARACTERS_MAX):
            yield part
            part, size = [], 0
        part.append(row)
        size += len(row[1])
    if part:
        yield part


def charged_of(name: bytes, row: bytes) -> dict[tuple[TenantPath, FlavorName, str], int]:
    """Return the held units of each resource of a node that has use or targets."""
    path, _, flavor = name.decode().partition(SEPARATOR)
    parts = row.decode().split(SEPARATOR)
    return {(TenantPath(path), FlavorName(flavor), resource): int(held) for resource, held in zip(parts[::3], parts[1::3], strict=True)}


def gone_of(rows: Mapping[bytes, bytes]) -> dict[TenantPath, TenantPath | None]:
    """Return removed tenants with their former parents."""
    return {TenantPath(path.decode()): TenantPath(parent.decode()) if parent else None for path, parent in rows.items()}


def tree_of(rows: Mapping[bytes, bytes]) -> TenantTree:
    """Return the configured tenants."""
    return TenantTree([_tenant_of(packed) for name, packed in rows.items() if name.startswith(_TENANT)])


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


def _tenant_of(packed: bytes) -> Tenant:
    row = json.loads(packed)
    quotas: dict[FlavorResource, Quota] = {
        (FlavorName(flavor), resource): _quota(nominal, borrowing, lending)
        for flavor, resource, nominal, borrowing, lending in row["quotas"]
    }
    return Tenant(
        path=TenantPath(row["path"]),
        parent=row["parent"],
        quotas=quotas,
        functions=tuple(row["functions"]),
        pickled_code=row["pickled_code"],
    )


@lru_cache(maxsize=4096)
def _quota(nominal: int, borrowing: int | None, lending: int | None) -> Quota:
    """Cached, because many tenants have equal quotas."""
    return Quota(nominal=nominal, borrowing_limit=borrowing, lending_limit=lending)
