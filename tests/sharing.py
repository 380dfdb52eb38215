"""What is expensive to start and serves several files of tests: started for the first of them, ended after the last one in a row."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

#: Files that share something, and the fixture that hands it out: one process runs them one after the other.
SHARED = {
    "tests/acceptance/test_reparenting.py": "federation",
    "tests/acceptance/test_reclaim.py": "federation",
    "tests/acceptance/test_two_clusters.py": "federation",
    "tests/integration/test_facade.py": "two_nodes",
    "tests/integration/test_jobs_on_ray.py": "two_nodes",
    "tests/integration/test_mesh_docs.py": "two_nodes",
    "tests/integration/test_mesh_observed.py": "two_nodes",
    "tests/integration/test_supervisor.py": "two_nodes",
    "tests/integration/test_supervisor_recovery.py": "two_nodes",
}


class Sharing:
    """What is open now, each under the name of the fixture that hands it out."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[str, Any, ExitStack]] = {}

    def get(self, fixture: str, kind: str, start: Callable[[], AbstractContextManager[T]]) -> T:
        """What the fixture has open; started when there is none of this kind, after the end of one of another kind."""
        if fixture not in self._open or self._open[fixture][0] != kind:
            self.close(fixture)
            opened = ExitStack()
            self._open[fixture] = (kind, opened.enter_context(start()), opened)
        found: T = self._open[fixture][1]
        return found

    def close(self, fixture: str) -> None:
        """End what the fixture has open."""
        if fixture in self._open:
            self._open.pop(fixture)[2].close()

    def close_unused(self, item: pytest.Item | None, next_item: pytest.Item | None) -> None:
        """End what the file of the next test does not share: what idles beside other tests costs them more than its start costs."""
        file, next_file = (each.nodeid.partition("::")[0] if each is not None else "" for each in (item, next_item))
        if next_file and next_file == file:
            return
        for fixture in [name for name in self._open if name != SHARED.get(next_file)]:
            self.close(fixture)


SHARING = Sharing()
