"""A whole federation on one machine: Redis, Ray clusters, the root mesh, child meshes; started, watched, stopped.

Every part is a child of this process and is ended by its id. If this process dies, the kernel ends its children. A part
that dies is restarted: the stores hold all state, so the new part continues where the old one stopped.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import structlog

from federation.api_keys import Role
from federation.config.loading import (
    FederationConfig,
    default_tenant_of,
    mesh_record_of,
)
from federation.config.sections.meshes import MeshLink
from federation.errors import SchemaMismatch, StoreUnavailable
from federation.leases import LeaseTerms
from federation.store.redis.embedded import EmbeddedRedis
from federation.store.redis.key_ring import RedisKeyRing
from federation.store.redis.safety import check_server
from mesh.core.clock import SystemClock
from mesh.core.ids import MeshId, TenantPath
from mesh.errors import RuntimeAdapterError
from mesh.ray.cluster.cluster_token import token_environment
from mesh.ray.cluster.own_cluster import OwnCluster
from mesh.ray.cluster.process import start_mark
from serve_apps.configuration.root_settings import root_settings_of
from serve_apps.processes.ray_access import check_answers, check_token_file, entry_environment, open_words
from serve_apps.processes.settings import ChildSettings, LinkSettings, RootSettings, StoreSettings
from serve_apps.processes.stores import Stores, open_stores
from serve_apps.requests.auth import id_of, issue, issue_for_mesh
from serve_apps.standalone import child_pids, stale_folders
from serve_apps.standalone.ledger_identity import LedgerIdentity, keep_ledger, known_ledger, ledger_of
from serve_apps.standalone.ledger_setup import bring_into_force, receipt_keys_of
from serve_apps.standalone.managed import ManagedProcess
from serve_apps.standalone.own_clusters import TOKENS, OwnClusters
from serve_apps.standalone.port_claim import PortClaim
from serve_apps.standalone.restarts import Restarts
from serve_apps.standalone.stack_folder import PREPARED_FILE, StackFolder
from serve_apps.standalone.startup_config import keep

log = structlog.get_logger(__name__)

READY_S_MAX = 120.0
STOP_S_MAX = 15.0
#: Address of a root that listens on all interfaces.
ANY_HOST, LOOPBACK = ("0.0.0.0", "::"), "127.0.0.1"  # noqa: S104  compared with, not bound to

Say = Callable[[str], None]


class Stack:
    """One federation, started from its configuration.

    Args:
        folder: State folder, owned by the caller.
        say: Called with each step, in words for people.
        rebuild_ledger: The operator confirms that the server was emptied on purpose.
        is_wanted: Called between and during the steps of a start; False ends the start.
    """

    def __init__(
        self,
        config: FederationConfig,
        folder: StackFolder,
        *,
        say: Say,
        rebuild_ledger: bool = False,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        self._rebuild_ledger = rebuild_ledger
        self._ledger: str | None = None
        self._replicated = False
        self._identity: LedgerIdentity | None = None
        self._config = config
        self.folder = folder
        self._print = say
        self._is_wanted = is_wanted
        self.redis: EmbeddedRedis | None = None
        self._own = OwnClusters(
            config,
            folder,
            say=self._say,
            check_wanted=self.check_wanted,
            is_wanted=lambda: not self._is_ending.is_set() and self._is_wanted(),
        )
        self.children: dict[str, ManagedProcess] = {}
        self.root: ManagedProcess | None = None
        self.address = ""
        self.api_key = ""
        self.default_tenant = ""
        self.redis_url = ""
        self._opened: list[Stores] = []
        self.port: PortClaim | None = None
        self._mesh_keys: dict[str, str] = {}
        self.restarts = Restarts()
        self._is_ending = threading.Event()

    @property
    def clusters(self) -> dict[str, OwnCluster]:
        """Clusters started by the stack, by name; a dead cluster stays until its replacement runs."""
        return self._own.running

    # -- start ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start everything, in order; a failure stops all that was started.

        Raises:
            RuntimeAdapterError: A part did not come up; the message shows the end of its log.
            KeyboardInterrupt: The start is no longer wanted.
        """
        try:
            self._note_start()
            stores = self.start_redis()
            self.start_clusters()
            root = self._start_root()
            for mesh, section in self._config.meshes.items():
                if section.link is MeshLink.JOINS:
                    self._say(f"mesh {mesh}: joins by itself; create its key with `schedulemesh keys create --mesh {mesh}`")
                else:
                    self._start_child(mesh)
            self._await_processes(root)
            self._publish(stores)
        except BaseException:
            self.stop()
            raise

    def _say(self, words: str) -> None:
        """Report a step, and end the start if it is no longer wanted."""
        self._print(words)
        self.check_wanted()

    def check_wanted(self) -> None:
        """Raise KeyboardInterrupt if the start is no longer wanted; do nothing while the stack stops."""
        if not self._is_ending.is_set() and not self._is_wanted():
            raise KeyboardInterrupt

    def _note_start(self) -> None:
        self.folder.write("stack.json", {"pid": os.getpid(), "started": start_mark(os.getpid()), "state": "starting"})
        keep(self.folder, self._config)
        (self.folder.path / PREPARED_FILE).unlink(missing_ok=True)  # From now on the folder is this stack's.
        shutil.rmtree(self.folder.path / TOKENS, ignore_errors=True)  # Left by clusters that were killed with their stack.
        for left in stale_folders.sweep(self.folder):
            self._say(f"removed {left}, left by a stack of this state folder that was killed")

    def start_redis(self) -> Stores:
        """Start or reach Redis, bring the ledger into force, and return the stores; the first step of `start`."""
        self.redis_url = self._config.redis.url or ""
        is_new = False
        if not self.redis_url:
            is_new = not (self.folder.path / "redis").exists()
            self.redis = EmbeddedRedis.start(self.folder.path / "redis")
            self.redis_url = self.redis.url
            self._say("redis: embedded server, append-only file in the state folder")
        known = known_ledger(self.folder)
        stores = self._checked_stores(known)
        self._ledger = ledger_of(self.folder, stores)
        stores = self.stores(founding=is_new and known is None)
        bring_into_force(stores, self._config, say=self._say)
        keep_ledger(self.folder, self._ledger)
        self._identity = LedgerIdentity(stores, self._ledger)
        self._identity.look()
        return stores

    def _checked_stores(self, known: str | None) -> Stores:
        """Open the stores on a server that passes `check_server`. Raises as `check_server`; the error of a silent server names its config
        key.
        """
        is_embedded = self.redis is not None
        try:
            stores = self.stores()
            may_found = known is None or is_embedded or self._rebuild_ledger
            settings = check_server(stores.client, stores.keys, self._terms(), uid=known, may_found=may_found, durable=is_embedded)
        except SchemaMismatch:
            raise
        except StoreUnavailable as gone:
            if is_embedded:
                raise
            remedy = "start the server, name another one, or leave out the key to use an embedded server"
            raise StoreUnavailable(self._config.message_at(("redis", "url"), f"{gone}; {remedy}")) from None
        self._replicated = settings.min_replicas_to_write > 0
        return stores

    def _terms(self) -> LeaseTerms:
        section = self._config.federation
        return LeaseTerms.of(section.lease_ttl_ms, section.lease_grace_ms)

    def stores(self, *, founding: bool = False) -> Stores:
        """Open the stack's stores; `stop` closes them."""
        section = self._config.federation
        stores = open_stores(
            self.redis_url,
            ledger=self._ledger,
            founding=founding,
            lease_ttl_ms=section.lease_ttl_ms,
            lease_grace_ms=section.lease_grace_ms,
        )
        self._opened.append(stores)
        return stores

    def start_clusters(self) -> None:
        for name, section in self._config.clusters.items():
            if section.address is not None:
                check_answers(section.address, f"clusters.{name}.address", whose=f"cluster {name}: ")
                if section.token_file is not None:
                    check_token_file(section.token_file, f"clusters.{name}.token_file", whose=f"cluster {name}: ")
                for words in open_words(section.address):
                    self._say(f"cluster {name}: {words}")
        self._own.start()

    def _address_of(self, cluster: str) -> str:
        section = self._config.clusters[cluster]
        return section.address or self.clusters[cluster].address

    def _common(self, cluster: str) -> dict[str, Any]:
        section = self._config.federation
        return {
            "ray_address": self._address_of(cluster),
            "heartbeat_ms": section.heartbeat_ms,
            "storage_url": self._config.storage.url or (self.folder.path / "objects").as_uri(),
        }

    def _access_to_store(self) -> dict[str, Any]:
        section = self._config.federation
        terms = {"lease_ttl_ms": section.lease_ttl_ms, "lease_grace_ms": section.lease_grace_ms}
        return {"redis_url": self.redis_url, "ledger": self._ledger, "replicated": self._replicated, **terms}

    def _link_of(self, mesh: str) -> LinkSettings:
        """Return the link settings of a mesh. Its key lives as long as this stack."""
        if mesh not in self._mesh_keys:
            stores = self.stores()
            ring = RedisKeyRing(stores.client, stores.keys)
            self._mesh_keys[mesh] = self._guarded(issue_for_mesh(ring, MeshId(mesh), SystemClock().wall_ms()))
        port = self.port
        assert port is not None  # noqa: S101  the root is started before the meshes
        host = self._config.root.host
        return LinkSettings(roots=(f"http://{LOOPBACK if host in ANY_HOST else host}:{port.port}",), key=self._mesh_keys[mesh])

    def _start_root(self) -> ManagedProcess:
        section = self._config.root
        if self.port is None:
            self.port = PortClaim.take(section.host, section.port)
            if self.port.port != section.port:
                self._say(f"root: port {section.port} is taken, using {self.port.port}")
        common = self._common(section.cluster)
        settings = root_settings_of(
            self._config,
            ray_address=common["ray_address"],
            redis_url=self.redis_url,
            ledger=self._ledger,
            replicated=self._replicated,
            storage_url=common["storage_url"],
            port=self.port.port,
            receipt_keys=receipt_keys_of(self.folder),
            cluster_stays=self._config.clusters[section.cluster].address is not None,
            traces_file=str(self.folder.path / "traces.jsonl") if self._config.telemetry.traces_file else None,
        )
        self.root = self._spawn("root", "serve_apps.root_process", settings, section.cluster)
        self._say("root: deploying gateway and coordinator on Ray Serve")
        return self.root

    def _start_child(self, mesh: str) -> None:
        section = self._config.meshes[mesh]
        settings = ChildSettings(
            **self._common(section.cluster),
            store=StoreSettings(**self._access_to_store()) if section.link is MeshLink.DIRECT else None,
            link=self._link_of(mesh) if section.link is MeshLink.HTTP else None,
            record=mesh_record_of(self._config, mesh, cluster=""),
            node_labels=dict(section.node_labels),
            inline_limit_bytes=self._config.federation.inline_limit_bytes,
            warm_runners=section.warm_runners,
            plugins=section.plugins,
        )
        self.children[mesh] = self._spawn(f"mesh-{mesh}", "serve_apps.child_process", settings, section.cluster)
        child_pids.note(self.folder, {name: child.pid for name, child in self.children.items()})

    def _spawn(self, name: str, module: str, settings: RootSettings | ChildSettings, cluster: str) -> ManagedProcess:
        file = self.folder.path / "settings" / f"{name}.json"
        settings.write(file)
        path = os.pathsep.join((*self._config.import_paths, *filter(None, [os.environ.get("PYTHONPATH")])))
        environment = {"PYTHONPATH": path, "RAY_USAGE_STATS_ENABLED": "0", **self._entry_to(cluster)}
        return ManagedProcess(name, module, file, self.folder.path / "logs" / f"{name}.log", environment=environment)

    def _entry_to(self, cluster: str) -> Mapping[str, str]:
        """Return the environment that lets a process into this cluster: the cluster's own token, and no other."""
        section = self._config.clusters[cluster]
        if section.address is None:
            return token_environment(self.clusters[cluster].token_file)
        return entry_environment(os.environ, section.address, section.token_file)

    def _await_processes(self, root: ManagedProcess) -> None:
        for mesh, child in self.children.items():
            facts = child.wait_ready(READY_S_MAX, self.check_wanted)
            labels = ", ".join(f"{key}={value}" for key, value in self._config.meshes[mesh].labels.items())
            self._say(f"mesh {mesh}: joined ({labels or 'no labels'}), Ray cluster {str(facts['cluster'])[:8]}")
            for words in facts["warnings"]:
                self._say(f"mesh {mesh}: {words}")
        self.address = str(root.wait_ready(READY_S_MAX, self.check_wanted)["address"])
        self._say(f"root: answers at {self.address}")

    def _publish(self, stores: Stores) -> None:
        self.default_tenant = default_tenant_of(self._config)
        top = TenantPath(self.default_tenant.partition("/")[0])
        self.api_key = self._guarded(issue(RedisKeyRing(stores.client, stores.keys), top, SystemClock().wall_ms(), role=Role.ADMIN))
        self.folder.write("client.json", {"address": self.address, "api_key": self.api_key, "tenant": self.default_tenant})
        facts = self.folder.read("stack.json")
        self.folder.write("stack.json", {**facts, "state": "up", "address": self.address})

    def _guarded(self, key: str) -> str:
        """Return a new key that the keeper restores if the server loses it."""
        if self._identity is not None:
            self._identity.guard(id_of(key))
        return key

    # -- watch ---------------------------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Check every part once and restart the dead ones."""
        if self.redis is not None and not self.redis.alive():
            self._again("redis", self._restart_redis)
        self._watch_ledger()
        self._own.look_at_node_starts()
        for name in self._own.dead():
            self._again(f"cluster {name}", partial(self._restart_cluster, name))
        for node, restart in self._own.dead_nodes():
            self._again(node, restart)
        for mesh, child in tuple(self.children.items()):
            if not child.alive():
                self._again(f"mesh {mesh}", lambda mesh=mesh: self._restart_child(mesh))  # type: ignore[misc]
        if self.root is not None and not self.root.alive():
            self._again("root", self._restart_root)

    def _watch_ledger(self) -> None:
        if self._identity is None:
            return
        try:
            if self._identity.look():
                self._say("ledger: lost by the server; created again under its own id, recovering leases from its meshes")
        except StoreUnavailable as gone:
            log.warning("the store does not answer", error=str(gone))

    def _again(self, name: str, restart: Callable[[], None]) -> None:
        now_s = time.monotonic()
        pause_s = self.restarts.note_death(name, now_s)
        if pause_s is not None:
            self._say(f"{name} has died; restarting {f'in {pause_s:.0f} s' if pause_s else 'now'}")
        if not self.restarts.is_due(name, now_s):
            return
        try:
            restart()
        except RuntimeAdapterError as failure:
            self._say(f"{name} failed to start: {failure}")
        self.restarts.note_start(name, time.monotonic())

    def _restart_redis(self) -> None:
        self.redis = EmbeddedRedis.start(self.folder.path / "redis")
        if self.redis.url != self.redis_url:  # Another process took its port meanwhile: every part needs the new address.
            self.redis_url = self.redis.url
            if self._identity is not None:
                self._identity.move_to(self.stores())
            for mesh in self.children:
                self._restart_child(mesh)
            self._restart_root()

    def _restart_cluster(self, name: str) -> None:
        self._own.restart(name)
        for mesh, section in self._config.meshes.items():
            if section.cluster == name and mesh in self.children:
                self._restart_child(mesh)
        if self._config.root.cluster == name:
            self._restart_root()

    def _restart_child(self, mesh: str) -> None:
        self.children[mesh].kill()
        self._start_child(mesh)

    def _restart_root(self) -> None:
        if self.root is not None:
            self.root.kill()
        self._start_root()

    # -- stop ----------------------------------------------------------------------------------------------------------

    def _revoke_keys(self) -> None:
        """Revoke the key in `client.json` and those of the stack's meshes, which live only as long as the stack."""
        keys = [key for key in (self.api_key, *self._mesh_keys.values()) if key]
        self.api_key, self._mesh_keys = "", {}
        if not keys:
            return
        try:
            stores = self.stores()
            for key in keys:
                RedisKeyRing(stores.client, stores.keys).revoke(id_of(key))
        except RuntimeAdapterError as away:  # Every process must still be stopped, whatever the server says.
            log.warning("the keys of this stack were not revoked", error=str(away))

    def stop(self) -> None:
        """Stop everything, in reverse order; safe at any time and more than once.

        An error of one part does not keep the others from being stopped; the last such error is raised at the end.
        """
        self._is_ending.set()
        with ExitStack() as left:  # Runs callbacks last in first out, each even if an earlier one raised.
            if self.port is not None:
                left.callback(self.port.release)
            if self.redis is not None:
                left.callback(self.redis.stop)
            left.callback(self._close_stores)
            left.callback(self._own.stop)
            left.callback(self._revoke_keys)
            processes = (*self.children.values(), *filter(None, [self.root]))
            for process in reversed(processes):
                left.callback(process.stop, STOP_S_MAX)
            for process in reversed(processes):
                left.callback(process.ask_to_stop)
            self.children, self.root, self.redis, self.port = {}, None, None, None

    def _close_stores(self) -> None:
        while self._opened:
            self._opened.pop().client.close()
