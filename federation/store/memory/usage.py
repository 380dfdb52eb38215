"""Use by day in one process: for tests, simulations, and a federation in one process."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection

from federation.store.memory.store import MemoryStore
from federation.usage.records import RowKey, StoredRows, Sums, UsageChange, UsageEntry, UsageReading, UsageState
from mesh.core.ids import StageId


class MemoryUsage:
    """`UsageStore` beside a `MemoryStore`, which reports the use; thread-safe."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._rows: dict[RowKey, Sums] = {}
        self._state = UsageState()

    def entries(self, after: str, limit: int) -> tuple[UsageEntry, ...]:
        return self._store.use_after(after)[:limit]

    def read(self, first: int, last: int) -> UsageReading:
        with self._lock:
            rows = {key: sums for key, sums in self._rows.items() if first <= key.day <= last}
            return UsageReading(rows=rows, state=self._state, left_out=self._store.use_left_out)

    def rows(self, keys: Collection[RowKey]) -> StoredRows:
        with self._lock:
            counts = Counter(key.day for key in self._rows)
            rows = {key: self._rows[key] for key in keys if key in self._rows}
            return StoredRows(rows=rows, counts={day: counts[day] for day in {key.day for key in keys}})

    def write(self, change: UsageChange) -> bool:
        with self._lock:
            if change.version != self._state.version:
                return False
            holdings = {**self._state.holdings, **change.holdings}
            reckonings = {**self._state.reckonings, **change.reckonings}
            self._state = UsageState(
                version=change.version + 1,
                cursor=change.cursor,
                holdings={StageId(stage): holding for stage, holding in holdings.items() if holding is not None},
                reckonings={account: reckoning for account, reckoning in reckonings.items() if reckoning is not None},
            )
            self._rows.update(change.rows)
            self._rows = {key: sums for key, sums in self._rows.items() if key.day >= change.drop_before}
        self._store.drop_use(change.entries)
        return True
