"""Large arguments of a call on many agents, stored once instead of once for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray

from mesh.actors.weighing import is_large


class SharedArguments:
    """What one collective call has stored. The same object, however often it is an argument, is pickled once."""

    def __init__(self) -> None:
        self._stored: dict[int, tuple[Any, Any]] = {}  # By identity; the object is kept, so that its id stays its own.

    def of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with a reference in the place of each large one."""
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
