"""Pages of workers: what a dead worker ran, and the request to stop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mesh.core.ids import MeshId
from mesh.ray.stage_runner.worker_pages import WorkerPages
from mesh.ray.worker import page
from mesh.ray.worker.chunk_calls import WorkerSite


def site_of(path: Path) -> WorkerSite:
    return WorkerSite("node", 1, str(path))


def test_page_tells_what_ran_once(tmp_path):
    kept = page.WorkerPage(tmp_path / "p")
    kept.begin(7)
    assert page.culprit(kept.path) == (7, page.NO_TASK)
    kept = page.WorkerPage(tmp_path / "p")
    kept.begin(8)
    kept.run(3)
    assert WorkerPages().culprit(site_of(kept.path)) == (8, 3)
    assert page.culprit(kept.path) is None


def test_worker_sees_which_chunk_is_to_stop(tmp_path):
    kept = page.WorkerPage(tmp_path)
    assert kept.stop == 0
    WorkerPages().ask_to_stop(site_of(kept.path), 5)
    assert kept.stop == 5


def test_page_of_another_machine_is_read_by_its_guard(tmp_path):
    asked: list[Any] = []

    def guard_of(*name: str) -> Any:
        asked.append(name)
        raise LookupError("there is no guard")

    pages = WorkerPages(guard_of)
    pages.bind(MeshId("m"))
    assert pages.culprit(site_of(tmp_path / "away")) is None
    assert asked == [("m", "node")]
