"""Ray clusters as child processes, several side by side.

This module never uses `ray stop`, which ends every cluster of the machine. The sessions of its nodes and the name of its folder
identify the processes of a cluster.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import psutil

from mesh.errors import RuntimeAdapterError
from mesh.ray.cluster import node_logs
from mesh.ray.cluster.cluster_spec import ClusterSpec
from mesh.ray.cluster.cluster_token import token_environment, use_token, write_token
from mesh.ray.cluster.node_logs import RAY_FOLDER, SESSION
from mesh.ray.cluster.node_start import (
    POLL_S,
    PORTS_A_NODE,
    Nodes,
    NodeTooSlow,
    NotWanted,
    await_start_of,
    await_up,
    node_environment,
)
from mesh.ray.cluster.ports import promise_ports
from mesh.ray.cluster.run_as import RunAs

#: Tries to start a cluster whose nodes are too slow; see `OwnCluster.start`.
STARTS_MAX = 3
#: Time for processes to end by themselves before they are killed; seconds.
STOP_S_MAX = 2.0
#: Time for killed processes to end; seconds. On a busy machine a raylet takes a while to free its memory.
KILL_S_MAX = 60.0
#: Prefix of the names of clusters' folders.
FOLDER_PREFIX = "sm-"
#: Ray puts sockets under `<folder>/r/session_<time>_<pid>/sockets/`, and Linux limits their paths to 107 bytes.
FOLDER_BYTES_MAX = 35


class OwnCluster:
    """A running cluster with its own token.

    On Linux its processes end with the thread that started them; those of a restarted node with the thread that restarted it.
    """

    def __init__(
        self,
        address: str,
        folder: Path,
        token_file: Path,
        processes: tuple[subprocess.Popen[bytes], ...],
        nodes: Nodes | None = None,
    ) -> None:
        self.address = address  #: `127.0.0.1:port`, for `ray.init`.
        self.folder = (
            folder  #: Holds `node-<n>.log`, and the folder of Ray's own files and logs. Only Ray's folder may belong to another user.
        )
        self.token_file = token_file  #: Token that a process needs to connect; removed with the cluster.
        self._processes = processes
        self._nodes = nodes
        self._guard = threading.Lock()  #: Guards the processes: one thread may start a node while another stops all.
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
        """Start all nodes and wait until they are up.

        `ray start` gives a raylet 30 s and then ends it, which happens on an overloaded machine; Ray has no setting for it. The start is
        then repeated, up to `STARTS_MAX` tries in all, and each node starts only when the previous one is up.

        Args:
            spec: The nodes.
            token_file: File for the cluster's token; None: a file in its folder.
            run_as: The user that runs the nodes; None: the caller.
            temp_dir_parent: Parent of the cluster's folder; a short path. None: the system's.
            python_path: Folders that workers import from.
            variables: More variables for the environment of the nodes, and so of their workers.
            logs_kept_in: Folder for the logs of a failed start; None: they are removed with the cluster's folder.
            is_wanted: Called repeatedly during the start; False cancels it.

        Raises:
            RuntimeAdapterError: A node did not come up, or the start was cancelled; the message gives the reason. Only the logs are left
            behind.
            ValueError: No nodes, or the folder's path is too long.
        """
        if not spec.nodes:
            raise ValueError("a cluster needs at least one node")
        environment = {**node_environment(python_path), **(variables or {})}
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
            ports = promise_ports(PORTS_A_NODE * len(spec.nodes) + 3)
            address = f"127.0.0.1:{ports[-1]}"
            write_token(token_file)
            environment = {**environment, **token_environment(token_file)}
            (folder / RAY_FOLDER).mkdir(mode=0o700)
            if run_as is not None:
                environment |= {**run_as.environment(), **token_environment(_handed_over(folder, token_file, run_as))}
            nodes = Nodes(spec=spec, address=address, folder=folder, environment=environment, run_as=run_as)
            for place in range(len(spec.nodes)):
                if in_turn:
                    await_up(dict(enumerate(processes)), folder, logs_kept_in, is_wanted)
                await_start_of(partial(_has_sockets, folder, len(processes)), processes, is_wanted)
                own_ports = ports[PORTS_A_NODE * place : PORTS_A_NODE * (place + 1)]
                process, publish_ports = nodes.spawn(place, own_ports if place else (*own_ports, *ports[-3:-1]))
                processes.append(process)
                await_start_of((folder / SESSION).exists, (process,), is_wanted)
                publish_ports()
            await_up(dict(enumerate(processes)), folder, logs_kept_in, is_wanted)
        except BaseException as failure:
            if logs_kept_in is not None and isinstance(failure, RuntimeAdapterError) and not isinstance(failure, NotWanted):
                node_logs.keep_logs(folder, logs_kept_in)
            cls(address, folder, token_file, tuple(processes)).kill()
            raise
        return cls(address, folder, token_file, tuple(processes), nodes)

    @property
    def pids(self) -> tuple[int, ...]:
        """Ids of the nodes' first processes; each is also the id of a session."""
        return tuple(process.pid for process in self._processes)

    def alive(self) -> bool:
        """Return whether the head is up. Without the head there is no cluster.

        `ray start --block` ends within about a second when a process of its node dies.
        """
        return bool(self._processes) and self._processes[0].poll() is None

    def dead_workers(self) -> tuple[int, ...]:
        """Return the places in the `ClusterSpec` of nodes that have died, without the head."""
        return tuple(place for place, process in enumerate(self._processes) if place and process.poll() is not None)

    def restart_worker(self, place: int, *, is_wanted: Callable[[], bool] = lambda: True) -> None:
        """Start a dead node again with the same spec, and wait until it is up. Processes of the dead node are killed first.

        Args:
            place: One of `dead_workers`.
            is_wanted: Called repeatedly during the start; False cancels it.

        Raises:
            RuntimeAdapterError: The node did not come up, and nothing of it is left; or the cluster was stopped meanwhile.
            ValueError: The place is the head's, or there is no such node.
        """
        nodes = self._nodes
        if nodes is None or not 0 < place < len(nodes.spec.nodes):
            raise ValueError(f"the cluster at {self.address} has no worker node {place}")
        for dead in self._processes[place : place + 1]:  # Empty when the cluster was stopped meanwhile.
            self._end_all((dead,), by_folder=False)
        begun_s, ports = time.time(), promise_ports(PORTS_A_NODE)
        with self._guard:
            if self._is_ending:
                raise NotWanted(f"the Ray cluster at {self.address} was stopped")
            process, publish_ports = nodes.spawn(place, ports)
            self._processes = (*self._processes[:place], process, *self._processes[place + 1 :])
        publish_ports()
        try:
            await_up({place: process}, self.folder, None, is_wanted, since_s=begun_s)
        except BaseException:
            self._end_all((process,), by_folder=False)
            raise

    def _end_all(self, leaders: Sequence[subprocess.Popen[bytes]], *, by_folder: bool = True) -> None:
        """Kill the processes of these nodes until none is left: a process can start another between the look and the kill.

        Args:
            by_folder: See `_left`.
        """
        sessions, deadline = frozenset(leader.pid for leader in leaders), time.monotonic() + KILL_S_MAX
        while (left := self._left(sessions, by_folder)) or not _reaped(leaders):
            for pid in left:
                _signal(pid, signal.SIGKILL)
            if time.monotonic() > deadline:
                raise RuntimeAdapterError(f"processes {sorted(left)} of the Ray cluster at {self.address} do not end, even when killed")
            time.sleep(POLL_S)

    def connect(self, *, namespace: str | None = None) -> None:
        """Make this process a driver of the cluster until `ray.shutdown()`. The process presents the cluster's token from now on."""
        use_token(self.token_file)
        import ray  # noqa: PLC0415  takes a second, and reads the variables

        ray.init(address=self.address, namespace=namespace, log_to_driver=False, logging_level=logging.ERROR)

    def stop(self) -> None:
        """Stop the cluster with SIGTERM, kill what is left, wait for all of it, and remove the folder. Harmless to repeat."""
        leaders = self._end()
        for process in reversed(leaders):
            _signal(process.pid, signal.SIGTERM, if_running=process)
        sessions, deadline = frozenset(leader.pid for leader in leaders), time.monotonic() + STOP_S_MAX
        while (self._left(sessions) or not _reaped(leaders)) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        self._finish(leaders)

    def kill(self) -> None:
        """Send SIGKILL to all processes, wait for them, and remove the folder. Harmless to repeat."""
        self._finish(self._end())

    def _finish(self, leaders: Sequence[subprocess.Popen[bytes]]) -> None:
        self._end_all(leaders)
        self._processes = ()
        self.token_file.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end(self) -> tuple[subprocess.Popen[bytes], ...]:
        """Refuse further node starts, and return the processes of the nodes."""
        with self._guard:
            self._is_ending = True
            return self._processes

    def _left(self, sessions: frozenset[int], by_folder: bool = True) -> set[int]:
        """Return running processes of these sessions. With `by_folder` also those that have left the sessions, by the folder's name."""
        if not sessions:
            return set()
        return processes_of(sessions, str(self.folder) if by_folder else None)


