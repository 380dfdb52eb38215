"""Ray clusters that a stack starts: in parallel, watched, and stopped with the stack."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

from federation.config.loading import FederationConfig
from mesh.core.counting import counted
from mesh.errors import RuntimeAdapterError
from mesh.ray.cluster.cluster_spec import ClusterNodeSpec, ClusterSpec
from mesh.ray.cluster.node_start import node_environment
from mesh.ray.cluster.own_cluster import OwnCluster
from mesh.ray.cluster.run_as import RunAs, share_folder
from serve_apps.standalone import stale_folders
from serve_apps.standalone.managed import LOOK_S
from serve_apps.standalone.stack_folder import StackFolder

#: Cores that a starting cluster keeps busy.
CORES_A_START = 4
#: Subfolder of the state folder with one token file per running cluster.
TOKENS = "tokens"


def users_of(config: FederationConfig) -> dict[str, RunAs]:
    """Return the user of each cluster that `up` starts; empty if the file names none.

    If the file names one, all clusters share the folder of large values: clusters without `user` write files that the others can read.

    Raises:
        RuntimeAdapterError: A user does not exist, or cannot access what its processes need; the message names the key and the remedy.
    """
    own = {name: section.user for name, section in config.clusters.items() if section.address is None}
    if not any(own.values()):
        return {}
    found: dict[str, RunAs] = {}
    for name, user in own.items():
        try:
            found[name] = RunAs.find(user)
            if user is not None:
                _check(config, found[name])
        except RuntimeAdapterError as wrong:
            raise RuntimeAdapterError(config.message_at(("clusters", name, "user"), str(wrong))) from None
    return found


def _check(config: FederationConfig, user: RunAs) -> None:
    storage = urlsplit(config.storage.url or "")
    folders = [Path(unquote(storage.path))] if storage.scheme == "file" else []
    for folder in folders:
        share_folder(folder, user)
    user.check_reach(node_environment(config.import_paths), folders)


class OwnClusters:
    """Ray clusters of one stack; not thread-safe.

    Args:
        say: Called with each step, in words; may raise to end the start.
        check_wanted: Called while clusters start; raises if they are no longer wanted.
        is_wanted: Returns the same as a value, for the threads that start clusters.
    """

    def __init__(
        self,
        config: FederationConfig,
        folder: StackFolder,
        *,
        say: Callable[[str], None],
        check_wanted: Callable[[], None],
        is_wanted: Callable[[], bool],
    ) -> None:
        self.running: dict[str, OwnCluster] = {}  #: By name; a dead cluster stays until its replacement runs.
        self._config = config
        self._folder = folder
        self._say = say
        self._check_wanted = check_wanted
        self._is_wanted = is_wanted
        self._users: dict[str, RunAs] = {}
        self._node_starts: dict[str, Future[None]] = {}  #: Worker nodes that are restarting.
        # Children die with the thread that started them (see `bound_to_parent`), so these threads live as long as the stack.
        self._starters = ThreadPoolExecutor(max_workers=_at_once(len(config.clusters)), thread_name_prefix="starter")

    def start(self) -> None:
        """Start all clusters and return when they are up.

        Raises:
            RuntimeAdapterError: A cluster did not come up, or its user does not exist; started clusters run until `stop`.
        """
        self._users = users_of(self._config)
        names = [name for name, section in self._config.clusters.items() if section.address is None]
        started = [self._starters.submit(self._start, name) for name in names]
        try:
            for future in started:
                while not future.done():
                    wait([future], timeout=LOOK_S)
                    self._check_wanted()
                future.result()
        except BaseException:
            for future in started:
                future.cancel()
            raise
        self._note_folders()

    def restart(self, name: str) -> None:
        """End the rest of a dead cluster and start it again. Raises RuntimeAdapterError if it does not come up."""
        self.running[name].stop()
        self._starters.submit(self._start, name).result()
        self._note_folders()

    def dead(self) -> tuple[str, ...]:
        """Return the clusters that have died."""
        return tuple(name for name, cluster in self.running.items() if not cluster.alive())

    def dead_nodes(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """Yield dead worker nodes: their description, and a function that restarts the node and returns at once.

        The head, and work on other nodes, continue while a node starts.
        """
        for name, cluster in tuple(self.running.items()):
            for place in cluster.dead_workers() if cluster.alive() else ():
                node = f"cluster {name}: worker node {place}"
                if node not in self._node_starts:
                    yield node, partial(self._restart_node, node, cluster, place)

    def look_at_node_starts(self) -> None:
        """Report which worker nodes are up again, and which failed to start."""
        for node, start in tuple(self._node_starts.items()):
            if start.done():
                del self._node_starts[node]
                failure = start.exception()
                self._say(f"{node} is up again" if failure is None else f"{node} failed to start: {failure}")

    def stop(self) -> None:
        """Stop all clusters, last first. An error does not keep the others from being stopped, and is raised at the end."""
        self._starters.shutdown(wait=True)  # A cluster that is still starting gives up by itself.
        clusters, self.running = self.running, {}
        with ExitStack() as left:
            for cluster in reversed(clusters.values()):
                left.callback(cluster.stop)

    def _note_folders(self) -> None:
        stale_folders.note(self._folder, (cluster.folder for cluster in self.running.values()))

    def _start(self, name: str) -> None:
        section = self._config.clusters[name]
        nodes = tuple(
            ClusterNodeSpec(
                cpu=node.cpu, gpu=node.gpu, memory_bytes=node.memory_bytes, labels=dict(node.labels), resources=_as_written(node.resources)
            )
            for node in section.nodes or ()
        )
        self._say(f"cluster {name}: starting Ray, {counted(len(nodes), 'node')}")
        self.running[name] = OwnCluster.start(
            ClusterSpec(nodes=nodes, object_store_bytes=section.object_store_bytes),
            token_file=self._folder.path / TOKENS / name,
            run_as=self._users.get(name),
            python_path=self._config.import_paths,
            logs_kept_in=self._folder.path / "logs" / f"cluster-{name}",
            is_wanted=self._is_wanted,
        )

    def _restart_node(self, node: str, cluster: OwnCluster, place: int) -> None:
        self._node_starts[node] = self._starters.submit(cluster.restart_worker, place, is_wanted=self._is_wanted)


def _at_once(clusters: int) -> int:
    """Return how many clusters start in parallel: a starting cluster keeps several cores busy, and with few cores all would be too slow."""
    return max(1, min(clusters, (os.cpu_count() or 1) // CORES_A_START))


def _as_written(resources: Mapping[str, int | float | str]) -> dict[str, float]:
    """Return custom resources in Ray's own unit."""
    return {name: float(amount) for name, amount in resources.items()}
