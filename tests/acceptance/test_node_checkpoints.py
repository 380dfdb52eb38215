"""Checkpoints of nodes over two real Ray clusters: a preempted or lost node goes on from its last one, wherever it runs next."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from federation_bed import LIMIT_S, eventually, submit, wait_for

import dag
from dag.store.remote import Client, Run
from mesh.core.reasons import Reason
from serve_apps.schemas.nodes import NodesView
from serve_apps.standalone.stack import Stack

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("nothing_left")]

OWNER = "shared/owner"
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


def hold(folder: str) -> str:
    Path(folder, "held").touch()
    while not Path(folder, "go").exists():
        time.sleep(0.01)
    return "held"


@pytest.mark.parametrize("size", [0, 50_000], ids=["in the control store", "in a file"])
def test_s41_a_preempted_node_goes_on_on_another_cluster(sharers: Client, tmp_path: Path, size: int) -> None:
    run = submit(sharers, dag.bind(count, str(tmp_path), size), tenant=OWNER)
    first = wait_for(run, lambda event: event.kind == "stage" and event.after == "RUNNING")
    half_done(sharers, run)
    urgent = submit(sharers, dag.task(hold, labels={"zone": str(first.mesh)}, num_cpus=2, priority=9).bind(str(tmp_path)), tenant=OWNER)
    eventually(lambda: _assert_exists(tmp_path / "held"))
    eventually(lambda: _assert_exists(tmp_path / "pid-2"))
    (tmp_path / "go").touch()
    began, clusters = run.result(LIMIT_S)
    assert urgent.result(LIMIT_S) == "held"
    assert began == HALF
    assert len(clusters) == len(set(clusters)) == 2
    reasons = [event.reason for event in run.events() if event.kind == "stage" and event.after == "STOPPED"]
    assert reasons == [Reason.PREEMPTED_WITHIN_TENANT]


def _assert_exists(path: Path) -> None:
    assert path.exists()


def test_s41_a_node_goes_on_after_its_mesh_and_worker_died(stack: Stack, client: Client, tmp_path: Path) -> None:
    run = submit(client, dag.bind(count, str(tmp_path)))
    half_done(client, run)
    mesh = wait_for(run, lambda event: event.kind == "stage" and event.after == "RUNNING").mesh
    before = stack.children[str(mesh)].pid
    os.kill(before, signal.SIGKILL)
    eventually(lambda: _assert_recovered(stack, str(mesh), before))
    os.kill(int((tmp_path / "pid-1").read_text()), signal.SIGKILL)
    (tmp_path / "go").touch()
    assert run.result(LIMIT_S)[0] == HALF
    ends = [event.attempt for event in run.events() if event.kind == "node" and event.after == "SUCCEEDED"]
    assert ends == [2]


def _assert_recovered(stack: Stack, mesh: str, before: int) -> None:
    assert stack.children[mesh].pid != before


def test_s41_a_node_of_a_killed_cluster_goes_on(stack: Stack, client: Client, tmp_path: Path) -> None:
    run = submit(client, dag.task(count, labels={"zone": "west"}).bind(str(tmp_path)))
    half_done(client, run)
    stack.clusters["second"].kill()
    (tmp_path / "go").touch()
    assert run.result(LIMIT_S)[0] == HALF
