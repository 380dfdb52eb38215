"""Small bytes that travel through the control store: pickled code and arguments, small values. Nobody here reads them."""

from typing import Protocol

from mesh.ids import RunId


class BlobStore(Protocol):
    """Bytes of a run under their SHA-256. Raises (all): StoreUnavailable."""

    def put(self, run: RunId, sha256: str, data: bytes) -> None:
        """Keep the bytes as long as the run is kept. Harmless when they are there."""

    def get(self, run: RunId, hashes: tuple[str, ...]) -> dict[str, bytes]:
        """Those of the hashes that are there."""

    def keep_only(self, run: RunId, hashes: tuple[str, ...]) -> None:
        """Drop all others of the run."""
