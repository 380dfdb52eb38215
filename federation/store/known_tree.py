"""The tenant tree of a ledger on Redis, read once and kept for as long as it is the one in force.

Each tree that is put in force has a name that no other ever has, whatever the server loses: a tree that is known by its name is
that tree, where one of the same version need not be. What tenants are charged is read with the name, in one script, so it is
never held against another tree.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping
from typing import Any

from federation.errors import StoreUnavailable
from federation.store.redis_scripts import pairs
from federation.store.tree_rows import tree_of
from federation.tenants import TenantTree
from mesh.ids import FlavorName, TenantPath

#: Rows that one script looks at, about: others wait for a millisecond or two.
_PAGE_ROWS = 2_000
#: How often a tree may be replaced while it is read before that is told as what it is.
LOOKS_MAX = 10


class KnownTree:
    """What this process knows of the tree. Safe to call from many threads.

    Args:
        call: Calls a verb of the ledger with arguments.
    """

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call
        self._reading = threading.Lock()  #: One reads for all.
        self._kept: tuple[bytes, TenantTree] = (b"", TenantTree())  #: With its name.
        self._extended: tuple[TenantTree, object, TenantTree] | None = None  #: With what it was made of.

    @property
    def kept(self) -> tuple[bytes, TenantTree]:
        """The tree that was in force when it was last read or written, and its name; empty before."""
        return self._kept

    def keep(self, name: bytes, tree: TenantTree) -> None:
        """This tree was put in force under this name."""
        self._kept = name, tree

    def in_force(self) -> tuple[int, TenantTree]:
        """The configured tenants and their version, of one instant.

        Raises:
            StoreUnavailable: Redis does not answer, or the tree is replaced again and again.
        """
        for _ in range(LOOKS_MAX):
            _, version, name, *_ = self._call("tree", self._kept[0], 0, 1)
            tree = self.named(name)
            if tree is not None:
                return int(version), tree
        raise not_whole()

    def named(self, name: bytes) -> TenantTree | None:
        """The configured tenants of the tree of this name; None when it is not in force any more, or was not read whole: look anew.

        Raises:
            StoreUnavailable: Redis does not answer.
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
        """Some may be missing: the tree is another one meanwhile, or another server goes on, for which the cursor means another place."""
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
        """The tree with those of `gone` that are still charged; the same object as long as these are the same."""
        what = gone, frozenset(key for key in charged if key[0] in gone)
        known = self._extended
        if known is None or known[0] is not tree or known[1] != what:
            known = tree, what, tree.with_vanished(gone, charged)
            self._extended = known
        return known[2]


def new_name(tree: TenantTree) -> str:
    """A name for the tree once it is in force: it tells how many tenants there are to read, and no other tree ever has it."""
    return f"{len(tree.tenants)}-{secrets.token_hex(16)}"


def tenants_in(name: bytes) -> int:
    """How many tenants the tree of this name has."""
    return int(name.partition(b"-")[0] or 0)


def not_whole() -> StoreUnavailable:
    """Look after look."""
    return StoreUnavailable(f"the tenant tree could not be read whole in {LOOKS_MAX} looks: it is replaced again and again; look later")
