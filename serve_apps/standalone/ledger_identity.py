"""Identity of a stack's ledger over restarts, and recovery of what the stack knows when the server has lost it.

The state folder keeps the ledger's id from the first start on. Meshes return their leases only to the ledger that they
joined, so a ledger recreated after a loss gets its own id again, and recovers the leases from the meshes. A server that
is empty when a stack *starts* is different: it may be the wrong server, so an operator must confirm it.

Source: ADR 0019.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import cast

import structlog

from federation.api_keys import ApiKey
from federation.mesh_conditions import Drain
from federation.quota.tenant_policies import PoliciesInForce
from federation.store.redis.change_counter import ChangeCounter
from federation.store.redis.key_ring import RedisKeyRing
from federation.store.redis.scripts import redis_responses
from federation.tenants import TenantTree
from mesh.core.ids import MeshId
from mesh.stages.stage_settings import StageSettings
from serve_apps.processes.stores import Stores
from serve_apps.standalone.stack_folder import StackFolder

log = structlog.get_logger(__name__)

_FILE = "ledger.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """Counters that tell a ledger from another ledger and from an older copy of itself."""

    uid: str | None  #: None: there is no ledger.
    version: int  #: Version of the tenant tree.
    changes: int  #: Number of operators' changes so far: see `ChangeCounter`.

    def is_older_than(self, known: _Written) -> bool:
        """Return whether a counter is lower; counters never fall in normal operation."""
        return self.version < known.version or self.changes < known.changes


def known_ledger(folder: StackFolder) -> str | None:
    """Return the ledger id of this state folder; None before its first start."""
    kept = folder.read(_FILE).get("uid")
    return str(kept) if kept else None


def ledger_of(folder: StackFolder, stores: Stores) -> str:
    """Return the ledger id of this state folder; before its first start the server's ledger id, or a new one.

    Raises:
        StoreUnavailable: The server does not answer.
    """
    return known_ledger(folder) or _written(stores).uid or secrets.token_hex(8)


def keep_ledger(folder: StackFolder, uid: str) -> None:
    """Store the ledger id. Call this once the ledger exists, so that an interrupted first start counts as none."""
    folder.write(_FILE, {"uid": uid})


def _written(stores: Stores) -> _Written:
    with redis_responses("look at the ledger"):
        uid, version = cast("list[bytes | None]", stores.client.hmget(stores.keys.meta, ["uid", "version"]))
        changes = ChangeCounter(stores.client, stores.keys).count()
    return _Written(uid=uid.decode() if uid is not None else None, version=int(version or 0), changes=changes)


class LedgerIdentity:
    """State given to the ledger by this stack, written again when the ledger returns empty or from an older copy.

    The version of the tenant tree and the count of changes show which is the case. Meshes return their leases themselves. Valid keys of
    others are not restored: their holders notice and make new ones.
    """

    def __init__(self, stores: Stores, uid: str) -> None:
        self._stores = stores
        self._uid = uid
        self._known = _Written(uid=uid, version=0, changes=0)
        self._owes = False  #: Whether a restoration was interrupted.
        self._tree: TenantTree | None = None
        self._tenant_policies = PoliciesInForce()
        self._drains: dict[MeshId, Drain] = {}
        self._settings: dict[MeshId, StageSettings] = {}
        self._keys: dict[str, ApiKey] = {}  #: Guarded keys, restored whatever happens.
        self._ended: dict[str, ApiKey] = {}  #: Revoked keys, and keys with an end, which an older copy may not have.

    def move_to(self, stores: Stores) -> None:
        """Use the server's new address from now on."""
        self._stores = stores

    def guard(self, key: str) -> None:
        """Guard a key of this id as well. Raises StoreUnavailable."""
        found = self._ring().find(key)
        if found is not None:
            self._keys[key] = found

    def look(self) -> bool:
        """Record the ledger's state, or restore the recorded state; return True if it was restored.

        Raises:
            StoreUnavailable: The server does not answer; try again later.
        """
        written = _written(self._stores)
        if written.uid is not None and written.uid != self._uid:
            log.error("the server holds another ledger; nothing is written to it", found=written.uid, known=self._uid)
        elif self._tree is not None and (self._owes or written.is_older_than(self._known)):
            log.warning("the ledger is older than before; restoring what this stack knows", found=str(written), known=str(self._known))
            self._restore(self._tree)
            return True
        else:
            self._note(written)
        return False

    def _note(self, written: _Written) -> None:
        """Record the state, completely or not at all: the server may lose everything between two reads."""
        ring, known = self._ring(), self._known
        tenant_policies, drains = self._stores.tenant_policies.in_force(), self._drained()
        settings = self._published()
        keys = {key: ring.find(key) or kept for key, kept in self._keys.items()}
        ended = self._ended if self._tree is not None and written.changes == known.changes else self._ended_of(ring)
        if self._tree is None or written.version != known.version:
            version, tree = self._stores.ledger.configured_at()
        else:
            version, tree = written.version, self._tree
        seen = _Written(uid=self._uid, version=version, changes=written.changes)
        if _written(self._stores) == seen and not seen.is_older_than(known):
            self._known, self._tree, self._tenant_policies, self._drains = seen, tree, tenant_policies, drains
            self._keys, self._ended, self._settings = keys, ended, settings

    def _ended_of(self, ring: RedisKeyRing) -> dict[str, ApiKey]:
        lines = [line for line in ring.list() if line.revoked or line.expires_ms]
        found = {line.key: self._kept_if_revoked(line.key) or ring.find(line.key) for line in lines}
        return {name: key for name, key in found.items() if key is not None}

    def _kept_if_revoked(self, key: str) -> ApiKey | None:
        """Return a key that is known as revoked: nothing about it changes again."""
        kept = self._ended.get(key)
        return kept if kept is not None and kept.revoked else None

    def _restore(self, tree: TenantTree) -> None:
        """Restore everything; an interrupted restoration starts over. Stops and drains that only the older copy has are ended again."""
        self._owes = True
        self._restore_policies()
        ring = self._ring()
        for key in (*self._keys.values(), *self._ended.values()):
            is_added = (key.revoked or key.key in self._keys) and ring.add(key)
            if key.revoked and not is_added:
                ring.revoke(key.key)  # An older copy may have the key from before it was revoked.
            elif key.rotated and not is_added:
                ring.expire(key.key, key.expires_ms)  # Or it has the key from before it was rotated.
        with redis_responses("count changes"):
            ChangeCounter(self._stores.client, self._stores.keys).raise_to(self._known.changes)
        self._stores.ledger.configure(tree)
        self._known, self._owes = _written(self._stores), False

    def _restore_policies(self) -> None:
        tenant_policies, registry = self._stores.tenant_policies, self._stores.registry
        tenant_policies.publish(self._tenant_policies.filed)
        for tenant in tenant_policies.in_force().stops.keys() - self._tenant_policies.stops.keys():
            tenant_policies.release(tenant)
        for tenant, stopped in self._tenant_policies.stops.items():
            tenant_policies.stop(tenant, stopped)
        registry.publish_settings(self._settings)
        for mesh in self._drained().keys() - self._drains.keys():
            registry.undrain(mesh)
        for mesh, drain in self._drains.items():
            registry.drain(mesh, drain)

    def _drained(self) -> dict[MeshId, Drain]:
        conditions = self._stores.registry.conditions()
        return {mesh: kept.drain for mesh, kept in conditions.meshes.items() if kept.drain is not None}

    def _published(self) -> dict[MeshId, StageSettings]:
        conditions = self._stores.registry.conditions()
        return {mesh: kept.settings for mesh, kept in conditions.meshes.items() if kept.settings is not None}

    def _ring(self) -> RedisKeyRing:
        return RedisKeyRing(self._stores.client, self._stores.keys)
