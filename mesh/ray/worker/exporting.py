"""Export of values out of a mesh, and import into another: a value becomes bytes with a hash, in the control store when small, else a file.

A pickle is written straight into the file while it is made and hashed, so a large array is not copied. The file gets its final name,
which holds the hash, only when it is complete. A reader never sees a partial value, and two exports of the same value give one file.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import pickle
import uuid
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import cloudpickle
import fsspec
import ray
from fsspec.implementations.local import LocalFileSystem

from mesh.core.counting import counted
from mesh.core.ids import NodeId, RunId
from mesh.core.reasons import Reason
from mesh.core.values import Encoding, StoredValue
from mesh.errors import RuntimeAdapterError

#: Values with more parts are pickled: a look at every element in Python costs more than the pickle.
JSON_PARTS_MAX = 50_000
JSON_DEPTH_MAX = 64
#: Bound of JSON integers that every reader restores exactly.
_INT_BOUND = 2**63
_CHUNK_BYTES = 8 * 2**20
_NAME_CHARS_MAX = 120


class ValueUnreadable(RuntimeAdapterError):
    """Stored bytes that cannot be restored. `reason`: VALUE_LOST (gone, truncated, altered) or CODE_UNAVAILABLE (a class is missing)."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(reason, message)
        self.reason = reason

    def __str__(self) -> str:
        return str(self.args[1])


class StorageAway(ValueUnreadable):
    """A value that cannot be read now: the storage fails, and may hold it all the same."""


