"""Start of a cluster: slow and dead nodes are restarted, and their logs reported and kept. Nodes are scripts."""

from __future__ import annotations

import shutil
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from patience import gone

from mesh.errors import RuntimeAdapterError
from mesh.ray.cluster import node_start, own_cluster
from mesh.ray.cluster.cluster_spec import ClusterNodeSpec, ClusterSpec
from mesh.ray.cluster.node_start import NodeTooSlow, NotWanted
from mesh.ray.cluster.own_cluster import STARTS_MAX, OwnCluster

SPEC = ClusterSpec(nodes=(ClusterNodeSpec(cpu=1),), object_store_bytes=80 * 2**20)
TWO_NODES = ClusterSpec(nodes=(ClusterNodeSpec(cpu=1), ClusterNodeSpec(cpu=1)), object_store_bytes=80 * 2**20)
#: Fails as a raylet does for so many tries; then it is up. Arguments: the folder, a file of tries, the number of failures, the output.
NODE = textwrap.dedent("""
    import pathlib, sys, time
    folder, tries, failing, why = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    tries.write_text(tries.read_text() + "x" if tries.exists() else "x")
    if len(tries.read_text()) <= failing:
        print("click's long stack", flush=True)  # Before its last word: a look at that may be the end of all.
        (folder / "session_latest/logs").mkdir(parents=True)
        (folder / "session_latest/logs/raylet.out").write_text("[C] node_manager.cc: Check failed: " + why)
        sys.exit(1)
    (folder / "session_latest/sockets").mkdir(parents=True, exist_ok=True)
    (folder / f"session_latest/sockets/raylet.{len(tries.read_text())}").touch()
    print("Ray runtime started", flush=True)
    time.sleep(600)
""")
#: A number that Linux gives to no process.
NOBODY = 2**22 + 1
TOO_SLOW = "Timed out waiting for file dashboard_agent_listen_port_0a"


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int, str], Path]:
    """Make nodes that fail so many times with this output; return the file that counts their tries."""

    def make(failing: int, why: str) -> Path:
        tries = tmp_path / "tries"
        monkeypatch.setattr(
            node_start,
            "_command",
            lambda _spec, _index, _ports, _address, folder: [sys.executable, "-c", NODE, folder, tries, str(failing), why],
        )
        return tries

    return make


@pytest.mark.parametrize("failing", [1, STARTS_MAX - 1], ids=["once", "every time but the last"])
def test_a_node_that_was_too_slow_is_started_again(nodes: Callable[[int, str], Path], failing: int) -> None:
    tries = nodes(failing, TOO_SLOW)
    started = OwnCluster.start(SPEC)
    try:
        assert started.alive()
        assert tries.read_text() == "x" * (failing + 1)
    finally:
        started.kill()


def test_a_start_too_slow_every_time_is_reported_and_keeps_logs(nodes: Callable[[int, str], Path], tmp_path: Path) -> None:
    tries = nodes(9, TOO_SLOW)
    with pytest.raises(NodeTooSlow, match="this machine is overloaded") as raised:
        OwnCluster.start(SPEC, logs_kept_in=tmp_path / "kept")
    assert tries.read_text() == "x" * STARTS_MAX
    assert TOO_SLOW in str(raised.value)
    assert "click's long stack" not in str(raised.value)
    assert "click's long stack" in (tmp_path / "kept" / "node-0.log").read_text()
    assert (tmp_path / "kept" / "ray" / "raylet.out").exists()


def test_an_aborted_start_leaves_nothing(nodes: Callable[[int, str], Path], tmp_path: Path) -> None:
    nodes(0, "")
    parent = Path(tempfile.mkdtemp(prefix="nw"))
    try:
        with pytest.raises(NotWanted):
            OwnCluster.start(SPEC, temp_dir_parent=parent, is_wanted=lambda: not any(parent.iterdir()), logs_kept_in=tmp_path / "kept")
        assert (list(parent.iterdir()), (tmp_path / "kept").exists()) == ([], False)
    finally:
        shutil.rmtree(parent)


def test_an_aborted_slow_start_is_not_retried(nodes: Callable[[int, str], Path]) -> None:
    tries = nodes(9, TOO_SLOW)
    with pytest.raises((NodeTooSlow, NotWanted)):
        OwnCluster.start(SPEC, is_wanted=lambda: not tries.exists())
    assert tries.read_text() == "x"


def test_one_that_ends_for_another_reason_is_not_tried_again(nodes: Callable[[int, str], Path]) -> None:
    tries = nodes(9, "no such store")
    with pytest.raises(RuntimeAdapterError, match="Ray says: Check failed: no such store"):
        OwnCluster.start(SPEC)
    assert tries.read_text() == "x"


def test_killed_processes_are_awaited_on_a_busy_machine(nodes: Callable[[int, str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    nodes(0, "")
    started = OwnCluster.start(SPEC)
    look, still_there, passed_s = own_cluster.processes_of, iter([{NOBODY}] * 3), iter([0.0, 10.0, 20.0])
    with monkeypatch.context() as busy:
        busy.setattr(own_cluster, "processes_of", lambda *asked: look(*asked) | next(still_there, set()))
        busy.setattr(own_cluster, "time", SimpleNamespace(monotonic=lambda: next(passed_s, 30.0), sleep=time.sleep))
        started.kill()
    assert next(still_there, None) is None
    assert not started.folder.exists()


@pytest.fixture
def two_nodes(nodes: Callable[[int, str], Path]) -> Iterator[OwnCluster]:
    nodes(0, "")
    started = OwnCluster.start(TWO_NODES)
    yield started
    started.kill()


def end(process: psutil.Process) -> None:
    process.kill()
    gone(lambda: process.is_running() and process.status() != psutil.STATUS_ZOMBIE)


def test_a_worker_node_that_died_is_started_again_by_itself(two_nodes: OwnCluster) -> None:
    head, worker = two_nodes.pids
    end(psutil.Process(worker))
    assert (two_nodes.alive(), two_nodes.dead_workers()) == (True, (1,))
    two_nodes.restart_worker(1)
    assert (two_nodes.alive(), two_nodes.dead_workers(), two_nodes.pids[0]) == (True, (), head)
    assert two_nodes.pids[1] != worker


def test_a_cluster_whose_head_died_is_dead(two_nodes: OwnCluster) -> None:
    end(psutil.Process(two_nodes.pids[0]))
    assert (two_nodes.alive(), two_nodes.dead_workers()) == (False, ())


def test_a_worker_node_that_does_not_come_up_leaves_nothing(two_nodes: OwnCluster, nodes: Callable[[int, str], Path]) -> None:
    end(psutil.Process(two_nodes.pids[1]))
    nodes(9, "no such store")
    with pytest.raises(RuntimeAdapterError, match="ended"):
        two_nodes.restart_worker(1)
    assert (two_nodes.alive(), two_nodes.dead_workers()) == (True, (1,))


def test_no_node_is_started_on_a_cluster_that_was_stopped(two_nodes: OwnCluster) -> None:
    end(psutil.Process(two_nodes.pids[1]))
    two_nodes.kill()
    with pytest.raises(NotWanted):
        two_nodes.restart_worker(1)


@pytest.mark.parametrize("place", [0, 2], ids=["the head", "none"])
def test_only_a_worker_node_is_started_again(two_nodes: OwnCluster, place: int) -> None:
    with pytest.raises(ValueError, match=f"has no worker node {place}"):
        two_nodes.restart_worker(place)
