"""Real servers in the forms that a URL can name: a cluster of masters, and a master with replica and sentinels."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import redis
from faults.server import Server, free_port
from patience import PATIENCE_S, eventually

from federation.store.redis.client import connect
from federation.store.redis.fixtures import ANSWER_MS_MAX
from mesh.ray.cluster.process import bound_to_parent

SLOTS = 16_384
SERVICE = "ledger"


class Cluster:
    """Masters without replicas, each with its part of the slots.

    Args:
        each: Makes the settings of one node, which override the defaults.
    """

    def __init__(
        self, folder: Path, *, binary: str | None = None, masters: int = 3, each: Callable[[], dict[str, str]] = dict[str, str]
    ) -> None:
        # A node that a busy machine delays for a while is not declared dead by the others, nor is the cluster.
        common = {"cluster_enabled": "yes", "cluster_node_timeout": "60000", "appendonly": "no"}
        self.settings = [{**common, **each()} for _ in range(masters)]
        self.nodes: list[Server] = []
        with ExitStack() as opened:  # A failed start ends its processes.
            opened.callback(self.close)
            for number, own in enumerate(self.settings):
                self.nodes.append(Server(folder / str(number), binary=binary, **own))
            self._join(masters)
            opened.pop_all()
        self.url = "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def _join(self, masters: int) -> None:
        first_port = self.settings[0].get("tls_port", self.nodes[0].port)  # They meet at the address that they use among themselves.
        for number, node in enumerate(self.nodes):
            first, beyond = SLOTS * number // masters, SLOTS * (number + 1) // masters
            with connect(node.url, timeout_ms=int(PATIENCE_S * 1000)) as client:  # Slots given twice are refused: no second try.
                client.execute_command("CLUSTER", "ADDSLOTS", *range(first, beyond))
                client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
                client.execute_command("CLUSTER", "MEET", "127.0.0.1", first_port)
        eventually(self._is_whole, PATIENCE_S)

    def _is_whole(self) -> bool:
        try:
            states = [node.client.execute_command("CLUSTER", "INFO") for node in self.nodes]
        except redis.RedisError:  # Delayed for longer than the client waits.
            return False
        return all(b"cluster_state:ok" in words and f"cluster_known_nodes:{len(self.nodes)}".encode() in words for words in states)

    def node_of(self, slot: int) -> Server:
        """Return the node that has the slot."""
        return self.nodes[next(n for n in range(len(self.nodes)) if slot < SLOTS * (n + 1) // len(self.nodes))]

    def close(self) -> None:
        """End every node."""
        for node in self.nodes:
            node.close()


@contextmanager
def running_cluster(folder: Path, binary: str | None = None) -> Iterator[tuple[redis.Redis, Cluster]]:
    """Run a fresh cluster during the block and yield its client."""
    cluster = Cluster(folder, binary=binary)
    try:
        with connect(cluster.url, timeout_ms=ANSWER_MS_MAX) as client:
            yield client, cluster
    finally:
        cluster.close()


class Watched:
    """A master, its replicas and sentinels; a replica takes over after the master's silence.

    Args:
        replicas: With a single one, no replica is left to wait for after it has taken over.
        down_after_ms: Silence before a takeover. Short only where the master dies: a busy machine silences live ones too.
        settings: Settings of all servers, which override the defaults.
    """

    def __init__(
        self,
        folder: Path,
        *,
        binary: str | None = None,
        replicas: int = 2,
        sentinels: int = 1,
        down_after_ms: int = 60_000,
        **settings: str,
    ) -> None:
        self._down_after_ms = down_after_ms
        common = {"min_replicas_to_write": "1", "min_replicas_max_lag": "3", "repl_diskless_sync_delay": "0", **settings}
        self._closing = ExitStack()
        with ExitStack() as opened:  # A failed start ends its processes.
            opened.callback(self._closing.close)
            self.master = self._kept(Server(folder / "master", binary=binary, **common))
            of_it = {"binary": binary, "replicaof": f"127.0.0.1 {self.master.port}"}
            self.replicas = [self._kept(Server(folder / f"replica-{number}", **of_it, **common)) for number in range(replicas)]
            eventually(lambda: self.master.client.info("replication").get("min_slaves_good_slaves") == replicas, PATIENCE_S)
            self.ports = [self._sentinel(folder / f"sentinel-{number}", sentinels // 2 + 1) for number in range(sentinels)]
            for port in self.ports:
                eventually(lambda port=port: self._knows_all(port, replicas, sentinels), PATIENCE_S)
            opened.pop_all()
        self.url = f"redis+sentinel://{','.join(f'127.0.0.1:{port}' for port in self.ports)}/{SERVICE}"

    def _kept(self, server: Server) -> Server:
        self._closing.callback(server.close)
        return server

    def _sentinel(self, folder: Path, quorum: int) -> int:
        folder.mkdir()
        port, file = free_port(), folder / "sentinel.conf"
        lines = [
            f"port {port}",
            "bind 127.0.0.1",
            f"dir {folder}",
            f"logfile {folder / 'sentinel.log'}",
            f"sentinel monitor {SERVICE} 127.0.0.1 {self.master.port} {quorum}",
            f"sentinel down-after-milliseconds {SERVICE} {self._down_after_ms}",
            f"sentinel failover-timeout {SERVICE} 3000",
        ]
        file.write_text("\n".join(lines) + "\n")
        process = psutil.Popen(bound_to_parent([self.master.binary, str(file), "--sentinel"]), stdout=subprocess.DEVNULL)

        def end() -> None:
            process.kill()
            process.wait(10)

        self._closing.callback(end)
        return port

    def _knows_all(self, port: int, replicas: int, sentinels: int) -> bool:
        with redis.Redis(port=port, decode_responses=True) as asked:
            try:
                master = asked.sentinel_master(SERVICE)
            except redis.RedisError:
                return False
        return master["num-slaves"] == replicas and master["num-other-sentinels"] == sentinels - 1

    def close(self) -> None:
        """End all servers."""
        self._closing.close()
