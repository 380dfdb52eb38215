"""Small values of finished nodes, kept by the host so that they outlive the runner that holds them.

Ray drops the values of a runner with it. The next runner of the tenant continues under the same holder and inherits these values. A value
that was too large is computed again when it is needed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from mesh.core.ids import NodeId, RunId
from mesh.core.values import Encoding, StoredValue
from mesh.ray.stage_runner.outbox import Finished
from mesh.stages.hosting import Delivered

#: Most bytes that are kept of one runner.
BYTES_MAX = 64 * 2**20

_Value = bytes | tuple[StoredValue, bytes | None] | None  #: A pickle; a stored value with its bytes when these are small; None: not kept.


class KeptValues:
    """Values by run and node.

    Args:
        bytes_max: See `BYTES_MAX`.
        half_known: Runs of which earlier nodes may have finished unnoticed: an earlier process of the mesh began them.
    """

    def __init__(self, bytes_max: int = BYTES_MAX, *, half_known: Iterable[RunId] = ()) -> None:
        self._half_known = set(half_known)
        self._left = bytes_max
        self._values: dict[RunId, dict[NodeId, _Value]] = {}

    @property
    def is_whole(self) -> bool:
        """Whether every finished node of the present runs is known."""
        return not self._half_known

    def keep(self, finished: Iterable[Finished], blobs: Mapping[str, bytes]) -> None:
        """Keep the values of nodes that have finished, and drop those that were lost since: these come without a value.

        Args:
            blobs: Bytes of small stored values, by SHA-256.
        """
        for run, node, kept in finished:
            values = self._values.setdefault(run, {})
            self._left += _size(values.pop(node, None))
            value: _Value = (kept, blobs.get(kept.sha256)) if isinstance(kept, StoredValue) else kept
            if _size(value) <= self._left:
                self._left -= _size(value)
            else:
                value = None
            values[node] = value

    def inheritance(self) -> dict[RunId, dict[NodeId, Delivered]]:
        """Return all values for the next runner; None: the value is gone."""
        return {run: {node: _delivered(value) for node, value in values.items()} for run, values in self._values.items()}

    def forget(self, run: RunId) -> None:
        """Drop the values of a run that will not be read any more."""
        self._half_known.discard(run)
        self._left += sum(map(_size, self._values.pop(run, {}).values()))


def _size(value: _Value) -> int:
    return len((value[1] if isinstance(value, tuple) else value) or b"")


def _delivered(value: _Value) -> Delivered:
    if value is None or isinstance(value, tuple):
        return value
    sha256 = hashlib.sha256(value).hexdigest()
    return StoredValue(sha256=sha256, size_bytes=len(value), encoding=Encoding.PICKLE), value
