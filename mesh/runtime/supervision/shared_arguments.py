"""Large arguments of a call on many agents, stored once instead of once per agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray

from mesh.actors.weighing import is_large


class SharedArguments:
    """Stored arguments of one collective call. An object is pickled once, however often it is an argument."""

    def __init__(self) -> None:
        self._stored: dict[int, tuple[Any, Any]] = {}  # By identity; holding the object keeps its id unique.

    def of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with a reference in place of each large one."""
        return tuple(self._shared(value) for value in args), {name: self._shared(value) for name, value in kwargs.items()}

    def _shared(self, value: Any) -> Any:
        found = self._stored.get(id(value))
        if found is not None:
            return found[1]
        if isinstance(value, ray.ObjectRef) or not is_large(value):
            return value
        reference = ray.put(value)
        self._stored[id(value)] = (value, reference)
        return reference
