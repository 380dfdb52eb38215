"""Ray clusters of one's own, as child processes, several side by side.

Each node is a `ray start --block` in a session of its own. The session is how its processes are found again: raylet, agents
and workers stay in it, whatever they call themselves. `ray stop` is never used: it ends every cluster of the machine.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil

from mesh.errors import RuntimeDoorError
from mesh.runtime import node_logs
from mesh.runtime.cluster_token import token_environment, use_token, write_token
from mesh.runtime.node_logs import RAY_FOLDER, SESSION
from mesh.runtime.ports import promise_ports
from mesh.runtime.process import bound_to_parent
from mesh.runtime.run_as import RunAs

START_S_MAX = 90.0
#: How often a cluster is started whose nodes end themselves since they are too slow; see `OwnCluster.start`.
STARTS_MAX = 3
#: How long processes may take to end by themselves before they are killed.
STOP_S_MAX = 2.0
#: How long those may take that were killed: on a busy machine a raylet gives its memory back for a while.
KILL_S_MAX = 60.0
LOG_LINES_SHOWN = 20
_POLL_S = 0.03
#: Between two looks into the logs of nodes that are coming up.
_LOOK_S = 1.0
_PORTS_A_NODE = 6
#: How the names of clusters' folders begin.
FOLDER_PREFIX = "sm-"
#: Ray puts sockets under `<folder>/r/session_<time>_<pid>/sockets/`, and Linux wants their paths shorter than 108 bytes.
FOLDER_BYTES_MAX = 35
#: Writes files, told as pairs of path and content, with the rights of another user.
_WRITE = """
import pathlib, sys
for path, text in zip(sys.argv[1::2], sys.argv[2::2]):
    pathlib.Path(path).write_text(text, encoding="ascii")
"""
#: How long that may take: as long as a raylet waits for what is written.
_WRITE_S_MAX = 15.0
#: Sets the id of a node that starts; Ray has no option for that.
_NODE_ID = "RAY_OVERRIDE_NODE_ID_FOR_TESTING"
#: What `ray start` prints when a node is up.
_UP = "Ray runtime started"

#: What makes a cluster small and quick to start. A variable that the caller's environment sets is left as it is.
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_event_stats": "0",
    # Workers as quick to be served as everybody else: about 1.3-2 times the task rate on a busy machine.
    "RAY_worker_niceness": "0",
    # The dashboard is off, and what remains of its process is not waited for: about a second of a start.
    "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "0",
    # What remains of it would show its figures on all interfaces to everybody; no port has this number, so none is opened.
    "DASHBOARD_METRIC_PORT": "-1",
    # A node's own waits for its control service and its agents, 30 s by themselves: as long as a start may take here.
    "RAY_gcs_server_port_wait_time_s": str(int(START_S_MAX)),
    "RAY_agent_register_timeout_ms": str(int(START_S_MAX * 1000)),
    # A node that is told to end does: Ray would wait up to 30 s for actors that nobody ends, also when whoever started it has died.
    "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
    "NO_COLOR": "1",
}
#: Would lead `ray start` to another cluster, slow the start of each worker, or give tenants' code keys of whoever runs `up`.
_UNWANTED = ("RAY_ADDRESS", "RAY_TMPDIR", "PYTHONDONTWRITEBYTECODE", "SCHEDULEMESH_API_KEY", "SCHEDULEMESH_REDIS_URL")


class NodeTooSlow(RuntimeDoorError):
    """A node ended itself since a part of it had not started in time: the machine has too much to do."""


class NotWanted(RuntimeDoorError):
    """A start was broken off, since whoever had begun it has changed his mind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """One raylet."""

    cpu: float
    gpu: float = 0
    memory_bytes: int | None = None  #: None: what Ray finds.
    labels: Mapping[str, str] = field(default_factory=dict)  #: Ray's node labels.
    resources: Mapping[str, float] = field(default_factory=dict)  #: Custom ones.


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """A cluster; the first node is its head."""

    nodes: tuple[NodeSpec, ...]
    object_store_bytes: int  #: Of each node; Ray wants 75 MiB at least.


