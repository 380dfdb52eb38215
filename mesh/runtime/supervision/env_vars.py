"""Environment variables that are set for a while."""

from __future__ import annotations

import os
from collections.abc import Mapping


class EnvVars:
    """Sets environment variables, and restores them later."""

    def __init__(self, wanted: Mapping[str, str]) -> None:
        self._before = {name: os.environ.get(name) for name in wanted}
        os.environ.update(wanted)

    def take_back(self) -> None:
        """Restore the variables as they were before."""
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
