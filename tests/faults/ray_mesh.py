"""Production child processes on a real Ray cluster of their own, for rows about the cluster under a mesh."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
from faults.bed import LAB, RUN, SLOT, tree_of
from faults.nursery import ROOT
from faults.parts import record_of
from faults.server import Server
from patience import eventually

from federation.dispatch import STAGE_MESSAGES
from federation.errors import StoreUnavailable
from federation.leases import LeaseTerms
from mesh.core.ids import MeshId, NodeId, StageId
from mesh.core.reasons import Reason
from mesh.core.wire import decode
from mesh.ray.cluster.cluster_spec import ClusterNodeSpec, ClusterSpec
from mesh.ray.cluster.cluster_token import token_environment
from mesh.ray.cluster.own_cluster import OwnCluster
from mesh.stages.messages import StageMessage
from mesh.stages.spec import StageSpec, TaskSpec
from serve_apps.processes.settings import ChildSettings, StoreSettings
from serve_apps.processes.stores import Stores, open_stores

#: Real Ray on a busy machine needs more time than work that is a plain process.
RAY_TERMS = LeaseTerms(ttl_ms=10_000, grace_ms=2_000)
RAY_PATIENCE_S = 120.0
TICK_S = 0.2


class RayMesh:
    """Production child processes of meshes that share a cluster of their own, and a thread that sweeps.

    Args:
        names: The meshes; `west` is the one of `submit`.
        sweeps: Whether sessions are swept here, as a root would do.
    """

    def __init__(self, server: Server, folder: Path, *, names: tuple[str, ...] = ("west",), sweeps: bool = True) -> None:
        self.storage_url = (folder / "values").as_uri()
        self.stores: Stores = open_stores(server.url, lease_ttl_ms=RAY_TERMS.ttl_ms, lease_grace_ms=RAY_TERMS.grace_ms, founding=True)
        self.stores.ledger.configure(tree_of(lab=2 * len(names)))
        nodes = (ClusterNodeSpec(cpu=2 * len(names)),)
        self.cluster = OwnCluster.start(ClusterSpec(nodes=nodes, object_store_bytes=100 * 2**20), python_path=(str(ROOT),))
        self.children = {name: self._child(server, folder, name) for name in names}
        self.child = self.children[names[-1]]
        self._over = threading.Event()
        self._sweeper = threading.Thread(target=self._sweep if sweeps else self._over.wait)
        self._sweeper.start()
        eventually(lambda: {view.record.mesh for view in self.stores.ledger.snapshot().meshes if view.alive} == set(names), RAY_PATIENCE_S)

    def _child(self, server: Server, folder: Path, name: str) -> subprocess.Popen[bytes]:
        settings = ChildSettings(
            store=StoreSettings(redis_url=server.url, lease_ttl_ms=RAY_TERMS.ttl_ms, lease_grace_ms=RAY_TERMS.grace_ms),
            link=None,
            ray_address=self.cluster.address,
            heartbeat_ms=1_000,
            storage_url=self.storage_url,
            record=record_of(name, 2),
            node_labels={},
            inline_limit_bytes=1_000,
            warm_runners=1,
        )
        settings.write(folder / f"{name}.json")
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0", **token_environment(self.cluster.token_file)}
        with (folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "serve_apps.child_process", str(folder / f"{name}.json")],
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _sweep(self) -> None:
        while not self._over.wait(TICK_S):
            with contextlib.suppress(StoreUnavailable):  # A busy machine: the next one comes soon.
                self.stores.ledger.sweep()

    def submit(self, name: str, seconds: float = 600, **ray_options: object) -> None:
        """Submit a stage of two tasks that sleep one after the other."""
        first, second = NodeId("n"), NodeId("m")
        function, options = "call:time:sleep", {"max_retries": 0, **ray_options}
        tasks = (
            TaskSpec(node=first, attempt=1, function=function, args=(seconds,), resources=SLOT, ray_options=options),
            TaskSpec(node=second, attempt=1, function=function, args=(0,), after=(first,), resources=SLOT, ray_options=options),
        )
        spec = StageSpec(stage=StageId(name), run=RUN, tenant=LAB, tasks=tasks, slot=SLOT, width=1)
        self.stores.queue.submit(MeshId("west"), spec)

    def reported_for(self, stage: str) -> list[StageMessage]:
        """Return the messages about a stage."""
        entries = self.stores.queue.inbox(0, 10_000)
        return [message for entry in entries for message in decode(STAGE_MESSAGES, entry.body) if message.stage == stage]

    def failures_of(self, stage: str) -> list[Reason]:
        """Return the failures of its nodes, once it has ended."""
        eventually(lambda: [message.kind for message in self.reported_for(stage)][-1:] == ["stage_ended"], RAY_PATIENCE_S)
        return [message.failure.reason for message in self.reported_for(stage) if message.kind == "node_failed"]

    def runs(self, stage: str) -> bool:
        """Return whether one of its nodes has reported its start."""
        return any(message.kind == "node_started" for message in self.reported_for(stage))

    def workers(self, what: str = "ray::sleep") -> list[psutil.Process]:
        """Return Ray's workers that run this task or actor."""
        found = []
        for process in psutil.process_iter(["cmdline"]):
            with contextlib.suppress(psutil.NoSuchProcess):
                if what in " ".join(process.info["cmdline"] or []) and self._is_ours(process):
                    found.append(process)
        return found

    def _is_ours(self, process: psutil.Process) -> bool:
        return str(self.cluster.folder) in " ".join(process.parent().cmdline()) if process.parent() else False

    def close(self) -> None:
        """End all processes."""
        self._over.set()
        self._sweeper.join()
        for child in self.children.values():
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        self.cluster.stop()
        self.stores.client.close()
