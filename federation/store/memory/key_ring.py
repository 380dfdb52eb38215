"""The key store in memory, for tests and a federation in one process."""

import threading
from dataclasses import replace

from federation.api_keys import ApiKey, ApiKeyLine, lines_of


class MemoryKeyRing:
    """`KeyRing` in this process; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys: dict[str, ApiKey] = {}

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

    def list(self) -> tuple[ApiKeyLine, ...]:
        with self._lock:
            return lines_of(list(self._keys.values()))
