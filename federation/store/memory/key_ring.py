"""The key store in memory, for tests and a federation in one process."""

import threading
from dataclasses import replace

from federation.api_keys import ApiKey, ApiKeyLine, earlier, lines_of


class MemoryKeyRing:
    """`KeyRing` in this process; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys: dict[str, ApiKey] = {}
        self._used_ms: dict[str, int] = {}

    def add(self, key: ApiKey) -> bool:
        with self._lock:
            return self._keys.setdefault(key.key, key) is key

    def find(self, key: str) -> ApiKey | None:
        with self._lock:
            return self._keys.get(key)

    def revoke(self, key: str) -> bool:
        with self._lock:
            found = self._keys.get(key)
            if found is not None:
                self._keys[key] = replace(found, revoked=True)
            return found is not None

    def expire(self, key: str, at_ms: int) -> bool:
        with self._lock:
            found = self._keys.get(key)
            if found is not None:
                self._keys[key] = replace(found, expires_ms=earlier(found.expires_ms, at_ms), rotated=True)
            return found is not None

    def note_use(self, key: str, at_ms: int) -> None:
        with self._lock:
            self._used_ms[key] = at_ms

    def list(self) -> tuple[ApiKeyLine, ...]:
        with self._lock:
            return lines_of(list(self._keys.values()), self._used_ms)
