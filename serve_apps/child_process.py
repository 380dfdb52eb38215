"""Process of one child mesh: a driver of its Ray cluster, `python -m serve_apps.child_process FILE`.

The mesh reaches the root over the store or over HTTP, as its settings say. One thread reads notifications, and Ray's host reports from
threads of its own. All of them put events into one queue, and only the main thread works on the mesh.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

import ray
import structlog

from federation.child.child_mesh import ChildMesh
from federation.child.stage_plugins import StagePlugins
from federation.dispatch import Notification, StageQueue
from federation.errors import StoreUnavailable
from federation.link import LinkTerms
from federation.snapshot import PoolRecord
from federation.store.http_link import HttpLink, ask_terms
from mesh.core.clock import EnduringClock
from mesh.core.ids import MeshId
from mesh.core.resources import NOTHING, ResourceSet, format_units
from mesh.errors import MeshError
from mesh.plugins import PluginError
from mesh.policies.catalogue import UnknownPolicy
from mesh.ray.local.supervisor.node_watch import look_at_nodes
from mesh.ray.plugins.plugin_loading import load_plugins
from mesh.ray.stage_runner.host import RayStageHost
from mesh.stages.hosting import HostReport
from mesh.stages.slot_placement import check_policy
from serve_apps.processes.process import configure_logging, report_ready, stop_on_signals
from serve_apps.processes.ray_entry import cluster_id, enter
from serve_apps.processes.settings import ChildSettings
from serve_apps.processes.stores import open_child_ports

log = structlog.get_logger(__name__)

#: One wait for notifications; the process notices its end within this time.
NOTIFICATION_WAIT_MS = 1_000
#: How long the report of a start may wait for the stage's first report.
START_DELAY_MS = 50
#: Interval between two calls to a root that does not answer yet.
ROOT_PAUSE_S = 0.5

Work = tuple[Notification, ...] | HostReport


def unbacked_pools(pools: Iterable[PoolRecord], nodes: Iterable[ResourceSet]) -> tuple[str, ...]:
    """Return a message per resource whose capacity in pools exceeds the nodes' total. Such work is admitted and then waits in Ray.

    No work is refused for this, because nodes may still join, as with an autoscaler.

    Args:
        nodes: Total resources of each node of the mesh, by this project's resource names.
    """
    promised, there = sum((pool.capacity for pool in pools), NOTHING), sum(nodes, NOTHING)
    return tuple(
        f"its pools declare {format_units(name, units)} {name}, its nodes have {format_units(name, there[name])}; "
        "work beyond the nodes would wait in Ray: reduce the pools' capacity, or add nodes"
        for name, units in promised.items()
        if units > there[name]
    )


def main(settings_file: str) -> None:
    """Join, work until stopped, leave."""
    configure_logging()
    try:
        run(ChildSettings.read(settings_file))
    except (PluginError, UnknownPolicy) as wrong:
        sys.exit(str(wrong))  # The operator's mistake, which no traceback explains better.


def run(settings: ChildSettings, notify: Callable[..., None] = report_ready) -> bool:
    """Run the mesh as `main` does, in a process that is set up, and return whether Ctrl-C ended it.

    Args:
        notify: Called once, when the mesh has started: with `mesh`, `cluster` (Ray's own id), `pid`, and `warnings`, in words.

    Raises:
        RuntimeAdapterError: The Ray cluster cannot be entered.
        StoreUnavailable: The CA file cannot be read, or no node of the Redis cluster answers.
        PluginError: A plugin cannot be loaded, or two of them conflict.
        UnknownPolicy: A pool's policy names none of the built-in policies and plugins.
    """
    plugins = plugins_of(settings)
    enter(settings.ray_address)
    cluster = ray.get_runtime_context().gcs_address
    record = replace(settings.record, cluster=cluster_id(), address=cluster)
    ports = open_child_ports(settings)
    work: queue.SimpleQueue[Work] = queue.SimpleQueue()
    stop = stop_on_signals(lambda: work.put(()))
    host = RayStageHost(
        mesh=record.mesh,
        address=cluster,
        report=work.put,
        storage_url=settings.storage_url,
        inline_limit_bytes=settings.inline_limit_bytes,
        node_labels=settings.node_labels,
        warm_runners=settings.warm_runners,
        ledger=_ledger_of(settings, ports.link, stop),
    )
    child = ChildMesh(
        record=record,
        ledger=ports.ledger,
        queue=ports.queue,
        blobs=ports.blobs,
        host=host,
        clock=EnduringClock(),
        heartbeat_ms=settings.heartbeat_ms,
        settings=ports.settings,
        plugins=plugins,
        run_log=ports.run_log,
        start_delay_ms=START_DELAY_MS,
    )
    threading.Thread(target=_read_notifications, args=(ports.queue, record.mesh, work.put, stop), name="notifications", daemon=True).start()
    child.heartbeat()
    unbacked = unbacked_pools(record.pools, (node.total for node in look_at_nodes(settings.node_labels)))
    notify(mesh=record.mesh, cluster=record.cluster, pid=os.getpid(), warnings=(*unbacked, *plugins.unused))
    while not stop.is_set() and ray.is_initialized():
        _work(child, work)
    # Only an intended end stops the work. After any other end the next process continues it, or the watchdogs end it.
    _leave(child)
    host.close()
    ray.shutdown()
    return stop.is_interrupt


def plugins_of(settings: ChildSettings) -> StagePlugins:
    """Load the plugins that the mesh's operator has named, and those of installed packages. Raises as `run`."""
    plugins = StagePlugins(load_plugins(settings.plugins), now_ms=lambda: time.monotonic() * 1000)
    for pool in settings.record.pools:
        check_policy(pool.policy, plugins.catalogue)
    return plugins


def await_root(link: HttpLink, mesh: MeshId, stop: threading.Event) -> LinkTerms | None:
    """Wait until a root answers and return its terms for every mesh; None if the process is asked to end first."""
    while not stop.is_set():
        try:
            return ask_terms(link, mesh)
        except StoreUnavailable as gone:
            log.warning("no root answers yet", mesh=mesh, error=str(gone))
            stop.wait(ROOT_PAUSE_S)
    return None


def _ledger_of(settings: ChildSettings, link: HttpLink | None, stop: threading.Event) -> str:
    """Return the ledger's id, by which the mesh finds what its earlier process left; empty if the root names none."""
    if link is None:
        return settings.store.ledger or "" if settings.store is not None else ""
    terms = await_root(link, settings.record.mesh, stop)
    return terms.ledger if terms is not None else ""


def _leave(child: ChildMesh) -> None:
    """Leave the federation. All work has stopped even if the root does not answer; the leases then return when they expire."""
    try:
        child.leave()
    except MeshError as gone:
        log.warning("left without notice: the root does not answer", error=str(gone))


def _work(child: ChildMesh, work: queue.SimpleQueue[Work]) -> None:
    try:
        item = work.get(timeout=max(0.001, child.wake_in_ms() / 1000))
    except queue.Empty:
        child.wake()
        return
    if isinstance(item, HostReport):
        child.take_report(item)
    else:
        child.take_notifications(item)
    if child.wake_in_ms() == 0:
        child.wake()


def _read_notifications(stages: StageQueue, mesh: MeshId, put: Callable[[Work], None], stop: threading.Event) -> None:
    """Yield notifications from now on, in order. A store that does not answer is asked again; reconciliation finds what was missed."""
    cursor = ""
    while not stop.is_set():
        try:
            cursor, notifications = stages.notifications(mesh, cursor, NOTIFICATION_WAIT_MS)
        except MeshError as gone:
            log.warning("cannot read notifications: the store does not answer", mesh=mesh, error=str(gone))
            stop.wait(NOTIFICATION_WAIT_MS / 1000)
            continue
        if notifications:
            put(notifications)


if __name__ == "__main__":
    main(sys.argv[1])
