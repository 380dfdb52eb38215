"""Cache of the values of nodes: entries by tenant and key, claims on keys, and copies of values.

An entry has a copy of its value, and a run that is hit gets a copy of its own. So entries and runs end independently of each other. Small
values are copied within the control store. For files `Copies` asks the storage to copy, and the bytes do not pass through the root.

A tenant has its own cache: keys of different tenants never meet. The claim on a key belongs to one node of one run until that node ends, or
the run does.

Source: ADR 0065.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import structlog

from dag.run.caching import Lookup
from dag.run.events import CacheAnswer
from dag.run.node_facts import CacheState
from dag.run.runs import KeepCached, ReleaseCached, RunRecord
from dag.spec.plans import NodePlan, function_of
from federation.blobs import BlobStore
from mesh.core.clock import Clock
from mesh.core.ids import NodeId, RunId, TenantPath
from mesh.core.values import StoredValue

log = structlog.get_logger(__name__)

#: Entries of a tenant; the oldest ones go.
ENTRIES_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheEntry:
    """A kept value of one tenant."""

    key: str
    tenant: TenantPath
    function: str  #: As the graph names it.
    run: RunId  #: Run and node that computed it.
    node: NodeId
    value: StoredValue
    created_ms: int
    expires_ms: int
    took_ms: int  #: Run time that a hit saves.
    hits: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimant:
    """Node that computes the value of a key, or asks for it."""

    run: RunId
    node: NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """The key has a value."""

    entry: CacheEntry
    data: bytes | None  #: The bytes of a small value.


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """Another node computes the value; the caller's run is notified when that ends."""

    by: Claimant


class CacheStore(Protocol):
    """Port of the store for entries and claims. All methods raise StoreUnavailable."""

    def look(self, tenant: TenantPath, key: str, claimant: Claimant, now_ms: int, *, is_fresh: bool = False) -> Hit | InFlight | None:
        """Look a key up; claim it for the caller if it has neither a value nor a claim of a run that goes on. Safe to repeat.

        None: the key is the caller's now.

        Args:
            is_fresh: Drop a value that is there.
        """

    def keep(self, entry: CacheEntry, data: bytes | None) -> CacheEntry | None:
        """Store an entry, end the claim of its node, and notify the runs that wait. Return the entry that it replaces. Safe to repeat."""

    def release(self, tenant: TenantPath, key: str, claimant: Claimant) -> None:
        """End the claim, if it is the claimant's, and notify the runs that wait. Safe to repeat."""

    def entries(self, tenant: TenantPath, limit: int = 100) -> tuple[CacheEntry, ...]:
        """Return the entries of exactly this tenant, newest first."""

    def expire(self, tenant: TenantPath, keys: tuple[str, ...]) -> int:
        """Let entries expire now; return how many there were."""

    def take_expired(self, now_ms: int, limit: int = 100) -> tuple[CacheEntry, ...]:
        """Remove and return expired entries. The caller deletes their files."""


class Copies(Protocol):
    """Files of values, copied by the storage itself."""

    def to_run(self, entry: CacheEntry, run: RunId, node: NodeId) -> StoredValue:
        """Return the entry's value, copied into the folder of a run. Raises OSError if the file is gone or cannot be copied."""

    def to_cache(self, value: StoredValue, run: RunId, tenant: TenantPath, name: str) -> StoredValue:
        """Return the value of a run, copied into the tenant's folder of the cache. Raises as `to_run`."""

    def delete(self, entry: CacheEntry) -> None:
        """Delete the file of an entry; harmless if it is gone."""


