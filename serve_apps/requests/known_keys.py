"""API keys that requests have shown a moment ago, so that each of many requests in a row does not ask the store for its key.

A revoked key is refused by the replica that revoked it at once, and by all others after `KEPT_MS` at most. A key that is not in the ring
is asked for again each time, so a new key counts at once.
"""

from __future__ import annotations

from collections import OrderedDict

from federation.api_keys import ApiKey, KeyRing
from mesh.core.clock import Clock

#: How long the record of a key is used.
KEPT_MS = 250
#: Most keys that are kept; the one that was read first goes first.
KEYS_MAX = 4_096


class KnownKeys:
    """Records of keys, the latest ones kept. Thread-safe: each change is one operation on a dict."""

    def __init__(self, ring: KeyRing, clock: Clock, kept_ms: int = KEPT_MS) -> None:
        self._ring = ring
        self._clock = clock
        self._kept_ms = kept_ms
        self._kept: OrderedDict[str, tuple[ApiKey, int]] = OrderedDict()  #: With the time of the read, monotonic.

    def find(self, key: str) -> ApiKey | None:
        """Return the key's record, at most `kept_ms` old; None: there is no such key. Raises StoreUnavailable."""
        kept = self.kept(key)
        if kept is not None:
            return kept
        read_ms = self._clock.monotonic_ms()
        found = self._ring.find(key)
        if found is not None:
            self._kept[key] = found, read_ms
            self._kept.move_to_end(key)
            while len(self._kept) > KEYS_MAX:
                self._kept.popitem(last=False)
        return found

    def kept(self, key: str) -> ApiKey | None:
        """Return the key's record if it is kept; the store is not asked."""
        found = self._kept.get(key)
        return found[0] if found is not None and self._clock.monotonic_ms() - found[1] < self._kept_ms else None

    def drop(self, key: str) -> None:
        """Ask the store for this key the next time."""
        self._kept.pop(key, None)
