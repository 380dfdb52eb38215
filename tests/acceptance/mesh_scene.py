"""Shared parts of tests of a mesh on a real multi-raylet cluster: task classes, timeouts, nodes that come and go."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import ray
from patience import eventually, gone
from supervisors import saved_state

import mesh
from mesh.core.seen_nodes import NodeSeen
from mesh.errors import RuntimeAdapterError
from mesh.ray.cluster.cluster_spec import ClusterNodeSpec, ClusterSpec
from mesh.ray.cluster.cluster_token import token_environment
from mesh.ray.cluster.node_start import PORTS_A_NODE, Nodes, await_up, node_environment
from mesh.ray.cluster.own_cluster import OwnCluster
from mesh.ray.cluster.ports import promise_ports
from mesh.ray.local.supervisor.node_watch import look_at_nodes

REPOSITORY = Path(__file__).parents[2]
OBJECT_STORE_BYTES = 80 * 2**20
#: A dead raylet is noticed within two seconds, not fifteen; a suspended one is not taken for dead during a test.
QUICK_HEALTH_CHECKS = {
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "3",
    "RAY_health_check_timeout_ms": "120000",
}


class Probe:
    """Task that reports its node and remembers its arguments."""

    def __init__(self, value=0):
        self.value = value

    def node(self):
        return ray.get_runtime_context().get_node_id()

    def pid(self):
        return os.getpid()

    def gpu_ids(self):
        return ray.get_gpu_ids()

    def add(self, amount=1):
        self.value += amount
        return self.value

    def train(self, values):
        return [value + self.value for value in values]


class Trainer:
    """Training loop that logs and checkpoints each step, waits for a file at step `pause_at`, and stops on request."""

    def run(self, folder, steps, pause_at=None, pace_s=0.0):
        task = mesh.current_task()
        first = task.last_checkpoint() or 0
        for step in range(first, steps):
            while step == pause_at and not Path(folder, "gate").exists():
                time.sleep(0.01)
                task.stop_if_asked()
            time.sleep(pace_s)
            with Path(folder, "steps").open("a") as file:
                file.write(f"{task.attempt} {step}\n")
            task.save_checkpoint(step + 1, progress=(step + 1) / steps)
        return first, steps


class Student:
    """Loop that logs and checkpoints each step until a file exists."""

    def run(self, folder, pace_s):
        task = mesh.current_task()
        first = step = task.last_checkpoint() or 0
        while not Path(folder, "gate").exists():
            time.sleep(pace_s)
            with Path(folder, "steps").open("a") as file:
                file.write(f"{task.attempt} {step}\n")
            step += 1
            task.save_checkpoint(step)
        return first, step


class Ticker:
    """Loop that logs ticks until a file exists and never checks for a stop."""

    def run(self, folder):
        while not Path(folder, "gate").exists():
            with Path(folder, "ticks").open("a") as file:
                file.write(f"{os.getpid()}\n")
            time.sleep(0.02)
        return os.getpid()


class Sleeper:
    """Task with one long C call, during which its thread runs no Python."""

    def run(self, folder, seconds):
        Path(folder, "asleep").touch()
        time.sleep(seconds)
        Path(folder, "awake").touch()


class Gated:
    """Task whose constructor waits for a file."""

    def __init__(self, gate):
        while not Path(gate).exists():
            time.sleep(0.02)

    def pid(self):
        return os.getpid()


class SlowToLeave:
    """Task whose farewell sleeps until it is woken, so that the farewell's limit cannot expire meanwhile."""

    def __ray_shutdown__(self):
        os.kill(os.getpid(), signal.SIGSTOP)


class Demanding:
    """Class whose constructor needs an argument."""

    def __init__(self, model):
        self.model = model


class Broken:
    """Class whose constructor raises."""

    def __init__(self):
        raise ValueError("the model file is missing")


def steps_of(folder: Path) -> list[int]:
    """Return the steps that trainers in this folder took, in order."""
    path = folder / "steps"
    return [int(line.split()[1]) for line in path.read_text().splitlines()] if path.exists() else []


def ticks_of(folder: Path) -> list[int]:
    """Return the process behind each tick."""
    path = folder / "ticks"
    return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


def kept_step(running: mesh.ScheduleMesh, task: mesh.TaskHandle) -> int:
    """The number of the last checkpoint that the mesh has of a task; 0: none."""
    kept = saved_state(running, task)
    return kept.checkpoint.number if kept is not None and kept.checkpoint is not None else 0


