"""Caches of values in this process: for tests, simulation, and a federation of one process."""

import threading
from dataclasses import dataclass, field, replace

from dag.result_cache import ENTRIES_MAX, CacheEntry, Claimant, Hit, InFlight
from dag.run.runs import RunStore
from dag.run.states import RUN_ENDS
from federation.store.memory.store import MemoryStore
from mesh.core.ids import RunId, TenantPath

_Place = tuple[TenantPath, str]  #: Tenant and key.


@dataclass(slots=True, kw_only=True)
class _Kept:
    entry: CacheEntry
    data: bytes | None
    expires_ms: int
    hits: int = 0


@dataclass(slots=True)
class _Claim:
    by: Claimant
    waiting: dict[RunId, None] = field(default_factory=dict)


class MemoryCacheStore:
    """`CacheStore` in this process; thread-safe.

    Args:
        store: Gets the inbox entries.
        runs: Says whether the run of a claim goes on.
    """

    def __init__(self, store: MemoryStore, runs: RunStore, entries_max: int = ENTRIES_MAX) -> None:
        self._store = store
        self._runs = runs
        self._entries_max = entries_max
        self._guard = threading.Lock()
        self._kept: dict[_Place, _Kept] = {}
        self._claims: dict[_Place, _Claim] = {}

    def look(self, tenant: TenantPath, key: str, claimant: Claimant, now_ms: int, *, is_fresh: bool = False) -> Hit | InFlight | None:
        place = tenant, key
        with self._guard:
            kept = self._kept.get(place)
            if kept is not None and is_fresh:
                del self._kept[place]
            elif kept is not None and kept.expires_ms > now_ms:
                kept.hits += 1
                return Hit(entry=kept.entry, data=kept.data)
            claim = self._claims.get(place)
            if claim is not None and claim.by != claimant and self._goes_on(claim.by.run):
                claim.waiting[claimant.run] = None
                return InFlight(by=claim.by)
            waiting = claim.waiting if claim is not None else {}
            self._claims[place] = _Claim(claimant, waiting)
        return None

    def _goes_on(self, run: RunId) -> bool:
        summary = self._runs.summary(run)
        return summary is not None and summary.state not in RUN_ENDS

    def keep(self, entry: CacheEntry, data: bytes | None) -> CacheEntry | None:
        place = entry.tenant, entry.key
        with self._guard:
            before = self._kept.get(place)
            hits = before.hits if before is not None else 0
            self._kept[place] = _Kept(entry=entry, data=data, expires_ms=entry.expires_ms, hits=hits)
            of_tenant = [kept for (tenant, _), kept in self._kept.items() if tenant == entry.tenant]
            for old in sorted(of_tenant, key=lambda kept: (kept.entry.created_ms, kept.entry.key))[: -self._entries_max]:
                old.expires_ms = 0
        self.release(entry.tenant, entry.key, Claimant(run=entry.run, node=entry.node))
        return before.entry if before is not None else None

    def release(self, tenant: TenantPath, key: str, claimant: Claimant) -> None:
        with self._guard:
            claim = self._claims.get((tenant, key))
            if claim is None or claim.by != claimant:
                return
            del self._claims[tenant, key]
        for run in claim.waiting:
            self._store.post(run, "cached", b"")

    def entries(self, tenant: TenantPath, limit: int = 100) -> tuple[CacheEntry, ...]:
        with self._guard:
            found = [kept for (owner, _), kept in self._kept.items() if owner == tenant and kept.expires_ms]
        found.sort(key=lambda kept: (kept.entry.created_ms, kept.entry.key), reverse=True)
        return tuple(replace(kept.entry, hits=kept.hits) for kept in found[: max(0, limit)])

    def expire(self, tenant: TenantPath, keys: tuple[str, ...]) -> int:
        with self._guard:
            found = [kept for key in keys if (kept := self._kept.get((tenant, key))) is not None and kept.expires_ms]
            for kept in found:
                kept.expires_ms = 0
        return len(found)

    def take_expired(self, now_ms: int, limit: int = 100) -> tuple[CacheEntry, ...]:
        with self._guard:
            expired = [place for place, kept in self._kept.items() if kept.expires_ms <= now_ms][:limit]
            return tuple(self._kept.pop(place).entry for place in expired)
