"""Own Ray clusters: several start at once, and nothing of them is left."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import ray
from patience import gone

from mesh.errors import RuntimeAdapterError
from mesh.ray.cluster.cluster_spec import ClusterNodeSpec, ClusterSpec
from mesh.ray.cluster.cluster_token import token_environment
from mesh.ray.cluster.own_cluster import FOLDER_BYTES_MAX, OwnCluster
from mesh.ray.cluster.tcp_probe import can_connect
from serve_apps.processes.ray_access import asks_for_token

pytestmark = pytest.mark.ray

END_S_MAX = 90.0
ONE_NODE = ClusterSpec(nodes=(ClusterNodeSpec(cpu=1),), object_store_bytes=80 * 2**20)
#: Variables that turn off Ray's token.
OPEN = {"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": "everybody-knows-it"}
TWO_NODES = ClusterSpec(
    nodes=(ClusterNodeSpec(cpu=1, labels={"zone": "x"}), ClusterNodeSpec(cpu=1, labels={"zone": "y"})), object_store_bytes=80 * 2**20
)


def session_of(process):
    try:
        return os.getsid(process.pid)
    except ProcessLookupError:  # It ended between the two calls.
        return None


def processes_of(session_ids):
    """Return all processes of these sessions."""
    return [process for process in psutil.process_iter() if session_of(process) in session_ids]


def runs(process):
    """Return whether the process has not ended; a zombie has."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # It ended between the two calls.
        return False


def still_run(processes):
    """Return the processes that have not ended."""
    return [process for process in processes if runs(process)]


def command_of(process):
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # It ended meanwhile.
        return ""


def programs(processes):
    """Return the programs, each once: a child before its exec looks like a second one of its parent."""
    return " ".join({command_of(process) for process in processes})


@pytest.fixture
def starters():
    """Threads that outlive the test's clusters: the kernel ends a cluster with the thread that started it."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        yield pool


@pytest.fixture
def short_folder():
    """Return a folder with a name short enough for Ray's sockets."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def test_nodes_have_the_requested_resources_and_labels(ray_driver):
    (node,) = [node for node in ray.nodes() if node["Alive"]]
    assert (node["Resources"]["CPU"], node["Resources"]["lamp"]) == (2.0, 1.0)
    assert node["Labels"]["zone"] == "east"


@pytest.mark.faults
@pytest.mark.slow
def test_a_node_comes_up_while_its_agents_are_frozen(starters, short_folder):
    frozen = {}
    coming = starters.submit(OwnCluster.start, ONE_NODE, temp_dir_parent=short_folder)
    while not coming.done():
        for process in psutil.process_iter():
            if process.pid not in frozen and is_agent(process, short_folder):
                process.suspend()
                frozen[process.pid] = process
    cluster = coming.result()
    try:
        assert cluster.alive()
        assert [process.status() for process in frozen.values()] == [psutil.STATUS_STOPPED] * 2
    finally:
        cluster.kill()


def is_agent(process, folder):
    """Return whether this is one of the two agents of a raylet, of a cluster in this folder."""
    try:
        command = process.cmdline()
        is_here = any(str(folder) in part for part in command)
        return is_here and any(part.endswith(("/dashboard/agent.py", "/runtime_env/agent/main.py")) for part in command)
    except psutil.Error:  # It ended meanwhile.
        return False


def test_two_clusters_start_at_once_and_leave_nothing(starters, monkeypatch):
    for name, value in OPEN.items():
        monkeypatch.setenv(name, value)
    stopped, killed = starters.map(OwnCluster.start, [TWO_NODES, ONE_NODE])
    try:
        assert stopped.address != killed.address
        assert stopped.alive()
        assert killed.alive()
        of_stopped, of_killed = processes_of(stopped.pids), processes_of(killed.pids)
        assert programs(of_stopped).count("/raylet/raylet ") == 2
        assert "gcs_server" in programs(of_killed)

        assert [asks_for_token(cluster.address) for cluster in (stopped, killed)] == [True, True], "a user's variables took the token away"
        assert stopped.token_file.read_text() != killed.token_file.read_text()
        assert {stat.S_IMODE(cluster.token_file.stat().st_mode) for cluster in (stopped, killed)} == {0o600}

        can_connect(killed.address, 5.0)
        killed.kill()
        with pytest.raises(ConnectionRefusedError):
            can_connect(killed.address, 5.0)
        assert still_run(of_killed) == []
        assert stopped.alive(), "the end of one cluster took the other along"
    finally:
        killed.kill()
        stopped.stop()
    assert still_run(of_stopped) == []
    assert not stopped.alive()
    assert not stopped.folder.exists()
    assert not killed.folder.exists()