@contextmanager
def three_nodes_running() -> Iterator[OwnCluster]:
    """Run a cluster of three nodes that notices a dead one soon."""
    nodes = (
        ClusterNodeSpec(cpu=2, labels={"zone": "head"}),
        ClusterNodeSpec(cpu=4, labels={"zone": "east"}),
        ClusterNodeSpec(cpu=4, gpu=2, labels={"zone": "west"}),
    )
    spec = ClusterSpec(nodes=nodes, object_store_bytes=OBJECT_STORE_BYTES)
    cluster = OwnCluster.start(spec, python_path=_python_path(), variables=QUICK_HEALTH_CHECKS)
    try:
        yield cluster
    finally:
        cluster.kill()


def node_named(**labels: str) -> str:
    """Return Ray's id of the living node with these labels."""
    rows = [row for row in ray.nodes() if row["Alive"] and labels.items() <= row["Labels"].items()]
    return str(rows[0]["NodeID"])


def kill_session(pid: int) -> None:
    """End a node and everything on it at once, as a power failure does."""
    for process in processes_of(pid):
        with suppress(psutil.NoSuchProcess):  # A worker ends after its raylet.
            process.kill()


def processes_of(session: int) -> list[psutil.Process]:
    """Return the processes of a session."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, ProcessLookupError, PermissionError):
            continue
    return found


def is_called(process: psutil.Process, name: str) -> bool:
    """Return whether the process runs this command; False once it has ended."""
    try:
        return process.name() == name
    except psutil.NoSuchProcess:
        return False


def has_ended(process: psutil.Process) -> bool:
    """Return whether the process has ended; True for a zombie."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@contextmanager
def joined(cluster: OwnCluster, spec: ClusterNodeSpec) -> Iterator[int]:
    """Run another node during the block and yield its session."""
    process = _up(cluster, spec) or _up(cluster, spec)
    assert process is not None, f"no node came up: {cluster.folder}"
    try:
        yield process.pid
    finally:
        kill_session(process.pid)
        process.wait()


def _up(cluster: OwnCluster, spec: ClusterNodeSpec) -> subprocess.Popen[bytes] | None:
    """Return a started node; None if it died because the machine was too busy for Ray's timeout."""
    place = len(list(cluster.folder.glob("node-*.log")))  # No node had it.
    nodes = Nodes(
        spec=ClusterSpec(nodes=(spec,) * (place + 1), object_store_bytes=OBJECT_STORE_BYTES),
        address=cluster.address,
        folder=cluster.folder,
        environment={**node_environment(_python_path()), **token_environment(cluster.token_file), **QUICK_HEALTH_CHECKS},
        run_as=None,
    )
    begun_s = time.time()
    process, publish_ports = nodes.spawn(place, promise_ports(PORTS_A_NODE))
    publish_ports()
    try:
        await_up({place: process}, cluster.folder, None, lambda: True, since_s=begun_s)
    except RuntimeAdapterError:
        kill_session(process.pid)
        return None
    return process


@contextmanager
def asleep(pid: int) -> Iterator[None]:
    """Suspend the process during the block."""
    os.kill(pid, signal.SIGSTOP)
    try:
        eventually(lambda: is_stopped(pid))
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def is_stopped(pid: int) -> bool:
    """Return whether all threads of the process are stopped; one inside a system call finishes that first."""
    return all(_state_of(thread) in "Tt" for thread in Path("/proc", str(pid), "task").iterdir())


def _state_of(thread: Path) -> str:
    try:
        return (thread / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # It has ended since.
        return "T"


def left_in_ray(name: str) -> list[str]:
    """Return the named actors and placement groups of a mesh in Ray."""
    prefix = f"schedulemesh:{name}"
    actors = [actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True) if actor["name"].startswith(prefix)]
    groups = [
        row["name"] for row in ray.util.placement_group_table().values() if row["name"].startswith(prefix) and row["state"] != "REMOVED"
    ]
    return actors + groups


def clean(running: mesh.ScheduleMesh) -> None:
    """Delete all pools; wait until no resource is held and all ledgers agree."""
    for pool in running.list_pools():
        running.delete_pool(pool.pool)
    gone(running.list_pools)
    gone(running.list_groups)
    gone(_taken_in_ray)  # The mesh would take a late worker for a stranger's, and place the next test's tasks elsewhere.
    gone(lambda: [(node, look_at_nodes()) for node in running.list_nodes() if node.used or node.load])
    eventually(running.audit)


def _taken_in_ray() -> list[NodeSeen]:
    """Return the nodes whose resources are in use in Ray."""
    amounts = ("cpu", "gpu")
    return [seen for seen in look_at_nodes() if any(seen.available[name] != seen.total[name] for name in amounts)]


def _python_path() -> tuple[str, ...]:
    return str(REPOSITORY), str(REPOSITORY / "tests"), str(Path(__file__).parent)
