"""Clusters of another user: root writes nowhere that this user may set a link. Nodes are scripts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from patience import gone

from mesh.ray.cluster import node_start
from mesh.ray.cluster.cluster_spec import ClusterNodeSpec, ClusterSpec
from mesh.ray.cluster.node_logs import RAY_FOLDER, SESSION, keep_logs
from mesh.ray.cluster.own_cluster import OwnCluster
from mesh.ray.cluster.run_as import RunAs

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may start processes of another user")

TWO_NODES = ClusterSpec(nodes=(ClusterNodeSpec(cpu=1), ClusterNodeSpec(cpu=1)), object_store_bytes=80 * 2**20)
NODE = """
import os, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
for name in ("sockets", "logs"):
    (folder / "session_1" / name).mkdir(parents=True, exist_ok=True)
(folder / "session_1" / "sockets" / f"raylet.{os.getpid()}").touch()
if not (folder / "session_latest").is_symlink():
    (folder / "session_latest").symlink_to(folder / "session_1")
print("Ray runtime started", flush=True)
time.sleep(600)
"""
#: Replaces each given path by a link to the first one; prints the paths that it could not replace.
LINK = """
import os, sys
target, *places = sys.argv[1:]
for place in places:
    try:
        if os.path.lexists(place):
            os.unlink(place)
        os.symlink(target, place)
    except OSError:
        print(place)
"""


@pytest.fixture
def user(monkeypatch: pytest.MonkeyPatch) -> RunAs:
    """Return a user who is not root and can run the system's Python."""
    python = shutil.which("python3", path=os.defpath)
    if python is None:
        pytest.skip("the system has no Python that every user may run")
    monkeypatch.setattr(sys, "executable", python)
    return RunAs.find("nobody")


@pytest.fixture
def of_root() -> Iterator[Path]:
    """Return a folder with a file that all users may enter."""
    folder = Path(tempfile.mkdtemp(prefix="root-"))
    folder.chmod(0o755)
    (folder / "file").write_text("root's")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def started(user: RunAs, monkeypatch: pytest.MonkeyPatch) -> Iterator[OwnCluster]:
    monkeypatch.setattr(node_start, "_command", lambda _spec, _index, _ports, _address, folder: [sys.executable, "-c", NODE, folder])
    started = OwnCluster.start(TWO_NODES, run_as=user)
    yield started
    started.kill()
    assert not started.folder.exists()


def link(user: RunAs, target: Path, *places: Path) -> list[Path]:
    """Set links to the target as the user, and return the refused places."""
    command = [sys.executable, "-I", "-S", "-c", LINK, *map(str, (target, *places))]
    done = subprocess.run(command, cwd="/", check=True, capture_output=True, text=True, **user.process())
    return [Path(line) for line in done.stdout.splitlines()]


def held(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {one.name: (one.stat().st_uid, one.read_bytes()) for one in folder.iterdir()}


def test_only_rays_own_folder_is_the_users(started: OwnCluster, user: RunAs) -> None:
    folder = started.folder
    assert (folder.stat().st_uid, folder.stat().st_mode & 0o777, (folder / RAY_FOLDER).stat().st_uid) == (0, 0o711, user.uid)
    assert {(log.stat().st_uid, log.stat().st_mode & 0o777) for log in folder.glob("node-*.log")} == {(0, 0o600)}
    names = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port", "runtime_env_agent_port")
    ports = [file for name in names for file in (folder / SESSION).glob(f"{name}_*")]
    assert [file.stat().st_uid for file in ports] == [user.uid] * 2 * len(names)


def test_a_node_starts_again_past_the_links_of_its_user(started: OwnCluster, user: RunAs, of_root: Path) -> None:
    before = held(of_root)
    logs = [started.folder / "node-1.log", started.folder / "auth_token_of_user", started.folder / RAY_FOLDER]
    assert link(user, of_root / "file", *logs) == logs
    assert link(user, of_root, started.folder / SESSION) == []
    worker = psutil.Process(started.pids[1])
    worker.kill()
    gone(lambda: worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE)
    started.restart_worker(1)
    assert started.dead_workers() == ()
    assert held(of_root) == before


def test_port_files_are_written_with_the_users_rights(started: OwnCluster, user: RunAs, of_root: Path) -> None:
    session, before = started.folder / SESSION, held(of_root)
    assert link(user, of_root / "file", session / "metrics_agent_port_0a") == []
    assert link(user, of_root / "new", session / "metrics_agent_port_0b") == []
    for node_id in ("0a", "0b"):
        node_start.publish_agent_ports(session, node_id, [1, 2, 3, 4, 5, 6], {}, user)
    assert held(of_root) == before
    node_start.publish_agent_ports(session, "0c", [1, 2, 3, 4, 5, 6], {}, user)
    written = session / "runtime_env_agent_port_0c"
    assert (written.read_text(), written.stat().st_uid) == ("6", user.uid)


def test_logs_are_kept_without_what_the_user_links(started: OwnCluster, user: RunAs, of_root: Path, tmp_path: Path) -> None:
    logs = started.folder / SESSION / "logs"
    (logs / "raylet.out").write_text("[I 1] all is well")
    assert link(user, of_root / "file", logs / "raylet.err") == []
    assert link(user, of_root, logs / "old") == []
    keep_logs(started.folder, tmp_path / "kept")
    assert [file.name for file in (tmp_path / "kept" / "ray").rglob("*")] == ["raylet.out"]
    assert link(user, of_root, logs.parent / "logs.link") == []
    (logs.parent / "logs").rename(logs.parent / "moved")
    (logs.parent / "logs.link").rename(logs.parent / "logs")
    keep_logs(started.folder, tmp_path / "kept")
    assert sorted(file.name for file in (tmp_path / "kept").rglob("*")) == ["node-0.log", "node-1.log"]