def test_a_cluster_dies_with_the_process_that_started_it():
    script = textwrap.dedent("""
        import sys, time
        from mesh.ray.cluster.cluster_spec import ClusterSpec, ClusterNodeSpec
        from mesh.ray.cluster.own_cluster import OwnCluster
        cluster = OwnCluster.start(ClusterSpec(nodes=(ClusterNodeSpec(cpu=1),), object_store_bytes=80 * 2**20))
        print(*cluster.pids, cluster.folder, flush=True)
        sys.stdin.read()
    """)
    parent = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdin is not None
    assert parent.stdout is not None
    with parent.stdin, parent.stdout:
        session, folder = parent.stdout.readline().split()
        assert "gcs_server" in programs(processes_of({int(session)}))
        parent.kill()
        parent.wait()
    gone(lambda: still_run(processes_of({int(session)})), END_S_MAX)
    shutil.rmtree(folder)


@pytest.mark.faults
@pytest.mark.slow
def test_an_orphaned_cluster_ends_despite_its_actors(starters):
    """The kernel sends SIGTERM then."""
    cluster = starters.submit(OwnCluster.start, ONE_NODE).result()
    try:
        actor = ray_actor_in(cluster)
        node = psutil.Process(cluster.pids[0])
        assert runs(actor)
        node.terminate()
        node.wait(END_S_MAX)
        assert "Draining" not in (cluster.folder / "node-0.log").read_text()
    finally:
        cluster.stop()
    assert not runs(actor)


def ray_actor_in(cluster):
    """Return the process of an actor that outlives its driver."""
    driver = f"""
        import os, ray
        ray.init(address="{cluster.address}", namespace="stays", log_to_driver=False, logging_level="ERROR")
        class Stays:
            def pid(self):
                return os.getpid()
        print(ray.get(ray.remote(Stays).options(name="stays", lifetime="detached").remote().pid.remote()))
    """
    environment = {**os.environ, **token_environment(cluster.token_file)}
    command = [sys.executable, "-c", textwrap.dedent(driver)]
    return psutil.Process(int(subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout))


def test_the_death_of_a_raylet_shows(starters):
    cluster = starters.submit(OwnCluster.start, ONE_NODE).result()
    try:
        raylet = next(process for process in processes_of(cluster.pids) if "/raylet/raylet " in command_of(process))
        os.kill(raylet.pid, signal.SIGKILL)
        psutil.Process(cluster.pids[0]).wait(timeout=END_S_MAX)
        assert not cluster.alive()
    finally:
        cluster.stop()


def test_a_node_that_fails_to_start_is_reported_with_its_log(short_folder):
    with pytest.raises(RuntimeAdapterError, match=r"before it was up(.|\n)*object.store") as raised:
        OwnCluster.start(ClusterSpec(nodes=(ClusterNodeSpec(cpu=1),), object_store_bytes=1), temp_dir_parent=short_folder)
    assert "Check that" in str(raised.value)
    assert list(short_folder.iterdir()) == []


def test_a_folder_too_deep_for_sockets_is_refused_in_words(tmp_path):
    deep = tmp_path / ("d" * FOLDER_BYTES_MAX)
    deep.mkdir()
    with pytest.raises(ValueError, match="too long"):
        OwnCluster.start(ONE_NODE, temp_dir_parent=deep)
    assert list(deep.iterdir()) == []


def test_a_cluster_without_nodes_is_refused():
    with pytest.raises(ValueError, match="at least one node"):
        OwnCluster.start(ClusterSpec(nodes=(), object_store_bytes=1))
