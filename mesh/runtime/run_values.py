"""The values of runs that a runner holds: what succeeded in it or was brought in, and what of that Ray has lost."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from mesh.ids import NodeId, RunId

_NONE: Mapping[NodeId, Any] = MappingProxyType({})


class RunValues:
    """References to values, by run and node; a run's go when it is forgotten."""

    def __init__(self) -> None:
        self._held: dict[RunId, dict[NodeId, Any]] = {}
        self._lost: dict[RunId, set[NodeId]] = {}

    def of(self, run: RunId) -> Mapping[NodeId, Any]:
        """References to the run's values that are held."""
        return self._held.get(run, _NONE)

    def has_lost(self, run: RunId, node: NodeId) -> bool:
        """Whether the value was held, and is gone."""
        return node in self._lost.get(run, ())

    def hold(self, run: RunId, node: NodeId, value: Any) -> None:
        """Keep a value."""
        self._held.setdefault(run, {})[node] = value
        self._lost.get(run, set()).discard(node)

    def lose(self, run: RunId, node: NodeId) -> None:
        """A value that is held is gone."""
        del self._held[run][node]
        self._lost.setdefault(run, set()).add(node)

    def forget(self, run: RunId) -> None:
        """Nobody will read the run's values any more."""
        self._held.pop(run, None)
        self._lost.pop(run, None)
