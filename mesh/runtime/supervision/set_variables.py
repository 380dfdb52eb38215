"""Environment variables that are set for a while."""

from __future__ import annotations

import os
from collections.abc import Mapping


class SetVariables:
    """Sets them, and remembers what they were before."""

    def __init__(self, wanted: Mapping[str, str]) -> None:
        self._before = {name: os.environ.get(name) for name in wanted}
        os.environ.update(wanted)

    def take_back(self) -> None:
        """As it was before."""
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