def processes_of(sessions: frozenset[int], folder: str | None) -> set[int]:
    """Return the running processes of these sessions, and those that name the folder."""
    return {process.pid for process in psutil.process_iter() if _belongs(process, sessions, folder)}


def _reaped(leaders: Sequence[subprocess.Popen[bytes]]) -> bool:
    return all(leader.poll() is not None for leader in leaders)


def _has_sockets(folder: Path, nodes: int) -> bool:
    """Return whether that many nodes have their sockets.

    Ray names the sockets by the first free number, and two nodes that start at the same moment would choose the same number.
    """
    return len(list(folder.glob(f"{SESSION}/sockets/raylet*"))) >= nodes


def _belongs(process: psutil.Process, sessions: frozenset[int], folder: str | None) -> bool:
    """Return whether the process belongs to the sessions or the folder. `folder` None: check the session only."""
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return os.getsid(process.pid) in sessions or (folder is not None and any(folder in part for part in process.cmdline()))
    except (psutil.Error, ProcessLookupError, PermissionError):
        return False  # The process has ended meanwhile, or belongs to another user.


def _signal(pid: int, number: signal.Signals, *, if_running: subprocess.Popen[bytes] | None = None) -> None:
    if if_running is not None and if_running.poll() is not None:
        return  # Ended and reaped: the id may name another process by now.
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _handed_over(folder: Path, token_file: Path, run_as: RunAs) -> Path:
    """Give the user Ray's folder and a copy of the token. The user cannot reach the token's own file.

    The parent folder stays with this process. Otherwise the user could place links there, through which this process would write any
    file.
    """
    copy = folder / "auth_token_of_user"
    copy.touch(mode=0o600)
    copy.write_bytes(token_file.read_bytes())
    run_as.own(copy)
    run_as.own(folder / RAY_FOLDER)
    folder.chmod(0o711)  # The user passes through it.
    return copy
