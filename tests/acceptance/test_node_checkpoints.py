"""Checkpoints of nodes over two real Ray clusters, one joined over HTTP: a preempted or lost node goes on where it runs next."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from pathlib import Path

import pytest
from federation_bed import LIMIT_S, eventually, submit
from http_federation import HttpFederation

import dag
from dag.store.remote import Client, Run
from mesh.core.reasons import Reason
from serve_apps.schemas.nodes import NodesView

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("nothing_left_over_http")]

#: Labels of `west`, on the root's cluster, and of `lab`, which has joined over HTTP.
EITHER = {"either": "yes"}
GOAL, HALF = 6, 3


def count(folder: str, size: int = 0) -> list[object]:
    """Count to `GOAL`, the second half only once a file allows it. Return where this attempt began, and all clusters that counted."""
    import ray

    import mesh

    task = mesh.current_task()
    Path(folder, f"pid-{task.attempt}").write_text(str(os.getpid()))
    first, clusters, _ = task.last_checkpoint() or (0, [], b"")
    clusters = [*clusters, str(ray.get_runtime_context().gcs_address)]
    for number in range(first, GOAL):
        while number >= HALF and not Path(folder, "go").exists():
            task.stop_if_asked()
            time.sleep(0.01)
        task.report_progress(number + 1, of=GOAL)
        task.save_checkpoint((number + 1, clusters, os.urandom(size)))
    return [first, clusters]


def half_done(client: Client, run: Run) -> None:
    """Wait until the root has the checkpoint and the progress of the first half."""

    def look() -> None:
        (node,) = NodesView.model_validate(client.ask(f"{run.path}/nodes")).nodes
        assert (node.progress, node.state) == (HALF / GOAL, "RUNNING")
        assert node.checkpoint is not None

    eventually(look)


def hold(folder: str, name: str) -> str:
    Path(folder, name).touch()
    while not Path(folder, f"{name}.go").exists():
        time.sleep(0.01)
    return name


def counting_on_lab(operator: Client, client: Client, folder: Path, size: int = 0) -> Run:
    """Return a run whose node has counted the first half on `lab`, and may go on there or on `west`."""
    operator.post("/v1/meshes/west/drain", {"reason": "the run is to begin elsewhere"})
    run = submit(client, dag.task(count, labels=EITHER).bind(str(folder), size))
    half_done(client, run)
    operator.post("/v1/meshes/west/undrain", {})
    return run


def places_of(run: Run) -> list[str]:
    """Return the meshes of the node of an ended run, in order. It may have waited on one for a while before another one took it."""
    meshes = [str(event.mesh) for event in run.events() if event.kind == "node" and event.after == "ASSIGNED"]
    return [mesh for mesh, _ in itertools.groupby(meshes)]


def _assert_exists(path: Path) -> None:
    assert path.exists()


def _assert_began_again(folder: Path, client: Client, run: Run) -> None:
    """Say what became of the node where no later attempt began."""
    assert {path.name for path in folder.glob("pid-*")} > {"pid-1"}, client.ask(f"{run.path}/nodes")


@pytest.mark.parametrize("size", [0, 50_000], ids=["in the control store", "in a file"])
def test_s41_a_preempted_node_goes_on_on_another_cluster(http_operator: Client, http_client: Client, tmp_path: Path, size: int) -> None:
    run = counting_on_lab(http_operator, http_client, tmp_path, size)
    urgent = submit(http_client, dag.task(hold, labels={"zone": "lab"}, num_cpus=2, priority=9).bind(str(tmp_path), "urgent"))
    eventually(lambda: _assert_exists(tmp_path / "urgent"))
    eventually(lambda: _assert_began_again(tmp_path, http_client, run))
    for name in ("go", "urgent.go"):
        (tmp_path / name).touch()
    began, clusters = run.result(LIMIT_S)
    assert urgent.result(LIMIT_S) == "urgent"
    assert began == HALF
    assert len(clusters) == len(set(clusters)) == 2
    assert places_of(run) == ["lab", "west"]
    reasons = [event.reason for event in run.events() if event.kind == "stage" and event.after == "STOPPED"]
    assert reasons[0] == Reason.PREEMPTED_WITHIN_TENANT


def test_s41_a_node_goes_on_after_its_mesh_and_worker_died(http_federation: HttpFederation, http_client: Client, tmp_path: Path) -> None:
    run = submit(http_client, dag.task(count, labels={"zone": "lab"}).bind(str(tmp_path)))
    half_done(http_client, run)
    http_federation.lab.kill()
    http_federation.lab.start()
    with contextlib.suppress(ProcessLookupError):  # On a busy machine the mesh is back too late, and the watchdog has ended the work.
        os.kill(int((tmp_path / "pid-1").read_text()), signal.SIGKILL)
    (tmp_path / "go").touch()
    assert run.result(LIMIT_S)[0] == HALF
    ends = [event.attempt for event in run.events() if event.kind == "node" and event.after == "SUCCEEDED"]
    assert ends == [2]


# The last one: the cluster stays dead.
def test_s41_a_node_of_a_killed_cluster_goes_on(
    http_federation: HttpFederation, http_operator: Client, http_client: Client, tmp_path: Path
) -> None:
    run = counting_on_lab(http_operator, http_client, tmp_path)
    http_federation.lab.cluster.kill()
    (tmp_path / "go").touch()
    began, clusters = run.result(LIMIT_S)
    http_federation.lab.kill()
    assert began == HALF
    assert len(set(clusters)) == 2
    assert places_of(run) == ["lab", "west"]
