"""Values of runs that a runner holds (results and imports), those that it inherits, and those that Ray has lost.

Also what tasks have read of lists that were not complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from mesh.core.ids import NodeId, RunId
from mesh.stages.arrays import Span
from mesh.stages.hosting import Delivered

_NONE: Mapping[NodeId, Any] = MappingProxyType({})


class RunValues:
    """References to values, by run and node; `forget` drops those of a run."""

    def __init__(self) -> None:
        self._held: dict[RunId, dict[NodeId, Any]] = {}
        self._lost: dict[RunId, set[NodeId]] = {}
        self._inherited: dict[RunId, dict[NodeId, Delivered]] = {}
        self._read: dict[RunId, dict[NodeId, dict[Span, bytes]]] = {}  #: By the node that makes the list.

    def of(self, run: RunId) -> Mapping[NodeId, Any]:
        """Return references to the held values of the run."""
        return self._held.get(run, _NONE)

    def has_lost(self, run: RunId, node: NodeId) -> bool:
        """Return whether the value was held, and is lost."""
        return node in self._lost.get(run, ())

    def hold(self, run: RunId, values: Mapping[NodeId, Any]) -> None:
        """Keep the values of nodes."""
        self._held.setdefault(run, {}).update(values)
        lost, inherited = self._lost.get(run), self._inherited.get(run)
        for node in values if lost or inherited else ():
            if lost:
                lost.discard(node)
            if inherited:
                inherited.pop(node, None)

    def inherit(self, run: RunId, values: Mapping[NodeId, Delivered]) -> None:
        """Take over values of a dead runner, to be imported when a stage needs them; None: the value is lost."""
        self._inherited.setdefault(run, {}).update({node: value for node, value in values.items() if value is not None})
        self._lost.setdefault(run, set()).update(node for node, value in values.items() if value is None)

    def inherited(self, run: RunId, node: NodeId) -> Delivered:
        """Return the value of a dead runner; None: there is none, or it was imported or lost since."""
        return self._inherited.get(run, {}).get(node)

    def lose(self, run: RunId, node: NodeId) -> None:
        """Record that a held value is lost."""
        del self._held[run][node]
        self._lost.setdefault(run, set()).add(node)

    def note_read(self, run: RunId, read: Iterable[tuple[NodeId, Span, bytes]]) -> None:
        """Keep the digests of elements that tasks have read before their list was complete. A later attempt has to make the same ones."""
        for source, span, digest in read:
            self._read.setdefault(run, {}).setdefault(source, {})[span] = digest

    def read_of(self, run: RunId, source: NodeId) -> tuple[tuple[Span, bytes], ...]:
        """Return the elements of a list that were read before it was complete, with their digests."""
        return tuple(self._read.get(run, {}).get(source, {}).items())

    def forget(self, run: RunId) -> None:
        """Drop the values of a run that will not be read any more."""
        self._held.pop(run, None)
        self._lost.pop(run, None)
        self._inherited.pop(run, None)
        self._read.pop(run, None)
