"""Functions of a stage that workers could not load, and which of them no worker can load. Pure.

One failure says little: the worker may be sick, or its node may lack a file. So a worker that cannot load a function is replaced, and
another one tries the same tasks. A function counts as unloadable when two workers at two places could not load it, or two workers at the
only place. Where a worker has loaded it, every open place must have failed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from mesh.core.ids import NodeId

#: Different workers that must have failed before anybody blames the function.
WORKERS_MIN = 2


@dataclass(slots=True)
class _Failed:
    task: NodeId  #: The task that failed first.
    workers: set[str] = field(default_factory=set)
    places: set[str] = field(default_factory=set)


class LoadFailures:
    """Failed loads of one stage. A place is a node of Ray, or a group of slots whose node is unknown."""

    def __init__(self) -> None:
        self._failed: dict[str, _Failed] = {}
        self._loaded: set[str] = set()

    def note_failure(self, function: str, task: NodeId, worker: str, place: str) -> None:
        """Record that the worker could not load the function. Harmless to repeat."""
        failed = self._failed.setdefault(function, _Failed(task))
        failed.workers.add(worker)
        failed.places.add(place)

    def note_loaded(self, function: str) -> None:
        """Record that a worker has run the function."""
        self._loaded.add(function)

    def shown_by(self, function: str, places: Collection[str]) -> NodeId | None:
        """Return the task that has shown that the function cannot be loaded; None: a worker may still load it.

        Args:
            places: Places at which workers of the stage may run now.
        """
        failed = self._failed.get(function)
        if failed is None or len(failed.workers) < WORKERS_MIN:
            return None
        is_everywhere = bool(places) and failed.places.issuperset(places)  # Without any, slots may still come somewhere else.
        is_shown = is_everywhere or (function not in self._loaded and len(failed.places) > 1)
        return failed.task if is_shown else None

    def avoided(self, function: str) -> Collection[str]:
        """Return the places where the function is not tried any more as long as there is another one."""
        failed = self._failed.get(function)
        return () if failed is None or len(failed.workers) < WORKERS_MIN else failed.places
