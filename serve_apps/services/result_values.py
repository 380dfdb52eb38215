"""Bytes of results. Clients read them through the gateway, which checks them, and need no access to the storage."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import IO, cast

import fsspec

from federation.blobs import BlobStore
from mesh.core.ids import RunId
from mesh.core.values import StoredValue
from serve_apps.requests.errors import CorruptValue, ValueNotThere

#: Bytes read from a file at once.
CHUNK_BYTES = 1 << 20


def read_small(blobs: BlobStore, run: RunId, values: Iterable[StoredValue]) -> dict[str, bytes]:
    """Return the bytes, by SHA-256, of values that the control store keeps. Values in files and lost values are left out.

    Raises:
        CorruptValue: Bytes do not match their hash.
        StoreUnavailable: The store does not answer.
    """
    wanted = tuple(dict.fromkeys(value.sha256 for value in values if value.uri is None))
    found = blobs.get(run, wanted) if wanted else {}
    for sha256, data in found.items():
        if hashlib.sha256(data).hexdigest() != sha256:
            raise CorruptValue(f"the value {sha256} of run {run} is corrupt: its bytes do not match the hash")
    return found


def open_value(blobs: BlobStore, run: RunId, value: StoredValue) -> Iterator[bytes]:
    """Return the bytes of a value in chunks. The source is opened at once, so that a lost value fails before the first byte.

    The last chunk is held back until the hash matches, so a complete response is correct.

    Raises:
        ValueNotThere: The value is lost.
        CorruptValue: Raised at the end: the bytes do not match their hash.
        StoreUnavailable: The store does not answer.
    """
    if value.uri is None:
        found = read_small(blobs, run, [value])
        if value.sha256 not in found:
            raise ValueNotThere(f"the value {value.sha256} of run {run} is lost")
        return iter([found[value.sha256]])
    try:
        file = cast("IO[bytes]", fsspec.open(value.uri, "rb").open())
    except FileNotFoundError:
        raise ValueNotThere(f"the file of value {value.sha256} of run {run} is lost") from None
    return _checked(file, run, value)


def _checked(file: IO[bytes], run: RunId, value: StoredValue) -> Iterator[bytes]:
    digest = hashlib.sha256()
    kept_back = b""
    with closing(file):
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            if kept_back:
                yield kept_back
            kept_back = chunk
    if digest.hexdigest() != value.sha256:
        raise CorruptValue(f"the value {value.sha256} of run {run} is corrupt: its bytes do not match the hash")
    yield kept_back
