"""One node of a cluster: its command, its environment, and the wait until it is up.

A node is a `ray start --block` in its own session. Raylet, agents and workers stay in this session, whatever they call themselves, so
the session identifies the processes of a node.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mesh.errors import RuntimeAdapterError
from mesh.ray.cluster import node_logs
from mesh.ray.cluster.cluster_spec import ClusterNodeSpec, ClusterSpec
from mesh.ray.cluster.node_logs import RAY_FOLDER, SESSION
from mesh.ray.cluster.process import bound_to_parent
from mesh.ray.cluster.run_as import RunAs

START_S_MAX = 90.0
LOG_LINES_SHOWN = 20
#: Pause between two looks at nodes that start or end; seconds.
POLL_S = 0.03
#: Pause between two looks into the logs of starting nodes; seconds.
_LOOK_S = 1.0
PORTS_A_NODE = 6
#: Writes files, given as pairs of path and content, with the rights of another user.
_WRITE = """
import pathlib, sys
for path, text in zip(sys.argv[1::2], sys.argv[2::2]):
    pathlib.Path(path).write_text(text, encoding="ascii")
"""
#: Time limit of that program; seconds. A raylet waits for the files as long.
_WRITE_S_MAX = 15.0
#: Sets the id of a starting node; Ray has no option for it.
_NODE_ID = "RAY_OVERRIDE_NODE_ID_FOR_TESTING"
#: Text that `ray start` prints when a node is up.
_UP = "Ray runtime started"

#: Keep a cluster small and quick to start. Variables of the caller's environment take precedence.
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_event_stats": "0",
    # Give workers the same CPU priority as other processes: about 1.3-2 times the task rate on a busy machine.
    "RAY_worker_niceness": "0",
    # The dashboard is off. Do not wait for the rest of its process: saves about a second of a start.
    "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "0",
    # The rest of the dashboard process would serve metrics on all interfaces. No port has this number, so none is opened.
    "DASHBOARD_METRIC_PORT": "-1",
    # Ray waits 30 s by default for the control service and the agents; wait as long as a start may take here.
    "RAY_gcs_server_port_wait_time_s": str(int(START_S_MAX)),
    "RAY_agent_register_timeout_ms": str(int(START_S_MAX * 1000)),
    # End a node at once. Ray would wait up to 30 s for actors that nothing ends, even after the death of the process that started it.
    "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
    "NO_COLOR": "1",
}
#: These would lead `ray start` to another cluster, slow each worker's start, or give tenants' code the keys of the user that runs `up`.
_UNWANTED = ("RAY_ADDRESS", "RAY_TMPDIR", "PYTHONDONTWRITEBYTECODE", "SCHEDULEMESH_API_KEY", "SCHEDULEMESH_REDIS_URL")


class NodeTooSlow(RuntimeAdapterError):
    """A node ended itself since one of its processes did not start in time: the machine is overloaded."""


class NotWanted(RuntimeAdapterError):
    """A start was cancelled by its caller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """Start parameters of the nodes of one cluster; a node's place is its index in `spec`."""

    spec: ClusterSpec
    address: str  #: Address of the head's control service.
    folder: Path
    environment: Mapping[str, str]  #: Variables of every node.
    run_as: RunAs | None

    def spawn(self, place: int, ports: Sequence[int]) -> tuple[subprocess.Popen[bytes], Callable[[], None]]:
        """Start a node. Return its process, and a function that publishes the ports of the node's agents.

        Call the function once the cluster has its session folder.

        Args:
            ports: `PORTS_A_NODE` ports of the node; two more for the head.
        """
        node_id = secrets.token_hex(28)
        log = os.open(_log_file(self.folder, place), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(log, "wb") as sink:
            process = subprocess.Popen(
                bound_to_parent(_command(self.spec, place, ports, self.address, self.folder / RAY_FOLDER)),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env={**_kept_workers(self.spec.nodes[place]), **self.environment, _NODE_ID: node_id},
                start_new_session=True,
                **({"cwd": self.folder / RAY_FOLDER, **self.run_as.process()} if self.run_as is not None else {}),
            )
        return process, partial(publish_agent_ports, self.folder / SESSION, node_id, ports, self.environment, self.run_as)


def publish_agent_ports(session: Path, node_id: str, ports: Sequence[int], environment: Mapping[str, str], run_as: RunAs | None) -> None:
    """Write the port files that the agents of the node write when they are up, before its raylet reads them.

    Without the files the raylet ends itself after 15 s, for which Ray has no setting, and an agent takes longer on a busy machine. The
    raylet retries an agent that is not up yet.
    """
    _, _, grpc, _, http, environments, *_ = ports
    published = {
        "metrics_agent_port": grpc,
        "metrics_export_port": -1,  # No metrics are collected.
        "dashboard_agent_listen_port": http,
        "runtime_env_agent_port": environments,
    }
    files = {session / f"{name}_{node_id}": str(port) for name, port in published.items()}
    # The head may have ended before it made the folder: `await_up` reports the reason.
    if run_as is None:
        with contextlib.suppress(FileNotFoundError):
            for file, port in files.items():
                file.write_text(port, encoding="ascii")
        return
    arguments = [str(part) for pair in files.items() for part in pair]
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            [sys.executable, "-I", "-S", "-c", _WRITE, *arguments],
            cwd="/",
            env=environment,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=_WRITE_S_MAX,
            **run_as.process(),
        )