class ResultCache:
    """Answers lookups of nodes, and keeps their values."""

    def __init__(self, store: CacheStore, blobs: BlobStore, copies: Copies, clock: Clock) -> None:
        self._store = store
        self._blobs = blobs
        self._copies = copies
        self._clock = clock

    def look_up(self, record: RunRecord, lookups: Mapping[NodeId, Lookup]) -> dict[NodeId, CacheAnswer]:
        """Return the answer about each node. A claim is made for the run at once, and ends with it. Safe to repeat.

        Raises:
            StoreUnavailable: Ask again.
        """
        return {node: self._answer(record, node, lookup) for node, lookup in lookups.items()}

    def _answer(self, record: RunRecord, node: NodeId, lookup: Lookup) -> CacheAnswer:
        if not lookup.key:
            return CacheAnswer(state=CacheState.OFF, detail=lookup.detail)
        claimant, now_ms = Claimant(run=record.run, node=node), self._clock.wall_ms()
        found = self._store.look(record.tenant, lookup.key, claimant, now_ms, is_fresh=lookup.is_fresh)
        if isinstance(found, Hit):
            value = self._copied(found, record.run, node)
            if value is not None:
                words = f"value of node {found.entry.node} of run {found.entry.run}"
                return CacheAnswer(state=CacheState.HIT, key=lookup.key, value=value, detail=words)
            self._copies.delete(found.entry)
            found = self._store.look(record.tenant, lookup.key, claimant, now_ms, is_fresh=True)
        if isinstance(found, InFlight):
            words = f"node {found.by.node} of run {found.by.run} computes the value"
            return CacheAnswer(state=CacheState.IN_FLIGHT, key=lookup.key, detail=words)
        return CacheAnswer(state=CacheState.CLAIMED, key=lookup.key)

    def _copied(self, found: Hit, run: RunId, node: NodeId) -> StoredValue | None:
        """Return a copy of the value for a run; None: its file is gone."""
        value = found.entry.value
        if value.uri is None:
            if found.data is None or hashlib.sha256(found.data).hexdigest() != value.sha256:
                return None
            self._blobs.put(run, value.sha256, found.data)
            return value
        try:
            return self._copies.to_run(found.entry, run, node)
        except OSError as gone:
            log.warning("a cached value is gone and is computed again", key=found.entry.key, tenant=found.entry.tenant, error=str(gone))
            return None

    def keep(self, record: RunRecord, plans: Mapping[NodeId, NodePlan], decision: KeepCached) -> None:
        """Store the value of a node; without its bytes, end the claim. Safe to repeat."""
        data, value = None, decision.value
        claimant = Claimant(run=record.run, node=decision.node)
        if value.uri is None:
            data = self._blobs.get(record.run, (value.sha256,)).get(value.sha256)
            if data is None:
                self._store.release(record.tenant, decision.key, claimant)
                return
        else:
            try:
                value = self._copies.to_cache(value, record.run, record.tenant, _name_of(decision.key, claimant))
            except OSError as gone:
                log.warning("a value cannot be cached", run=record.run, node=decision.node, error=str(gone))
                self._store.release(record.tenant, decision.key, claimant)
                return
        now_ms = self._clock.wall_ms()
        entry = CacheEntry(
            key=decision.key,
            tenant=record.tenant,
            function=function_of(plans, decision.node),
            run=record.run,
            node=decision.node,
            value=value,
            created_ms=now_ms,
            expires_ms=now_ms + decision.ttl_ms,
            took_ms=decision.took_ms,
        )
        replaced = self._store.keep(entry, data)
        if replaced is not None and replaced.value.uri not in (None, value.uri):
            self._copies.delete(replaced)

    def release(self, record: RunRecord, decision: ReleaseCached) -> None:
        """End the claim of a node. Safe to repeat."""
        self._store.release(record.tenant, decision.key, Claimant(run=record.run, node=decision.node))

    def clean(self) -> None:
        """Remove expired entries with their files."""
        for entry in self._store.take_expired(self._clock.wall_ms()):
            if entry.value.uri is not None:
                self._copies.delete(entry)


def _name_of(key: str, claimant: Claimant) -> str:
    """Return the name of an entry's file: the same one when the step is repeated, another one for another node."""
    return hashlib.sha256(f"{key}|{claimant.run}|{claimant.node}".encode()).hexdigest()
