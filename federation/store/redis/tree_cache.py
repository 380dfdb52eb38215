"""Cache of the tenant tree of a Redis ledger while that tree is in force.

Each tree in force has a unique name, even after lost writes. So the name identifies the tree; a version does not. One script reads use
and name together, so use is never combined with another tree.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping
from typing import Any

from federation.errors import StoreUnavailable
from federation.store.redis.scripts import pairs
from federation.store.tree_rows import tree_of
from federation.tenants import TenantTree
from mesh.core.ids import FlavorName, TenantPath

#: Approximate rows per script; other callers wait a millisecond or two.
_PAGE_ROWS = 2_000
#: Replacements of the tree during one read after which the read fails.
LOOKS_MAX = 10


class TreeCache:
    """Cache of the tree in this process. Thread-safe.

    Args:
        call: Calls a verb of the ledger with arguments.
    """

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call
        self._reading = threading.Lock()  #: One thread reads for all.
        self._kept: tuple[bytes, TenantTree] = (b"", TenantTree())  #: Name and tree.
        self._extended: tuple[TenantTree, object, TenantTree] | None = None  #: Tree, inputs and result of `extended`.

    @property
    def kept(self) -> tuple[bytes, TenantTree]:
        """Name and tree in force at the last read or write; empty before."""
        return self._kept

    def keep(self, name: bytes, tree: TenantTree) -> None:
        """Store the tree that was put in force under this name."""
        self._kept = name, tree

    def in_force(self) -> tuple[int, TenantTree]:
        """Return the version and the configured tenants, at one instant.

        Raises:
            StoreUnavailable: Redis does not respond, or the tree is replaced again and again.
        """
        for _ in range(LOOKS_MAX):
            _, version, name, *_ = self._call("tree", self._kept[0], 0, 1)
            tree = self.named(name)
            if tree is not None:
                return int(version), tree
        raise not_whole()

    def named(self, name: bytes) -> TenantTree | None:
        """Return the tree of this name; None if it is not in force any more or was not read completely: read again.

        Raises:
            StoreUnavailable: Redis does not respond.
        """
        known, tree = self._kept
        if known == name:
            return tree
        with self._reading:
            if self._kept[0] != name:
                rows = self._rows(name)
                if len(rows) != tenants_in(name):
                    return None
                self._kept = name, tree_of(rows)
            return self._kept[1]

    def _rows(self, name: bytes) -> dict[bytes, bytes]:
        """Read the rows. Rows may be missing if the tree was replaced, or if another server took over and the cursor is invalid."""
        rows: dict[bytes, bytes] = {}
        cursor: bytes | int = 0
        while True:
            code, *page = self._call("tree", name, cursor, _PAGE_ROWS)
            if code == b"OTHER":
                return {}
            _, _, cursor, flat = page
            rows.update(pairs(flat))
            if cursor == b"0":
                return rows

    def extended(
        self,
        tree: TenantTree,
        gone: Mapping[TenantPath, TenantPath | None],
        charged: Mapping[tuple[TenantPath, FlavorName, str], int],
    ) -> TenantTree:
        """Return the tree plus those of `gone` that are still charged; the same object while these are the same."""
        what = gone, frozenset(key for key in charged if key[0] in gone)
        known = self._extended
        if known is None or known[0] is not tree or known[1] != what:
            known = tree, what, tree.with_vanished(gone, charged)
            self._extended = known
        return known[2]


def new_name(tree: TenantTree) -> str:
    """Return a unique name for the tree in force; the name begins with the number of tenants."""
    return f"{len(tree.tenants)}-{secrets.token_hex(16)}"


def tenants_in(name: bytes) -> int:
    """Return the number of tenants in the tree of this name."""
    return int(name.partition(b"-")[0] or 0)


def not_whole() -> StoreUnavailable:
    return StoreUnavailable(f"the tenant tree could not be read in {LOOKS_MAX} attempts: it is replaced again and again; retry later")