def _command(spec: ClusterSpec, index: int, ports: Sequence[int], address: str, folder: Path) -> list[str]:
    node = spec.nodes[index]
    manager, objects, grpc, metrics, http, environments = ports[:PORTS_A_NODE]
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats", "--node-ip-address=127.0.0.1"]
    if index == 0:
        command += [
            "--head",
            f"--port={address.rpartition(':')[2]}",
            f"--dashboard-port={ports[-1]}",
            f"--ray-client-server-port={ports[-2]}",
        ]
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


def node_environment(python_path: tuple[str, ...]) -> dict[str, str]:
    """Return the environment of all nodes, and so of tenants' code: this process' own without its keys.

    Args:
        python_path: Folders that workers import from.
    """
    inherited = {name: value for name, value in os.environ.items() if name not in _UNWANTED}
    folders = [str(Path(folder).resolve()) for folder in python_path]
    if "PYTHONPATH" in inherited:
        folders.append(inherited["PYTHONPATH"])
    return {**_ENVIRONMENT, **inherited, **({"PYTHONPATH": os.pathsep.join(folders)} if folders else {})}


def _kept_workers(node: ClusterNodeSpec) -> dict[str, str]:
    """Keep as many idle workers as the node has CPUs.

    Ray's default is its *available* CPUs, and a placement group that is kept for the next stage leaves none. Every worker would then end
    after an idle second, and the next stage would wait a second for new workers.
    """
    return {"RAY_num_workers_soft_limit": str(max(1, int(node.cpu)))}


def _log_file(folder: Path, index: int) -> Path:
    return folder / f"node-{index}.log"


def await_up(
    processes: Mapping[int, subprocess.Popen[bytes]],
    folder: Path,
    logs_kept_in: Path | None,
    is_wanted: Callable[[], bool],
    since_s: float = 0.0,
) -> None:
    """Wait for these nodes, by their places.

    Args:
        since_s: Ignore logs last written before this time, which are about nodes that died before; seconds since the epoch.

    Raises:
        RuntimeAdapterError: A node did not come up; NodeTooSlow when another try may succeed.
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
        if coming and now > looked + _LOOK_S:  # `ray start` waits for a dead raylet as long as for a slow one.
            looked = now
            if node_logs.is_too_slow(node_logs.fatal_line(folder, since_s)):
                raise _failure("ended before it was up", _log_file(folder, min(coming)), logs_kept_in, since_s)
        if coming and now > begun + START_S_MAX:
            raise _failure(f"was not up within {START_S_MAX:.0f} s", _log_file(folder, min(coming)), logs_kept_in, since_s)
        time.sleep(POLL_S)


def _check_wanted(is_wanted: Callable[[], bool]) -> None:
    if not is_wanted():
        raise NotWanted("the start of the Ray cluster was cancelled")


def await_start_of(part: Callable[[], bool], processes: Iterable[subprocess.Popen[bytes]], is_wanted: Callable[[], bool]) -> None:
    """Wait until this part of a cluster exists. `await_up` reports a node that ends before."""
    nodes, deadline = tuple(processes), time.monotonic() + START_S_MAX
    while not part() and all(process.poll() is None for process in nodes) and time.monotonic() < deadline:
        _check_wanted(is_wanted)
        time.sleep(POLL_S)


def _failure(what: str, log: Path, logs_kept_in: Path | None, since_s: float) -> RuntimeAdapterError:
    fatal = node_logs.fatal_line(log.parent, since_s)
    kept = f" Its logs are kept in {logs_kept_in}." if logs_kept_in is not None else ""
    end = fatal or "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:])
    if node_logs.is_too_slow(end):
        return NodeTooSlow(
            f"a Ray node {what}: most likely this machine is overloaded. Ray gives each part of a node 15 to 30 s to start, and has no "
            f"setting for it. Try again when the load is lower, or with fewer nodes.{kept} Ray says: {end}"
        )
    return RuntimeAdapterError(
        f"a Ray node {what}. Check that `ray` of this Python works (`python -m ray.scripts.scripts --version`), that memory and the disk "
        f"under {log.parent.parent} are not full, and that no firewall blocks 127.0.0.1.{kept} "
        + (f"Ray says: {end}" if fatal else f"The end of its log:\n{end}")
    )
