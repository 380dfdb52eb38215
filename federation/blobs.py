"""Port for small opaque bytes in the control store: pickled code and arguments, small values."""

from typing import Protocol

from mesh.core.ids import RunId


class BlobStore(Protocol):
    """Bytes of a run under their SHA-256. All methods raise StoreUnavailable."""

    def put(self, run: RunId, sha256: str, data: bytes) -> None:
        """Keep the bytes as long as the run is kept. Safe to repeat."""

    def get(self, run: RunId, hashes: tuple[str, ...]) -> dict[str, bytes]:
        """Return the bytes of those hashes that are stored."""

    def drop(self, run: RunId, sha256: str) -> None:
        """Drop one blob of the run. Safe to repeat."""