class ValueUnwritable(RuntimeAdapterError):
    """A value that cannot leave the mesh. `reason`: RESULT_UNSERIALIZABLE, or VALUE_LOST when the storage refuses it."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(reason, message)
        self.reason = reason

    def __str__(self) -> str:
        return str(self.args[1])


def export(value: Any, *, run: RunId, node: NodeId, storage_url: str, inline_limit_bytes: int) -> tuple[StoredValue, bytes | None]:
    """Write a value: JSON when JSON restores it exactly, else cloudpickle, protocol 5.

    Args:
        value: Anything.
        run: Names the folder of the file.
        node: Names the file, with the hash.
        storage_url: fsspec URL of a folder that every mesh of the federation reaches.
        inline_limit_bytes: Up to this size the bytes are returned, to be carried through the control store.

    Returns:
        A description of the bytes with their address; and the bytes themselves, when small.

    Raises:
        ValueUnwritable: The value cannot be pickled, or the storage refused it.
    """
    sink = _Sink(run, node, storage_url, inline_limit_bytes)
    try:
        text = as_json(value)
        if text is not None:
            sink.write(text)
        else:
            _pickle_into(sink, value, node)
        return sink.commit(Encoding.JSON if text is not None else Encoding.PICKLE)
    except BaseException:
        sink.discard()
        raise


def export_encoded(
    data: bytes, encoding: Encoding, *, run: RunId, node: NodeId, storage_url: str, inline_limit_bytes: int
) -> tuple[StoredValue, bytes | None]:
    """Write bytes that are encoded already. As `export`."""
    sink = _Sink(run, node, storage_url, inline_limit_bytes)
    try:
        sink.write(data)
        return sink.commit(encoding)
    except BaseException:
        sink.discard()
        raise


def import_value(stored: StoredValue, data: bytes | None) -> Any:
    """Read a value back: `data` when it came through the control store, else the file that `stored` names.

    Raises:
        ValueUnreadable: Gone, truncated, altered, or made of classes that this process does not have.
    """
    return unpack(read_verified(stored, data), stored.encoding)


def read_verified(stored: StoredValue, data: bytes | None) -> bytes | bytearray:
    """Return the bytes of a stored value, after a check of size and hash.

    Raises:
        ValueUnreadable: Gone, truncated or altered; `StorageAway` when that is not known.
    """
    if data is None:
        if stored.uri is None:
            raise ValueUnreadable(
                Reason.VALUE_LOST, f"value {stored.sha256[:16]} was expected through the control store, but did not arrive"
            )
        return _read_file(stored, stored.uri)
    if len(data) != stored.size_bytes or hashlib.sha256(data).hexdigest() != stored.sha256:
        came = f"{len(data)} of {counted(stored.size_bytes, 'byte')} came"
        raise ValueUnreadable(Reason.VALUE_LOST, f"value {stored.sha256[:16]} is corrupt: {came}")
    return data


def unpack(data: bytes | bytearray, encoding: Encoding) -> Any:
    """Return the value that verified bytes hold.

    Raises:
        ValueUnreadable: A class of the value cannot be imported here.
    """
    try:
        return json.loads(data) if encoding is Encoding.JSON else pickle.loads(data)  # noqa: S301 - only the tenant's own workers read these
    except Exception as unknown:
        raise ValueUnreadable(Reason.CODE_UNAVAILABLE, f"a stored value cannot be unpickled here: {_described(unknown)}") from unknown


def belongs(uri: str, run: RunId, storage_url: str) -> bool:
    """Return whether the address is one that `export` gives to values of the run.

    Addresses from a worker must be checked, since tenants' code runs there.
    """
    folder = f"{storage_url.rstrip('/')}/{_file_name(run)}/"
    return uri.startswith(folder) and "/" not in uri[len(folder) :] and ".." not in uri[len(folder) :]


def clear_folder(storage_url: str, run: RunId, keep: frozenset[str]) -> None:
    """Delete the files of an ended run, except those in `keep`: intermediate values, and leftovers of dead attempts."""
    folder = f"{storage_url.rstrip('/')}/{_file_name(run)}"
    filesystem, path = fsspec.core.url_to_fs(folder)
    if not filesystem.isdir(path):
        return
    names = {uri.rpartition("/")[2] for uri in keep}
    left = [file for file in filesystem.find(path) if file.rpartition("/")[2] not in names]
    for file in left:
        filesystem.rm_file(file)
    if not names:
        filesystem.rmdir(path)


def copied(value: StoredValue, *, source: RunId, target: RunId, name: str, storage_url: str) -> StoredValue:
    """Return the value of a run, its file copied into the folder of another one by the storage itself.

    On local file systems both are one file under two names.

    Args:
        name: Names the copy.

    Raises:
        OSError: The file is not one of the source, is gone, has another size, or the storage refused the copy.
    """
    if value.uri is None or not belongs(value.uri, source, storage_url):
        raise PermissionError(f"{value.uri} is not a file of {source} in {storage_url}")
    folder = f"{storage_url.rstrip('/')}/{_file_name(target)}"
    uri = f"{folder}/{_file_name(name)}-{value.sha256[:16]}"
    try:
        filesystem, path = fsspec.core.url_to_fs(value.uri)
        _check_size(filesystem, path, value)
        _, inside = fsspec.core.url_to_fs(folder)
        _, final = fsspec.core.url_to_fs(uri)
        filesystem.makedirs(inside, exist_ok=True)
        part = f"{inside}/.{uuid.uuid4().hex}.part"
        _link_or_copy(filesystem, path, part)
        filesystem.mv(part, final)
    except OSError:
        raise
    except Exception as refused:  # Object stores raise errors of their own.
        raise OSError(f"{value.uri} cannot be copied to {uri}: {_described(refused)}") from refused
    return replace(value, uri=uri)


def _check_size(filesystem: Any, path: str, value: StoredValue) -> None:
    size_bytes = filesystem.size(path)
    if size_bytes != value.size_bytes:
        raise OSError(f"{value.uri} has {counted(size_bytes, 'byte')} instead of {value.size_bytes}")


def _link_or_copy(filesystem: Any, path: str, target: str) -> None:
    if isinstance(filesystem, LocalFileSystem):
        try:
            filesystem.link(path, target)
        except OSError:
            pass  # Some file systems have no links.
        else:
            return
    filesystem.cp_file(path, target)


def read_within(storage_url: str, run: RunId, stored: StoredValue) -> bytes:
    """Return the bytes of a run's value in a file, and of no other file that a worker may have named.

    Raises:
        ValueUnreadable: The file is not one of the run, or is gone, truncated or altered.
    """
    if stored.uri is None or not belongs(stored.uri, run, storage_url):
        raise ValueUnreadable(Reason.VALUE_LOST, f"{stored.uri} is not a file of run {run} in {storage_url}")
    return bytes(_read_file(stored, stored.uri))


def remove_within(storage_url: str, run: RunId, uri: str) -> None:
    """Delete the file of a run's value, and no other file that a worker may have named.

    Raises:
        PermissionError: The file is not one of the run.
    """
    if not belongs(uri, run, storage_url):
        raise PermissionError(f"{uri} is not a file of run {run} in {storage_url}")
    remove(uri)


def remove(uri: str) -> None:
    """Delete the file of a stored value. Harmless when it is gone."""
    filesystem, path = fsspec.core.url_to_fs(uri)
    if filesystem.exists(path):
        filesystem.rm_file(path)


def as_json(value: Any) -> bytes | None:
    """Return UTF-8 JSON when it restores exactly this value, with exactly these types; else None."""
    level, depth, parts = [value], 0, 0
    while level:
        depth += 1
        deeper: list[Any] = []
        for part in level:
            kind = type(part)
            if kind is dict:
                if any(type(key) is not str for key in part):
                    return None
                deeper.extend(part.values())
            elif kind is list:
                deeper.extend(part)
            elif not (
                part is None
                or kind is bool
                or kind is str
                or (kind is int and -_INT_BOUND <= part < _INT_BOUND)
                or (kind is float and math.isfinite(part))
            ):
                return None
            if len(deeper) > JSON_PARTS_MAX:
                return None
        parts += len(deeper)
        if parts > JSON_PARTS_MAX or depth > JSON_DEPTH_MAX:
            return None
        level = deeper
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # A lone surrogate, which UTF-8 cannot encode.
        return None


def _pickle_into(sink: _Sink, value: Any, node: NodeId) -> None:
    try:
        _Pickler(sink, protocol=5).dump(value)
    except ValueUnwritable:
        raise
    except Exception as refused:
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        raise ValueUnwritable(
            Reason.RESULT_UNSERIALIZABLE,
            f"the value of {node} ({kind}) can be written neither as JSON nor as a pickle: {_described(refused)}",
        ) from refused


def _read_file(stored: StoredValue, uri: str) -> bytearray:
    digest, filled = hashlib.sha256(), 0
    data = bytearray(stored.size_bytes)
    view = memoryview(data)
    try:
        with fsspec.open(uri, "rb") as file:
            while filled < stored.size_bytes:
                chunk = file.read(min(_CHUNK_BYTES, stored.size_bytes - filled))
                if not chunk:
                    break
                view[filled : filled + len(chunk)] = chunk
                filled += len(chunk)
                digest.update(chunk)
            rest = file.read(1)
    except FileNotFoundError as gone:
        raise ValueUnreadable(Reason.VALUE_LOST, f"{uri} is gone: {_described(gone)}") from gone
    except Exception as away:  # Object stores raise errors of their own.
        raise StorageAway(Reason.VALUE_LOST, f"{uri} cannot be read: {_described(away)}") from away
    if filled < stored.size_bytes or rest or digest.hexdigest() != stored.sha256:
        raise ValueUnreadable(Reason.VALUE_LOST, f"{uri} is corrupt: its size or hash is not that of the value written")
    return data


class _Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]  # cloudpickle has no types
    """Refuses references into a Ray cluster: elsewhere they mean nothing, and a read would fail far from the cause."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, (ray.ObjectRef, ray.ObjectRefGenerator, ray.actor.ActorHandle)):
            raise TypeError(f"it holds a {type(obj).__name__}, which means nothing outside of this Ray cluster")
        return super().reducer_override(obj)