class OwnCluster:
    """A running cluster, which asks for a token of its own.

    Its processes end with the thread that started it, on Linux; those of a node that was started again with the thread that did that.
    """

    def __init__(
        self,
        address: str,
        folder: Path,
        token_file: Path,
        processes: tuple[subprocess.Popen[bytes], ...],
        spec: ClusterSpec | None = None,
        environment: Mapping[str, str] | None = None,
        run_as: RunAs | None = None,
    ) -> None:
        self.address = address  #: `127.0.0.1:port`, for `ray.init`.
        self.folder = folder  #: `node-<n>.log`, and the folder of Ray's own files and logs, which alone is another user's.
        self.token_file = token_file  #: What a process needs to enter; it goes with the cluster.
        self._processes = processes
        self._spec = spec
        self._environment = dict(environment or {})  #: Of every node.
        self._run_as = run_as
        self._guard = threading.Lock()  #: Over the processes: one thread may start a node while another stops all.
        self._is_ending = False

    @classmethod
    def start(
        cls,
        spec: ClusterSpec,
        *,
        token_file: Path | None = None,
        run_as: RunAs | None = None,
        temp_dir_parent: str | Path | None = None,
        python_path: tuple[str, ...] = (),
        variables: Mapping[str, str] | None = None,
        logs_kept_in: Path | None = None,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> OwnCluster:
        """Start all nodes, one upon the other, and wait until they are up.

        A node ends itself when a part of it has not started within 15 s, as happens on a machine with too much to do, and Ray has no
        setting for that. All is then tried again, up to `STARTS_MAX` times in all, each node only when the one before it is up.

        Args:
            spec: The nodes.
            token_file: Where the cluster's token is written; None: into its folder.
            run_as: The user whose processes its nodes are; None: the caller.
            temp_dir_parent: Where the cluster's folder is made; a short path. None: the system's.
            python_path: Folders that workers import from.
            variables: Others for the environment of the nodes, and with it of their workers.
            logs_kept_in: Where the logs of a start that failed are kept; None: they go with the cluster's folder.
            is_wanted: Asked again and again while it starts.

        Raises:
            RuntimeDoorError: A node did not come up, or nobody wants it any more; the message says why. Nothing is left behind but the
                logs.
            ValueError: No nodes, or the folder's path is too long.
        """
        if not spec.nodes:
            raise ValueError("a cluster needs a node at least")
        environment = {**_environment(python_path), **(variables or {})}
        start = partial(cls._start_once, spec, token_file, run_as, temp_dir_parent, environment, logs_kept_in, is_wanted)
        for tried in range(STARTS_MAX - 1):
            try:
                return start(in_turn=tried > 0)
            except NodeTooSlow:
                if not is_wanted():
                    raise
        return start(in_turn=True)

    @classmethod
    def _start_once(
        cls,
        spec: ClusterSpec,
        token_file: Path | None,
        run_as: RunAs | None,
        parent: str | Path | None,
        environment: Mapping[str, str],
        logs_kept_in: Path | None,
        is_wanted: Callable[[], bool],
        *,
        in_turn: bool,
    ) -> OwnCluster:
        folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir=parent))
        if len(os.fsencode(folder)) > FOLDER_BYTES_MAX:
            folder.rmdir()
            raise ValueError(f"{folder} is too long for Ray's sockets; give a folder of at most {FOLDER_BYTES_MAX - 12} bytes, like /tmp")
        address, token_file = "", token_file or folder / "auth_token"
        processes: list[subprocess.Popen[bytes]] = []
        try:
            ports = list(promise_ports(_PORTS_A_NODE * len(spec.nodes) + 3))
            address = f"127.0.0.1:{ports[-1]}"
            write_token(token_file)
            environment = {**environment, **token_environment(token_file)}
            (folder / RAY_FOLDER).mkdir(mode=0o700)
            if run_as is not None:
                environment |= {**run_as.environment(), **token_environment(_handed_over(folder, token_file, run_as))}
            for index in range(len(spec.nodes)):
                if in_turn:
                    _await_up(dict(enumerate(processes)), folder, logs_kept_in, is_wanted)
                _await_sockets(processes, folder, is_wanted)
                process, publish_ports = _spawn_node(spec, index, ports, address, folder, environment, run_as)
                processes.append(process)
                _await_path(folder / SESSION, process, is_wanted)
                publish_ports()
            _await_up(dict(enumerate(processes)), folder, logs_kept_in, is_wanted)
        except BaseException as failure:
            if logs_kept_in is not None and isinstance(failure, RuntimeDoorError) and not isinstance(failure, NotWanted):
                node_logs.keep_logs(folder, logs_kept_in)
            cls(address, folder, token_file, tuple(processes)).kill()
            raise
        return cls(address, folder, token_file, tuple(processes), spec, environment, run_as)

    @property
    def pids(self) -> tuple[int, ...]:
        """Of the nodes' first processes; each is the id of a session."""
        return tuple(process.pid for process in self._processes)

    def alive(self) -> bool:
        """Is the head up? Without it there is no cluster; `ray start --block` ends within a second or so when a part of its node dies."""
        return bool(self._processes) and self._processes[0].poll() is None

    def dead_workers(self) -> tuple[int, ...]:
        """The nodes beside the head that have died, by their places in the `ClusterSpec`."""
        return tuple(place for place, process in enumerate(self._processes) if place and process.poll() is not None)

    def restart_worker(self, place: int, *, is_wanted: Callable[[], bool] = lambda: True) -> None:
        """Start a node that has died again, as it was, and wait until it is up. What the dead one has left is killed first.

        Args:
            place: One of `dead_workers`.
            is_wanted: Asked again and again while it starts.

        Raises:
            RuntimeDoorError: It did not come up; nothing of it is left. Or the cluster was stopped meanwhile.
            ValueError: It is the head, or there is no such node.
        """
        if self._spec is None or not 0 < place < len(self._spec.nodes):
            raise ValueError(f"the cluster at {self.address} has no worker node {place}")
        for dead in self._processes[place : place + 1]:  # None, when all was stopped meanwhile.
            self._end_session(dead)
        begun_s, ports = time.time(), [0] * (_PORTS_A_NODE * place) + list(promise_ports(_PORTS_A_NODE))
        with self._guard:
            if self._is_ending:
                raise NotWanted(f"the Ray cluster at {self.address} was stopped")
            process, publish_ports = _spawn_node(self._spec, place, ports, self.address, self.folder, self._environment, self._run_as)
            self._processes = (*self._processes[:place], process, *self._processes[place + 1 :])
        publish_ports()
        try:
            _await_up({place: process}, self.folder, None, is_wanted, since_s=begun_s)
        except BaseException:
            self._end_session(process)
            raise

    def _end_session(self, leader: subprocess.Popen[bytes]) -> None:
        """Kill what is left of one node. Its workers end by themselves when their raylet has, but not at once."""
        deadline = time.monotonic() + KILL_S_MAX
        while (left := _in_sessions(frozenset({leader.pid}))) or leader.poll() is None:
            for pid in left:
                _signal(pid, signal.SIGKILL)
            if time.monotonic() > deadline:
                raise RuntimeDoorError(f"processes {sorted(left)} of a Ray node at {self.address} do not end, even when killed")
            time.sleep(_POLL_S)

    def connect(self, *, namespace: str | None = None) -> None:
        """Make this process a driver of the cluster, until `ray.shutdown()`; it shows the cluster's token from now on."""
        use_token(self.token_file)
        import ray  # noqa: PLC0415  takes a second, and reads the variables

        ray.init(address=self.address, namespace=namespace, log_to_driver=False, logging_level=logging.ERROR)

    def stop(self) -> None:
        """End it in order, and by force what does not end; waits for all of it, and removes the folder. Harmless to repeat."""
        sessions = self._end()
        for process in reversed(self._processes):
            _signal(process.pid, signal.SIGTERM, if_running=process)
        deadline = time.monotonic() + STOP_S_MAX
        while (self._left(sessions) or not self._reaped()) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        self._finish(sessions)

    def kill(self) -> None:
        """SIGKILL to everything at once; waits, and removes the folder. Harmless to repeat."""
        self._finish(self._end())

    def _finish(self, sessions: frozenset[int]) -> None:
        # A process can start another between the look and the kill, so look until nothing is there.
        deadline = time.monotonic() + KILL_S_MAX
        while (left := self._left(sessions)) or not self._reaped():
            for pid in left:
                _signal(pid, signal.SIGKILL)
            if time.monotonic() > deadline:
                raise RuntimeDoorError(f"processes {sorted(left)} of the Ray cluster at {self.address} do not end, even when killed")
            time.sleep(_POLL_S)
        self._processes = ()
        self.token_file.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end(self) -> frozenset[int]:
        """No node is started any more; the sessions of those that were."""
        with self._guard:
            self._is_ending = True
            return frozenset(self.pids)

    def _reaped(self) -> bool:
        return all(process.poll() is not None for process in self._processes)

    def _left(self, sessions: frozenset[int]) -> set[int]:
        """Processes of the cluster that still run: by session, and by the folder's name for one that has left its session."""
        if not sessions:
            return set()
        return {process.pid for process in psutil.process_iter() if _belongs(process, sessions, str(self.folder))}


