"""Nodes of a cluster as a look at Ray finds them, and their use by others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mesh.core.ids import NodeName
from mesh.core.resources import NOTHING, ResourceSet

#: Ray's resource for object storage, which no work holds.
_OBJECT_STORE = "object_store_memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSeen:
    """A node as Ray has it."""

    node: NodeName
    total: ResourceSet
    labels: Mapping[str, str]
    available: ResourceSet  #: Available amounts, as Ray counts them.
    host: str = ""

    def used_beside(self, ours: ResourceSet) -> ResourceSet:
        """Return what is in use on the node beside `ours`."""
        used = {name: self.total[name] - self.available[name] - ours[name] for name in self.total if name != _OBJECT_STORE}
        return ResourceSet({name: units for name, units in used.items() if units > 0})


class ForeignUse:
    """Use of each node by others than this mesh, as two looks in a row agree on it.

    Ray's available amounts lag by some milliseconds, and a process of this mesh that starts or ends meanwhile would count as foreign.
    """

    def __init__(self) -> None:
        self._agreed: dict[NodeName, ResourceSet] = {}
        self._suspected: dict[NodeName, ResourceSet] = {}

    def know(self, node: NodeName, amounts: ResourceSet) -> None:
        """Record the use that was agreed on before."""
        if amounts:
            self._agreed[node] = amounts

    def forget(self, node: NodeName) -> None:
        """Forget a node that has left."""
        self._agreed.pop(node, None)
        self._suspected.pop(node, None)

    def change(self, node: NodeName, seen: ResourceSet) -> ResourceSet | None:
        """Record a look. Return the use if it has changed and the look before agrees; None: it stays as it was."""
        if seen == self._agreed.get(node, NOTHING):
            self._suspected.pop(node, None)
            return None
        if self._suspected.get(node) != seen:
            self._suspected[node] = seen
            return None
        del self._suspected[node]
        self._agreed[node] = seen
        return seen