class _Sink:
    """Takes bytes, hashes them, and moves from memory to a file when they exceed the inline limit."""

    def __init__(self, run: RunId, node: NodeId, storage_url: str, inline_limit_bytes: int) -> None:
        self._folder = f"{storage_url.rstrip('/')}/{_file_name(run)}"
        self._name = _file_name(node)
        self._limit = inline_limit_bytes
        self._small = io.BytesIO()
        self._digest = hashlib.sha256()
        self._size = 0
        self._file: Any = None  # fsspec's file objects share no type.
        self._filesystem: Any = None
        self._part = ""

    def write(self, data: Any) -> int:
        """Add one piece, of any type with a buffer (the pickler passes large buffers without a copy)."""
        # `raw` flattens arrays of any order; the other buffers are flat already.
        view = data.raw() if isinstance(data, pickle.PickleBuffer) else memoryview(data)
        self._digest.update(view)
        self._size += len(view)
        if self._file is None and self._size <= self._limit:
            self._small.write(view)
        else:
            self._write_out(view)
        return len(view)

    def commit(self, encoding: Encoding) -> tuple[StoredValue, bytes | None]:
        """Give the file its final name, or return the bytes."""
        sha256 = self._digest.hexdigest()
        if self._file is None:
            return StoredValue(sha256=sha256, size_bytes=self._size, encoding=encoding), self._small.getvalue()
        uri = f"{self._folder}/{self._name}-{sha256[:16]}"
        try:
            self._file.close()
            _, final = fsspec.core.url_to_fs(uri)
            self._filesystem.mv(self._part, final)
        except Exception as refused:
            raise ValueUnwritable(Reason.VALUE_LOST, f"{uri} cannot be written: {_described(refused)}") from refused
        self._file = None
        return StoredValue(sha256=sha256, size_bytes=self._size, encoding=encoding, uri=uri), None

    def discard(self) -> None:
        """Remove the unfinished file."""
        if self._file is None:
            return
        try:
            self._file.close()
            self._filesystem.rm_file(self._part)
        except OSError:
            pass  # The error that led here says more than this one.
        self._file = None

    def _write_out(self, view: Any) -> None:
        try:
            if self._file is None:
                self._filesystem, folder = fsspec.core.url_to_fs(self._folder)
                self._filesystem.makedirs(folder, exist_ok=True)
                self._part = f"{folder}/.{uuid.uuid4().hex}.part"
                self._file = self._filesystem.open(self._part, "wb")
                self._file.write(self._small.getbuffer())
            self._file.write(view)
        except Exception as refused:
            raise ValueUnwritable(Reason.VALUE_LOST, f"{self._folder} cannot be written: {_described(refused)}") from refused


def _file_name(name: str) -> str:
    """Return a file name that every file system accepts, differs for different names, and cannot leave its folder."""
    # `=` in place of `%`: some file systems of fsspec decode percent signs.
    safe = quote(name, safe="").replace("%", "=").replace(".", "=2E")
    if len(safe) > _NAME_CHARS_MAX:
        safe = f"{safe[: _NAME_CHARS_MAX - 17]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    return safe


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