def _in_sessions(sessions: frozenset[int]) -> set[int]:
    return {process.pid for process in psutil.process_iter() if _belongs(process, sessions, None)}


def _belongs(process: psutil.Process, sessions: frozenset[int], folder: str | None) -> bool:
    """`folder`: None: by its session only."""
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return os.getsid(process.pid) in sessions or (folder is not None and any(folder in part for part in process.cmdline()))
    except (psutil.Error, ProcessLookupError, PermissionError):
        return False  # Gone in the meantime, or somebody else's.


def _signal(pid: int, number: signal.Signals, *, if_running: subprocess.Popen[bytes] | None = None) -> None:
    if if_running is not None and if_running.poll() is not None:
        return  # Ended and reaped: the number may be another process by now.
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _handed_over(folder: Path, token_file: Path, run_as: RunAs) -> Path:
    """Ray's folder and a copy of the token are the user's; the token's own file lies where the user cannot reach it.

    The folder around them is not: what this process writes by its path there could else lead through a link to any file.
    """
    copy = folder / "auth_token_of_user"
    copy.touch(mode=0o600)
    copy.write_bytes(token_file.read_bytes())
    run_as.own(copy)
    run_as.own(folder / RAY_FOLDER)
    folder.chmod(0o711)  # The user passes through it.
    return copy


