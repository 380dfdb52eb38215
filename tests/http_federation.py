"""A federation over two Ray clusters: `up` starts one, and a mesh on the other has joined over HTTP with a key."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from shared_clusters import PYTHON_PATH, REPOSITORY
from sharing import SHARING

from federation.config.loading import load_config
from mesh.ray.cluster.cluster_spec import ClusterNodeSpec, ClusterSpec
from mesh.ray.cluster.cluster_token import token_environment
from mesh.ray.cluster.own_cluster import OwnCluster
from serve_apps.standalone.stack import Stack
from serve_apps.standalone.stack_folder import StackFolder

#: Limit of every wait for a process.
LIMIT_S = 120.0
#: The cluster of `lab`. Only its second node has a GPU.
LAB_NODES = ClusterSpec(
    nodes=(ClusterNodeSpec(cpu=3, labels={"rack": "a"}), ClusterNodeSpec(cpu=3, gpu=1, labels={"rack": "b"})),
    object_store_bytes=80 * 2**20,
)
#: Pools of `lab` whose slots each policy places: `near_full_gpu` and `gpu_last` avoid the GPU.
POLICIES = {"spread": "spread", "python": "near_full_gpu", "wasm": "gpu_last", "sum": "0.7*near_full_gpu+0.3*spread", "broken": "broken"}
LAB_POOLS = "".join(f"\n      {name}: {{flavor: {name}, capacity: {{cpu: 0.4}}, policy: {policy!r}}}" for name, policy in POLICIES.items())
#: Keeps tenants of one flavor off the other pools.
NO_STANDARD = "standard: {cpu: {nominal: 0, borrowing_limit: 0}}"
#: `east` has 4 CPUs on two nodes of 2, over HTTP; `west` has one node of 2. No mesh of the file uses the node of 3.
CONFIG = f"""
federation: {{name: tests, lease_ttl: 20s, heartbeat: 500ms, lease_grace: 1s, inline_limit: 4KiB}}
root: {{cluster: local, port: 18100}}
routing: {{probation: 500ms, probation_max: 2s}}
import_paths: ["{REPOSITORY}", "{REPOSITORY}/tests/integration"]
clusters:
  local:
    shared: true
    object_store: 120MiB
    nodes:
      - {{cpu: 2, labels: {{zone: east}}}}
      - {{cpu: 2, labels: {{zone: east}}}}
      - {{cpu: 2, labels: {{zone: west}}}}
      - {{cpu: 3, labels: {{zone: far}}}}
  remote: {{address: "ADDRESS", token_file: "TOKEN"}}
flavors: {{standard: {{}}, urgent: {{}}, {", ".join(f"{name}: {{}}" for name in POLICIES)}}}
meshes:
  east:
    cluster: local
    link: http
    labels: {{zone: east}}
    node_labels: {{zone: east}}
    pools: {{general: {{flavor: standard, capacity: {{cpu: 4}}}}}}
  west:
    cluster: local
    labels: {{zone: west, either: "yes"}}
    node_labels: {{zone: west}}
    pools: {{general: {{flavor: standard, capacity: {{cpu: 2}}}}}}
  lab:
    link: joins
    cluster: remote
    labels: {{zone: lab, either: "yes"}}
    plugins:
      near_full_gpu: own_plugins:near_full_gpu
      gpu_last: {REPOSITORY}/examples/plugins/gpu_last.wat
      broken: own_plugins:broken
    pools:
      general: {{flavor: standard, capacity: {{cpu: 2}}}}
      urgent: {{flavor: urgent, capacity: {{cpu: 2}}, groups: {{reserved: [{{cpu: 1}}], reserved_priority: 8}}}}{LAB_POOLS}
tenants:
  acme:   # the only tenant at the top: a mesh on `local` that is not in this file would not be `shared`
    quotas: {{standard: {{cpu: {{nominal: 8}}}}}}
    functions: ["examples.*:*"]
    pickled_code: true
    tenants:
      shared:
        quotas: {{standard: {{cpu: {{nominal: 0, borrowing_limit: 0}}}}}}
        tenants:
          owner: {{quotas: {{standard: {{cpu: {{nominal: 2}}}}}}}}
          guest: {{}}
{"".join(f"      {name}: {{quotas: {{{name}: {{cpu: {{nominal: 2}}}}, {NO_STANDARD}}}}}{chr(10)}" for name in ("urgent", *POLICIES))}
quota: {{min_run: 200ms}}
"""


def command(*arguments: str) -> list[str]:
    """Return a command of the terminal."""
    return [sys.executable, "-m", "serve_apps.cli", *arguments]


def environment_of(cluster: OwnCluster) -> dict[str, str]:
    """Return the environment of a process on this cluster."""
    return {**os.environ, "PYTHONPATH": str(REPOSITORY), **token_environment(cluster.token_file)}


def key_file_for(mesh: str, stack: Stack, folder: Path) -> Path:
    """Create a key of the mesh, as its operator does, in a file of its own."""
    created = subprocess.run(
        command("keys", "create", "--mesh", mesh, "--state-dir", str(stack.folder.path)), capture_output=True, text=True, check=True
    )
    file = folder / f"{mesh}.key"
    file.touch(mode=0o600)
    file.write_text(created.stdout)
    return file


@dataclass
class Joined:
    """The process of a mesh that `schedulemesh join` has started, on a running cluster."""

    cluster: OwnCluster
    arguments: list[str]
    log: Path
    process: subprocess.Popen[str] = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Start the process and wait until the mesh is up, as a service manager does after a failure."""
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                command("join", *self.arguments), stdout=subprocess.PIPE, stderr=log, text=True, env=environment_of(self.cluster)
            )
        assert self.process.stdout is not None
        if " is up on the Ray cluster " not in self.process.stdout.readline():
            self.kill()
            raise AssertionError(self.log.read_text())

    def kill(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.communicate()

    def stop(self) -> int:
        """End the mesh in good order, unless it has ended, and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode


@dataclass(frozen=True)
class HttpFederation:
    """The running stack, and the mesh `lab` on a cluster of its own."""

    stack: Stack
    lab: Joined
    config: str


@contextmanager
def running(folder: Path) -> Iterator[HttpFederation]:
    """Run the federation. Nobody watches its processes: a test that ends one starts it again."""
    with ExitStack() as ends:
        remote = OwnCluster.start(LAB_NODES, python_path=PYTHON_PATH)
        ends.callback(remote.kill)
        config = CONFIG.replace("ADDRESS", remote.address).replace("TOKEN", str(remote.token_file))
        owned = ends.enter_context(StackFolder(folder / "state"))
        stack = Stack(load_config(config, source="tests/http_federation.py"), owned, say=lambda _: None)
        stack.start()
        ends.callback(stack.stop)
        (folder / "federation.yaml").write_text(config)
        arguments = ["--root", stack.address, "--key-file", str(key_file_for("lab", stack, folder)), "--mesh", "lab"]
        arguments += ["--ray", remote.address, "--config", str(folder / "federation.yaml")]
        lab = Joined(remote, arguments, folder / "lab.log")
        ends.callback(lab.stop)
        yield HttpFederation(stack, lab, config)


def shared_federation(folders: pytest.TempPathFactory) -> HttpFederation:
    """Return the federation over two clusters; files that follow each other share it."""
    return SHARING.get("http_federation", "over HTTP", lambda: running(folders.mktemp("http")))
