"""Faults of Ray workers under a mesh, on real Ray: row 50 of the fault plan."""

from __future__ import annotations

import signal

import psutil
import pytest
from faults.ray_mesh import RAY_PATIENCE_S, RayMesh
from faults.table import Row
from patience import eventually

from mesh.core.reasons import Reason

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.ray]


def test_fault_50_workers_and_the_keeper_of_groups_are_ended(ray_mesh: RayMesh, row: Row) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        (worker,) = running(ray_mesh, f"worker-{number.name}")
        worker.send_signal(number)
        assert ray_mesh.failures_of(f"worker-{number.name}") == [Reason.WORKER_LOST]
    for turn, max_retries in enumerate((0, 0, 3)):  # A retried Ray task waits for ever in a removed group.
        running(ray_mesh, f"keeper-{turn}", max_retries=max_retries)
        (keeper,) = eventually(lambda: ray_mesh.workers("ray::Keeper"), RAY_PATIENCE_S)
        keeper.kill()
        assert ray_mesh.failures_of(f"keeper-{turn}") == [Reason.WORKER_LOST]
        # Until the mesh has noticed the death, it loses each further stage before that begins.
        eventually(lambda dead=keeper.pid: {each.pid for each in ray_mesh.workers("ray::Keeper")} - {dead}, RAY_PATIENCE_S)
    ray_mesh.submit("after", seconds=0)
    assert ray_mesh.failures_of("after") == []
    row.held("WORKER_LOST each time, and never an error of the user's; another keeper made the next group")


def running(ray_mesh: RayMesh, stage: str, max_retries: int = 0) -> list[psutil.Process]:
    """Return the stage's worker once it runs."""
    ray_mesh.submit(stage, max_retries=max_retries)
    eventually(lambda: ray_mesh.runs(stage), RAY_PATIENCE_S)
    return eventually(ray_mesh.workers, RAY_PATIENCE_S)
