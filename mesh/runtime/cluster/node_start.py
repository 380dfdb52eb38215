"""One node of a cluster: its command, its environment, and the wait until it is up.

A node is a `ray start --block` in a session of its own. The session is how its processes are found again: raylet, agents and workers
stay in it, whatever they call themselves.
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
from mesh.runtime.cluster import node_logs
from mesh.runtime.cluster.cluster_spec import ClusterNodeSpec, ClusterSpec
from mesh.runtime.cluster.node_logs import RAY_FOLDER, SESSION
from mesh.runtime.cluster.process import bound_to_parent
from mesh.runtime.cluster.run_as import RunAs

START_S_MAX = 90.0
LOG_LINES_SHOWN = 20
#: Between two looks at nodes that come up or end.
POLL_S = 0.03
#: Between two looks into the logs of nodes that are coming up.
_LOOK_S = 1.0
PORTS_A_NODE = 6
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


class NodeTooSlow(RuntimeAdapterError):
    """A node ended itself since a part of it had not started in time: the machine has too much to do."""


class NotWanted(RuntimeAdapterError):
    """A start was broken off, since whoever had begun it has changed his mind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """The nodes of one cluster, by their places in its `spec`: how each is started."""

    spec: ClusterSpec
    address: str  #: Of the head's control service.
    folder: Path
    environment: Mapping[str, str]  #: Of every node.
    run_as: RunAs | None

    def spawn(self, place: int, ports: Sequence[int]) -> tuple[subprocess.Popen[bytes], Callable[[], None]]:
        """The process, and what to call once the cluster has its session folder: it publishes the ports of the node's agents.

        Args:
            ports: Its own `PORTS_A_NODE`; for the head two more.
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
        return process, partial(_publish_agent_ports, self.folder / SESSION, node_id, ports, self.environment, self.run_as)


def _publish_agent_ports(session: Path, node_id: str, ports: Sequence[int], environment: Mapping[str, str], run_as: RunAs | None) -> None:
    """Write what the agents of the node write when they are up, before its raylet looks: it ends itself after 15 s without, and Ray has
    no setting for that. An agent takes longer on a busy machine; the raylet asks an agent that is not up yet again."""
    _, _, grpc, _, http, environments, *_ = ports
    published = {
        "metrics_agent_port": grpc,
        "metrics_export_port": -1,  # No figures are collected.
        "dashboard_agent_listen_port": http,
        "runtime_env_agent_port": environments,
    }
    files = {session / f"{name}_{node_id}": str(port) for name, port in published.items()}
    # The head may have ended before it made the folder: `await_up` tells why.
    if run_as is None:
        with contextlib.suppress(FileNotFoundError):
            for file, port in files.items():
                file.write_text(port, encoding="ascii")
        return
    reported = [str(part) for pair in files.items() for part in pair]
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            [sys.executable, "-I", "-S", "-c", _WRITE, *reported],
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
    """Of all nodes, and with it of tenants' code: this process' own without its keys.

    Args:
        python_path: Folders that workers import from.
    """
    inherited = {name: value for name, value in os.environ.items() if name not in _UNWANTED}
    folders = [str(Path(folder).resolve()) for folder in python_path]
    if "PYTHONPATH" in inherited:
        folders.append(inherited["PYTHONPATH"])
    return {**_ENVIRONMENT, **inherited, **({"PYTHONPATH": os.pathsep.join(folders)} if folders else {})}


def _kept_workers(node: ClusterNodeSpec) -> dict[str, str]:
    """As many idle workers are kept as the node has CPUs. Ray's own measure is its *available* CPUs, and a placement group that is kept
    for the next stage leaves none: every worker would end after a second of silence, and the next stage wait a second for new ones."""
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
        since_s: Logs that were not written since then are about nodes that have died before; seconds since the epoch.

    Raises:
        RuntimeAdapterError: One did not come up; NodeTooSlow when it is worth another try.
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
        time.sleep(POLL_S)


def _check_wanted(is_wanted: Callable[[], bool]) -> None:
    if not is_wanted():
        raise NotWanted("the Ray cluster that was starting is not wanted any more")


def await_start_of(part: Callable[[], bool], processes: Iterable[subprocess.Popen[bytes]], is_wanted: Callable[[], bool]) -> None:
    """Wait until this part of a cluster is there. A node that ends before is told by `await_up`."""
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
            f"a Ray node {what}: most likely this machine is too busy, for Ray gives each part of a node 15 to 30 s to start, which no "
            f"setting changes. Try again when it has less to do, or with fewer nodes.{kept} Ray says: {end}"
        )
    return RuntimeAdapterError(
        f"a Ray node {what}. Check that `ray` of this Python works (`python -m ray.scripts.scripts --version`), that memory and the disk "
        f"under {log.parent.parent} are not full, and that no firewall blocks 127.0.0.1.{kept} "
        + (f"Ray says: {end}" if fatal else f"The end of its log:\n{end}")
    )
