"""The root mesh as Ray Serve deployments: gateways that answer HTTP, and the coordinator that advances runs.

Neither keeps state: any replica may die at any instruction. Redis elects one coordinator as leader, to save work;
two leaders at the same time would be harmless.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import structlog
from fastapi import FastAPI
from ray import serve
from ray.serve import RunTarget

from dag.coordinator import Coordinator
from dag.result_cache import ResultCache
from dag.schedules.controller import ScheduleController
from dag.store.cached_files import CachedFiles
from dag.store.event_feed import RedisEventFeed
from federation.errors import StoreUnavailable
from federation.leases import LeaseTerms
from federation.planning.planner_loop import PlannerLoop, TickTimes
from federation.receipts import ReceiptKeys
from federation.store.redis.client import connect_async
from federation.store.redis.election import CoordinatorElection
from federation.store.redis.key_ring import RedisKeyRing
from federation.usage.keeper import UsageKeeper
from mesh.core.clock import SystemClock
from mesh.ray.worker.exporting import clear_folder, read_within, remove_within
from serve_apps.processes.process import collect_seldom, configure_logging
from serve_apps.processes.settings import RootSettings
from serve_apps.processes.stores import ANSWER_MS_MAX, open_stores
from serve_apps.root.gateway import Dependencies, create_app
from serve_apps.root.http_server import HttpServer
from serve_apps.root.webhook_sender import WebhookSender
from serve_apps.telemetry.traces import Telemetry

log = structlog.get_logger(__name__)

#: How long an ending gateway waits for open requests; event streams last as long as their run.
DRAIN_S = 3.0
#: A coordinator without a heartbeat for this long is replaced.
LEADER_TTL_MS = 3_000
#: Shortest interval between two renewals of the leadership: steps may follow each other every few milliseconds.
RENEWAL_MS = LEADER_TTL_MS // 6
#: Interval of slow work: sweeping, retention, blocked nodes. The planner also runs when quota is contested.
TICK_MS = 1_000
#: Longest wait of one inbox read.
LOOK_MS = 500
#: A little of the resource that only the head of a Ray cluster has, as Serve's own actors use it.
ON_THE_HEAD = {"node:__internal_head__": 0.001}


class CoordinatorLoop:
    """Loop that campaigns for coordinator leadership, and advances runs while it is the leader."""

    def __init__(self, settings: RootSettings) -> None:
        self._settings = settings
        self._stop = threading.Event()
        self._broken: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="coordinator", daemon=True)
        self._thread.start()

    def check_health(self) -> None:
        """Raise if the loop has stopped. Serve calls this, and replaces the replica on an error."""
        if self._broken is not None:
            raise self._broken

    def close(self) -> None:
        """Stop after the current step."""
        self._stop.set()
        self._thread.join(timeout=LOOK_MS / 1000 * 4)

    def _run(self) -> None:
        configure_logging()
        collect_seldom()
        try:
            self._coordinate()
        except BaseException as broken:
            log.exception("the coordinator failed; Serve starts another")
            self._broken = broken
            raise

    def _coordinate(self) -> None:
        stores = open_stores(
            self._settings.redis_url,
            ledger=self._settings.ledger,
            lease_ttl_ms=self._settings.lease_ttl_ms,
            lease_grace_ms=self._settings.lease_grace_ms,
        )
        clock = SystemClock()
        telemetry = Telemetry(otlp_endpoint=self._settings.otlp_endpoint, traces_file=self._settings.traces_file)
        election = CoordinatorElection(stores.client, stores.keys, f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}")
        planner = PlannerLoop(
            stores.ledger, f"{socket.gethostname()}:{os.getpid()}", leader_ttl_ms=LEADER_TTL_MS, tenant_policies=stores.tenant_policies
        )
        schedules = ScheduleController(schedules=stores.schedules, runs=stores.runs, clock=clock)
        usage = UsageKeeper(store=stores.usage, clock=clock, days_kept=self._settings.usage_days)
        webhooks = WebhookSender(self._settings.webhooks, store=stores.webhooks, runs=stores.runs, clock=clock)
        coordinator: Coordinator | None = None
        renewal_ms = 0
        times = TickTimes(self._tick_ms())
        while not self._stop.is_set():
            try:
                now_ms = clock.monotonic_ms()
                if coordinator is None or now_ms >= renewal_ms:
                    renewal_ms = now_ms + RENEWAL_MS
                    is_leader = election.hold(LEADER_TTL_MS)
                    webhooks.lead(is_leader)
                    if not is_leader:
                        coordinator = None
                        self._stop.wait(LOOK_MS / 1000)
                        continue
                if coordinator is None:
                    webhooks.begin()  # Before any run can end by this coordinator.
                    coordinator = Coordinator(
                        runs=stores.runs,
                        queue=stores.queue,
                        ledger=stores.ledger,
                        registry=stores.registry,
                        tenant_policies=stores.tenant_policies,
                        blobs=stores.blobs,
                        clock=clock,
                        on_end=telemetry.trace_run,
                        delete=partial(remove_within, self._settings.storage_url),
                        clear=partial(clear_folder, self._settings.storage_url),
                        fetch=partial(read_within, self._settings.storage_url),
                        retention_ms=self._settings.retention_ms,
                        costs=self._settings.costs,
                        flap_rules=self._settings.flap_rules,
                        retrying=self._settings.retrying,
                        configured_meshes=self._settings.configured_meshes,
                        is_traced=self._settings.otlp_endpoint is not None,
                        cache=ResultCache(stores.cache, stores.blobs, CachedFiles(self._settings.storage_url), clock),
                    )
                timer_ms = coordinator.next_timer_ms()
                until_timer_ms = LOOK_MS if timer_ms is None else timer_ms - clock.wall_ms()
                now_ms = clock.monotonic_ms()
                coordinator.step(max(0, min(LOOK_MS, until_timer_ms, times.due_ms() - now_ms)))
                coordinator.take_timers()
                now_ms = clock.monotonic_ms()
                if coordinator.has_contest:
                    times.note_contest(now_ms)
                if now_ms >= times.due_ms():
                    times.begin()
                    seen = coordinator.survey()
                    planner.tick(seen)  # Before runs are advanced, which may take long: the planner needs a fresh snapshot.
                    if times.is_regular(now_ms):
                        schedules.tick(seen.tree, stores.tenant_policies.in_force)
                        usage.tick(seen.tree)
                        coordinator.tend(seen)
                    times.end(now_ms, clock.monotonic_ms())
            except StoreUnavailable as gone:
                log.warning("the store does not answer", error=str(gone))
                coordinator = None
                self._stop.wait(LOOK_MS / 1000)
        webhooks.close()
        _leave(election)
        telemetry.close()

    def _tick_ms(self) -> int:
        """Return the tick interval, shorter than the lease clock's longest step: without other calls only ticks advance that clock."""
        terms = LeaseTerms.of(self._settings.lease_ttl_ms, self._settings.lease_grace_ms)
        return min(TICK_MS, terms.max_step_ms * 2 // 3)


def _leave(election: CoordinatorElection) -> None:
    with contextlib.suppress(StoreUnavailable):
        election.leave()


def gateway_app(settings: RootSettings) -> FastAPI:
    """Build the HTTP application on the stores that the settings name. Called once in each replica."""
    configure_logging()
    receipts = ReceiptKeys(keys={number: key.encode() for number, key in settings.receipt_keys.items()})
    stores = open_stores(
        settings.redis_url,
        ledger=settings.ledger,
        replicated=settings.replicated,
        lease_ttl_ms=settings.lease_ttl_ms,
        lease_grace_ms=settings.lease_grace_ms,
        receipts=receipts,
        limits=settings.backlog,
        schedule_limits=settings.schedules,
    )
    feed_client = connect_async(settings.redis_url, timeout_ms=ANSWER_MS_MAX)
    return create_app(
        Dependencies(
            runs=stores.runs,
            ledger=stores.ledger,
            registry=stores.registry,
            tenant_policies=stores.tenant_policies,
            queue=stores.queue,
            blobs=stores.blobs,
            run_log=stores.run_log,
            cache=stores.cache,
            schedules=stores.schedules,
            webhooks=stores.webhooks,
            usage=stores.usage,
            changes=stores.changes,
            feed=RedisEventFeed(feed_client, stores.keys),
            keys=RedisKeyRing(stores.client, stores.keys),
            body_limit_bytes=settings.body_limit_bytes,
            costs=settings.costs,
            storage_url=settings.storage_url,
            heartbeat_ms=settings.heartbeat_ms,
            inline_limit_bytes=settings.inline_limit_bytes,
            ledger_id=settings.ledger or "",
            configured_meshes=settings.configured_meshes,
            receipts=receipts,
            clock=SystemClock(),
            durable=stores.durable,
            durability=settings.durability,
            retention_ms=settings.retention_ms,
            close=feed_client.aclose,
        ),
        is_proxied=settings.cluster_stays,
    )


class GatewayServer:
    """Gateway replica that listens at the root's port itself."""

    def __init__(self, settings: RootSettings) -> None:
        collect_seldom()
        self._server = HttpServer(gateway_app(settings), host=settings.host, port=settings.port, drain_s=DRAIN_S)

    def check_health(self) -> None:
        """Raise if the server has ended. Serve calls this, and replaces the replica on an error."""
        self._server.check()

    def __del__(self) -> None:
        """End the server. Serve calls this when it ends the replica."""
        if (server := getattr(self, "_server", None)) is not None:
            server.close()


def root_applications(ledger: str | None) -> tuple[str, str]:
    """Return the Serve application names of the gateway and the coordinator; they contain the ledger's id, as several federations may use
    one Serve over time.
    """
    return f"gateway-{ledger}", f"coordinator-{ledger}"


def root_targets(settings: RootSettings) -> list[RunTarget]:
    """Return the two Serve applications of the root mesh, for `serve.run_many`."""
    names = root_applications(settings.ledger)
    # On a cluster of the stack's own, replicas run on the head like Serve's controller and proxy, so that no other node's death ends
    # them.
    light: dict[str, Any] = {"num_cpus": 0} if settings.cluster_stays else {"num_cpus": 0, "resources": ON_THE_HEAD}
    coordinator = coordinator_deployment(light)(CoordinatorLoop)
    gateway = gateway_deployment(settings.gateways, light)
    return [RunTarget(target=coordinator.bind(settings), name=names[1], route_prefix=None), _gateways(gateway, settings, names[0])]


def coordinator_deployment(actor_options: dict[str, Any]) -> Callable[..., serve.Deployment]:
    """Return the decorator of a coordinator's class."""
    decorator: Callable[..., serve.Deployment] = serve.deployment(
        name="Coordinator", ray_actor_options=actor_options, health_check_period_s=2
    )
    return decorator


def gateway_deployment(replicas: int, actor_options: dict[str, Any]) -> Callable[..., serve.Deployment]:
    """Return the decorator of a gateway's class."""
    decorator: Callable[..., serve.Deployment] = serve.deployment(
        name="Gateway",
        num_replicas=replicas,
        max_ongoing_requests=1000,
        ray_actor_options=actor_options,
        health_check_period_s=2,
        # Serve ends a replica after one wait and one call of its end, within the limit: the drain must fit between them.
        graceful_shutdown_wait_loop_s=0.1,
        graceful_shutdown_timeout_s=DRAIN_S + 1,
    )
    return decorator


def _gateways(deployed: Callable[..., serve.Deployment], settings: RootSettings, name: str) -> RunTarget:
    """Return the gateways: they listen themselves on the head of a cluster of the stack's own, else behind Serve's proxy on any node."""
    if not settings.cluster_stays:
        return RunTarget(target=deployed(GatewayServer).bind(settings), name=name, route_prefix=None)

    def build() -> FastAPI:  # Serve needs a function without arguments.
        return gateway_app(settings)

    return RunTarget(target=deployed(serve.ingress(build)()).bind(), name=name, route_prefix="/")