def _spawn_node(
    spec: ClusterSpec,
    place: int,
    ports: list[int],
    address: str,
    folder: Path,
    environment: Mapping[str, str],
    run_as: RunAs | None,
) -> tuple[subprocess.Popen[bytes], Callable[[], None]]:
    """The process, and what to call once the cluster has its session folder: it publishes the ports of the node's agents."""
    node_id = secrets.token_hex(28)
    log = os.open(_log_file(folder, place), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(log, "wb") as sink:
        process = subprocess.Popen(
            bound_to_parent(_command(spec, place, ports, address, folder / RAY_FOLDER)),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env={**_kept_workers(spec.nodes[place]), **environment, _NODE_ID: node_id},
            start_new_session=True,
            **({"cwd": folder / RAY_FOLDER, **run_as.process()} if run_as is not None else {}),
        )
    return process, partial(_publish_agent_ports, folder / SESSION, node_id, _ports_of(place, ports), environment, run_as)


def _publish_agent_ports(session: Path, node_id: str, ports: list[int], environment: Mapping[str, str], run_as: RunAs | None) -> None:
    """Write what the agents of the node write when they are up, before its raylet looks: it ends itself after 15 s without, and Ray has
    no setting for that. An agent takes longer on a busy machine; the raylet asks an agent that is not up yet again."""
    _, _, grpc, _, http, environments = ports
    published = {
        "metrics_agent_port": grpc,
        "metrics_export_port": -1,  # No figures are collected.
        "dashboard_agent_listen_port": http,
        "runtime_env_agent_port": environments,
    }
    files = {session / f"{name}_{node_id}": str(port) for name, port in published.items()}
    # The head may have ended before it made the folder: `_await_up` tells why.
    if run_as is None:
        with contextlib.suppress(FileNotFoundError):
            for file, port in files.items():
                file.write_text(port, encoding="ascii")
        return
    told = [str(part) for pair in files.items() for part in pair]
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            [sys.executable, "-I", "-S", "-c", _WRITE, *told],
            cwd="/",
            env=environment,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=_WRITE_S_MAX,
            **run_as.process(),
        )


def _ports_of(place: int, ports: list[int]) -> list[int]:
    return ports[place * _PORTS_A_NODE : (place + 1) * _PORTS_A_NODE]


def _command(spec: ClusterSpec, index: int, ports: list[int], address: str, folder: Path) -> list[str]:
    node = spec.nodes[index]
    manager, objects, grpc, metrics, http, environments = _ports_of(index, ports)
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats", "--node-ip-address=127.0.0.1"]
    if index == 0:
        command += ["--head", f"--port={ports[-1]}", f"--dashboard-port={ports[-2]}", f"--ray-client-server-port={ports[-3]}"]
        command += ["--include-dashboard=false", "--no-monitor", f"--temp-dir={folder}"]
    else:
        command += [f"--address={address}"]
    command += [f"--node-manager-port={manager}", f"--object-manager-port={objects}", f"--runtime-env-agent-port={environments}"]
    command += [f"--dashboard-agent-grpc-port={grpc}", f"--dashboard-agent-listen-port={http}", f"--metrics-export-port={metrics}"]
    command += ["--min-worker-port=0", "--max-worker-port=0", "--include-log-monitor=false"]
    command += [f"--num-cpus={node.cpu:g}", f"--num-gpus={node.gpu:g}", f"--object-store-memory={spec.object_store_bytes}"]
    if node.memory_bytes is not None:
        command.append(f"--memory={node.memory_bytes}")
    if node.labels:
        command.append("--labels=" + ",".join(f"{key}={value}" for key, value in node.labels.items()))
    if node.resources:
        command.append(f"--resources={json.dumps(dict(node.resources))}")
    return command


