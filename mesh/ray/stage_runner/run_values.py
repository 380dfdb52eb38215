"""Values of runs that a runner holds (results and imports), and those of them that Ray has lost."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from mesh.core.ids import NodeId, RunId

_NONE: Mapping[NodeId, Any] = MappingProxyType({})


class RunValues:
    """References to values, by run and node; `forget` drops those of a run."""

    def __init__(self) -> None:
        self._held: dict[RunId, dict[NodeId, Any]] = {}
        self._lost: dict[RunId, set[NodeId]] = {}

    def of(self, run: RunId) -> Mapping[NodeId, Any]:
        """Return references to the held values of the run."""
        return self._held.get(run, _NONE)

    def has_lost(self, run: RunId, node: NodeId) -> bool:
        """Return whether the value was held, and is lost."""
        return node in self._lost.get(run, ())

    def hold(self, run: RunId, node: NodeId, value: Any) -> None:
        self._held.setdefault(run, {})[node] = value
        self._lost.get(run, set()).discard(node)

    def lose(self, run: RunId, node: NodeId) -> None:
        """Record that a held value is lost."""
        del self._held[run][node]
        self._lost.setdefault(run, set()).add(node)

    def forget(self, run: RunId) -> None:
        """Drop the values of a run that will not be read any more."""
        self._held.pop(run, None)
        self._lost.pop(run, None)
