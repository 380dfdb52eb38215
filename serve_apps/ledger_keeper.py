"""Who the ledger of a stack is, over restarts; and what the stack knows of it, put back where the server has lost it.

The id of the ledger is kept in the state folder from the first start on. Meshes bring their leases back to the ledger that they
joined and to no other, so a ledger that is founded again after a loss is founded under its own id, and learns. A server that
is empty when a stack *starts* is another matter: it may be the wrong one, so somebody has to say that it is not.

Source: references of the protocol §4.1, §6 rows 15, 19, 20; ADR 0019.
"""

from __future__ import annotations

import secrets
from typing import cast

import structlog

from federation.api_keys import ApiKey
from federation.store.redis_key_ring import RedisKeyRing
from federation.store.redis_scripts import redis_answers
from federation.tenant_orders import OrdersInForce
from federation.tenants import TenantTree
from serve_apps.state_folder import StateFolder
from serve_apps.stores import Stores

log = structlog.get_logger(__name__)

_FILE = "ledger.json"


def known_ledger(folder: StateFolder) -> str | None:
    """The ledger of this state folder; None before its first start."""
    kept = folder.read(_FILE).get("uid")
    return str(kept) if kept else None


def ledger_of(folder: StateFolder, stores: Stores) -> str:
    """The ledger of this state folder; before its first start the one that the server holds, or a new one.

    Raises:
        StoreUnavailable: The server does not answer.
    """
    return known_ledger(folder) or _written(stores)[0] or secrets.token_hex(8)


def keep_ledger(folder: StateFolder, uid: str) -> None:
    """Once it is founded: a start that was cut off before founds it as if it were the first."""
    folder.write(_FILE, {"uid": uid})


def _written(stores: Stores) -> tuple[str | None, int]:
    """Who the ledger of the server is, None when there is none, and the version of its tree."""
    with redis_answers("look at the ledger"):
        uid, version = cast("list[bytes | None]", stores.client.hmget(stores.keys.meta, ["uid", "version"]))
    return uid.decode() if uid is not None else None, int(version or 0)


class LedgerKeeper:
    """What the ledger was told, and what it is told again when it comes back older than it was: empty, or from a copy.

    The version of the tenant tree says which: it never falls by itself. Leases are not this side's to bring back: meshes do that.
    """

    def __init__(self, stores: Stores, uid: str) -> None:
        self._stores = stores
        self._uid = uid
        self._version = 0
        self._tree: TenantTree | None = None
        self._orders = OrdersInForce()
        self._keys: dict[str, ApiKey] = {}

    def move_to(self, stores: Stores) -> None:
        """The server has another address from now on."""
        self._stores = stores

    def guard(self, key: str) -> None:
        """Keep a key of this id as well. Raises StoreUnavailable."""
        found = self._ring().find(key)
        if found is not None:
            self._keys[key] = found

    def look(self) -> bool:
        """Note what holds now, or put back what held before; True when it was put back.

        Raises:
            StoreUnavailable: The server does not answer; look again later.
        """
        uid, version = _written(self._stores)
        if uid is not None and uid != self._uid:
            log.error("the server holds another ledger by now; nothing is told to it", found=uid, known=self._uid)
        elif self._tree is not None and version < self._version:
            log.warning("the ledger is older than it was; telling it again", version=version, known=self._version)
            self._tell_again(self._tree)
            return True
        else:
            self._note(version)
        return False

    def _note(self, version: int) -> None:
        """Keep what holds, whole or not at all: the server may lose everything between two questions."""
        ring = self._ring()
        orders, keys = self._stores.orders.in_force(), {key: ring.find(key) or kept for key, kept in self._keys.items()}
        read = self._stores.ledger.configured_at() if self._tree is None or version != self._version else (version, self._tree)
        if _written(self._stores) == (self._uid, read[0]) and read[0] >= self._version:
            (self._version, self._tree), self._orders, self._keys = read, orders, keys

    def _tell_again(self, tree: TenantTree) -> None:
        """The tree last: as long as its version is old, all of this is done again."""
        self._stores.orders.publish(self._orders.filed)
        for tenant, stopped in self._orders.stops.items():
            self._stores.orders.stop(tenant, stopped)
        ring = self._ring()
        for key in self._keys.values():
            if not ring.add(key) and key.revoked:  # An older copy may have it from before it was revoked.
                ring.revoke(key.key)
        self._version = self._stores.ledger.configure(tree).version

    def _ring(self) -> RedisKeyRing:
        return RedisKeyRing(self._stores.client, self._stores.keys)
