"""Difference of two tenant trees as rows: few rows if few tenants have changed, however large the trees are."""

from __future__ import annotations

from dataclasses import dataclass

from federation.store.tree_rows import AMENDED_ROWS_MAX, names_of, rows_of
from federation.tenants import TenantTree
from mesh.core.ids import TenantPath


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