def _environment(python_path: tuple[str, ...]) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in _UNWANTED}
    folders = [str(Path(folder).resolve()) for folder in python_path]
    if "PYTHONPATH" in inherited:
        folders.append(inherited["PYTHONPATH"])
    return {**_ENVIRONMENT, **inherited, **({"PYTHONPATH": os.pathsep.join(folders)} if folders else {})}


def _kept_workers(node: NodeSpec) -> dict[str, str]:
    """As many idle workers are kept as the node has CPUs. Ray's own measure is its *available* CPUs, and a placement group that is kept
    for the next stage leaves none: every worker would end after a second of silence, and the next stage wait a second for new ones."""
    return {"RAY_num_workers_soft_limit": str(max(1, int(node.cpu)))}


def _log_file(folder: Path, index: int) -> Path:
    return folder / f"node-{index}.log"


def _await_up(
    processes: Mapping[int, subprocess.Popen[bytes]],
    folder: Path,
    logs_kept_in: Path | None,
    is_wanted: Callable[[], bool],
    since_s: float = 0.0,
) -> None:
    """Wait for these nodes, by their places.

    Args:
        since_s: Logs that were not written since then are about nodes that have died before; seconds since the epoch.

    Raises:
        RuntimeDoorError: One did not come up; NodeTooSlow when it is worth another try.
    """
    begun = looked = time.monotonic()
    coming = dict(processes)
    while coming:
        _check_wanted(is_wanted)
        for index, process in tuple(coming.items()):
            log = _log_file(folder, index)
            if process.poll() is not None:
                raise _failure(f"ended (exit code {process.returncode}) before it was up", log, logs_kept_in, since_s)
            if _UP in log.read_text(errors="replace"):
                del coming[index]
        now = time.monotonic()
        if coming and now > looked + _LOOK_S:  # `ray start` waits for a raylet that is dead as long as for one that is slow.
            looked = now
            if node_logs.is_too_slow(node_logs.fatal_line(folder, since_s)):
                raise _failure("ended before it was up", _log_file(folder, min(coming)), logs_kept_in, since_s)
        if coming and now > begun + START_S_MAX:
            raise _failure(f"was not up within {START_S_MAX:.0f} s", _log_file(folder, min(coming)), logs_kept_in, since_s)
        time.sleep(_POLL_S)


def _check_wanted(is_wanted: Callable[[], bool]) -> None:
    if not is_wanted():
        raise NotWanted("the Ray cluster that was starting is not wanted any more")


def _await_sockets(processes: list[subprocess.Popen[bytes]], folder: Path, is_wanted: Callable[[], bool]) -> None:
    """Wait until all of these nodes have their sockets: Ray names them with the first number that is free, and two nodes that
    start at the same moment would take the same. A node that ends before is told by `_await_up`."""
    deadline = time.monotonic() + START_S_MAX
    while time.monotonic() < deadline and all(process.poll() is None for process in processes):
        _check_wanted(is_wanted)
        if len(list(folder.glob(f"{SESSION}/sockets/raylet*"))) >= len(processes):
            return
        time.sleep(_POLL_S)


def _await_path(path: Path, process: subprocess.Popen[bytes], is_wanted: Callable[[], bool]) -> None:
    """Wait until it is there. A process that ends before is told by `_await_up`."""
    deadline = time.monotonic() + START_S_MAX
    while not path.exists() and process.poll() is None and time.monotonic() < deadline:
        _check_wanted(is_wanted)
        time.sleep(_POLL_S)


def _failure(what: str, log: Path, logs_kept_in: Path | None, since_s: float) -> RuntimeDoorError:
    fatal = node_logs.fatal_line(log.parent, since_s)
    kept = f" Its logs are kept in {logs_kept_in}." if logs_kept_in is not None else ""
    end = fatal or "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:])
    if node_logs.is_too_slow(end):
        return NodeTooSlow(
            f"a Ray node {what}: most likely this machine is too busy, for Ray gives each part of a node 15 to 30 s to start, which no "
            f"setting changes. Try again when it has less to do, or with fewer nodes.{kept} Ray says: {end}"
        )
    return RuntimeDoorError(
        f"a Ray node {what}. Check that `ray` of this Python works (`python -m ray.scripts.scripts --version`), that memory and the disk "
        f"under {log.parent.parent} are not full, and that no firewall blocks 127.0.0.1.{kept} "
        + (f"Ray says: {end}" if fatal else f"The end of its log:\n{end}")
    )
