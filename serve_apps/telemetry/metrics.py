"""Prometheus metrics: gauges read from the stores at a scrape, and this replica's requests.

Gauges come only from the stores: any replica gives the same gauges, even one that has just started.
Requests are counted per replica and carry its name, because a scrape may reach any replica.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from dag.run.runs import RunStore
from dag.run.states import RUN_ENDS, RunState
from dag.webhooks.webhook import WebhookCounts, WebhookStore
from federation.auditing import mismatches
from federation.dispatch import StageAges, StageQueue
from federation.errors import StoreUnavailable
from federation.leases import LeaseLedger
from federation.registry import NO_STAGE_METRICS, MeshRegistry
from federation.snapshot import FederationSnapshot, MeshView
from federation.stage_metrics import StageMetrics, TenantMetrics
from mesh.core.ids import FlavorName, MeshId, PoolName, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet, from_units

CONTENT_TYPE = CONTENT_TYPE_LATEST
#: Most runs per root tenant (newest first) and queued stages per mesh (next first) that a scrape reads.
LOOKED_AT_MAX = 1_000
_DURATION_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """State of the stores at one time."""

    snapshot: FederationSnapshot
    runs: Counter[RunState]
    waiting: Counter[tuple[MeshId, Reason]]
    run_ages_ms: dict[RunState, int]  #: Age of the oldest run in each state that is not an end.
    stage_ages: dict[MeshId, StageAges]
    dead: int  #: Number of dead letters, up to `LOOKED_AT_MAX`.
    stage_metrics: StageMetrics  #: Without tenants if no coordinator has noted any for a minute.
    webhooks: Mapping[str, WebhookCounts]
    wrong_sums: int  #: Tenants' sums that differ from those of the leases below them.


def read_truth(runs: RunStore, ledger: LeaseLedger, queue: StageQueue, registry: MeshRegistry, webhooks: WebhookStore) -> Truth:
    """Read the stores.

    Raises:
        StoreUnavailable: The stores do not answer.
    """
    snapshot = ledger.snapshot()
    summaries = [summary for top in snapshot.tree.first_names() for summary in runs.list(top, limit=LOOKED_AT_MAX)]
    ages_ms = dict.fromkeys((state for state in RunState if state not in RUN_ENDS), 0)
    for summary in summaries:
        if summary.state in ages_ms:
            ages_ms[summary.state] = max(ages_ms[summary.state], snapshot.at_ms - summary.created_ms)
    waiting = Counter(
        (view.record.mesh, stage.reason)
        for view in snapshot.meshes
        if view.waiting
        for stage in queue.waiting(view.record.mesh, limit=LOOKED_AT_MAX)
    )
    stage_metrics = registry.conditions().stage_metrics
    return Truth(
        snapshot=snapshot,
        runs=Counter(summary.state for summary in summaries),
        waiting=waiting,
        run_ages_ms=ages_ms,
        stage_ages=queue.ages(),
        dead=len(runs.dead(LOOKED_AT_MAX)),
        stage_metrics=stage_metrics if stage_metrics.is_recent(snapshot.at_ms) else NO_STAGE_METRICS,
        webhooks=webhooks.counts(),
        wrong_sums=len(mismatches(snapshot)),
    )


class GatewayMetrics:
    """Metrics of one gateway replica, in their own registry.

    Args:
        truth: Called once per scrape.
        replica: Unique name of the replica.
    """

    def __init__(self, truth: Callable[[], Truth], *, replica: str) -> None:
        self._ask = truth
        self._replica = replica
        self._truth: Truth | None = None
        self._scraping = threading.Lock()
        self._registry = CollectorRegistry()
        reader = PrometheusMetricReader(disable_target_info=True, scope_info_enabled=False, registry=self._registry)
        buckets = View(
            instrument_name="schedulemesh_http_request_duration", aggregation=ExplicitBucketHistogramAggregation(_DURATION_BUCKETS_S)
        )
        self._provider = MeterProvider(metric_readers=[reader], views=[buckets], shutdown_on_exit=False)
        meter = self._provider.get_meter("schedulemesh")
        self._requests = meter.create_counter("schedulemesh_http_requests", description="Requests answered.")
        self._durations = meter.create_histogram(
            "schedulemesh_http_request_duration", unit="s", description="Time to the end of the response."
        )
        for name, unit, description, observe in _GAUGES:
            meter.create_observable_gauge(name, callbacks=[self._observer(observe)], unit=unit, description=description)
        meter.create_observable_gauge("schedulemesh_store_up", callbacks=[self._store_up], description="1 if the store answers.")

    def observe_request(self, *, method: str, route: str, status: int, duration_s: float) -> None:
        """Count a request; `route` is the path template (`/v1/runs/{run_id}`), so that ids create no series."""
        labels = {"method": method, "route": route, "status": str(int(status)), "replica": self._replica}
        self._requests.add(1, labels)
        self._durations.record(duration_s, labels)

    def scrape(self) -> bytes:
        """Return the metrics as text, without the gauges of the stores if the stores do not answer."""
        with self._scraping:
            try:
                self._truth = self._ask()
            except StoreUnavailable:
                self._truth = None
            return generate_latest(self._registry)

    def close(self) -> None:
        """Close the instruments."""
        self._provider.shutdown()

    def _observer(self, observe: Callable[[Truth], Iterable[Observation]]) -> Callable[[CallbackOptions], Iterable[Observation]]:
        return lambda _: observe(self._truth) if self._truth is not None else ()

    def _store_up(self, _: CallbackOptions) -> Iterable[Observation]:
        return [Observation(int(self._truth is not None))]


def _runs(truth: Truth) -> Iterator[Observation]:
    for state in RunState:
        yield Observation(truth.runs[state], {"state": state.value})


def _waiting(truth: Truth) -> Iterator[Observation]:
    for (mesh, reason), count in truth.waiting.items():
        yield Observation(count, {"mesh": mesh, "reason": reason.value})


def _run_ages(truth: Truth) -> Iterator[Observation]:
    for state, age_ms in truth.run_ages_ms.items():
        yield Observation(age_ms / 1000, {"state": state.value})


def _stage_ages(truth: Truth) -> Iterator[Observation]:
    for mesh, ages in truth.stage_ages.items():
        yield Observation(ages.queued_ms / 1000, {"mesh": mesh, "state": "queued"})
        yield Observation(ages.claimed_ms / 1000, {"mesh": mesh, "state": "claimed"})


def _dead(truth: Truth) -> Iterator[Observation]:
    yield Observation(truth.dead)


def _webhooks(read: Callable[[WebhookCounts], int]) -> Callable[[Truth], Iterable[Observation]]:
    """Return an observer of one of the counts of webhooks."""
    return lambda truth: [Observation(read(counts), {"webhook": name}) for name, counts in truth.webhooks.items()]


def _wrong_sums(truth: Truth) -> Iterator[Observation]:
    yield Observation(truth.wrong_sums)


def _nominal(truth: Truth) -> Iterator[Observation]:
    for path, tenant in truth.snapshot.tree.tenants.items():
        for (flavor, resource), quota in tenant.quotas.items():
            yield _amount(quota.nominal, path, flavor, resource)


def _used(truth: Truth) -> Iterator[Observation]:
    for path in truth.snapshot.tree.tenants:
        for flavor, resource in truth.snapshot.tree.flavor_resources():
            yield _amount(truth.snapshot.usage.get((path, flavor, resource), 0), path, flavor, resource)


def _amount(units: int, tenant: TenantPath, flavor: FlavorName, resource: str) -> Observation:
    return Observation(from_units(resource, units), {"tenant": tenant, "flavor": flavor, "resource": resource})


def _alive(truth: Truth) -> Iterator[Observation]:
    for view in truth.snapshot.meshes:
        yield Observation(int(view.alive), {"mesh": view.record.mesh})


def _heartbeat_age(truth: Truth) -> Iterator[Observation]:
    for view in truth.snapshot.meshes:
        yield Observation(view.heartbeat_age_ms / 1000, {"mesh": view.record.mesh})


def _outside(truth: Truth) -> Iterator[Observation]:
    for view in truth.snapshot.meshes:
        yield Observation(view.record.outside_group, {"mesh": view.record.mesh})


def _running(truth: Truth) -> Iterator[Observation]:
    for view in truth.snapshot.meshes:
        yield Observation(view.claimed, {"mesh": view.record.mesh})


def _capacity(truth: Truth) -> Iterator[Observation]:
    for view in truth.snapshot.meshes:
        for pool in view.record.pools:
            yield from _pool(view, pool.pool, pool.flavor, pool.capacity, pool.capacity)


def _pool_used(truth: Truth) -> Iterator[Observation]:
    for view in truth.snapshot.meshes:
        for pool in view.record.pools:
            yield from _pool(view, pool.pool, pool.flavor, pool.capacity, pool.used)


def _pool(view: MeshView, pool: PoolName, flavor: FlavorName, named: ResourceSet, amounts: ResourceSet) -> Iterator[Observation]:
    """Return an amount for each named resource, zeros included: a series that vanishes looks like a failure."""
    for resource in named:
        labels = {"mesh": view.record.mesh, "pool": pool, "flavor": flavor, "resource": resource}
        yield Observation(from_units(resource, amounts[resource]), labels)


def _leases(truth: Truth) -> Iterator[Observation]:
    for (tenant, mesh), count in Counter((lease.tenant, lease.mesh) for lease in truth.snapshot.leases).items():
        yield Observation(count, {"tenant": tenant, "mesh": mesh})


def _of_stages(read: Callable[[TenantMetrics], float | None], scale: float = 1.0) -> Callable[[Truth], Iterable[Observation]]:
    """Return an observer of one of the metrics of stages, for each tenant and tier of which it is known."""

    def observe(truth: Truth) -> Iterator[Observation]:
        for one in truth.stage_metrics.tenants:
            value = read(one)
            if value is not None:
                yield Observation(value * scale, {"tenant": one.tenant, "tier": one.tier})

    return observe


#: Name, unit, description, and how to compute it.
_GAUGES: tuple[tuple[str, str, str, Callable[[Truth], Iterable[Observation]]], ...] = (
    ("schedulemesh_runs", "", f"Kept runs by state, of the newest {LOOKED_AT_MAX} of each root tenant.", _runs),
    ("schedulemesh_stages_waiting", "", "Stages in the queue of a mesh, by the reason why they wait.", _waiting),
    ("schedulemesh_stages_running", "", "Stages that a mesh runs.", _running),
    ("schedulemesh_run_age_max", "s", "Age of the oldest run in a state that is not an end.", _run_ages),
    ("schedulemesh_stage_age_max", "s", "Time for which the oldest stage of a mesh has been queued or claimed.", _stage_ages),
    ("schedulemesh_dead_letters", "", f"Dead letters: nodes that failed for good, up to {LOOKED_AT_MAX}.", _dead),
    ("schedulemesh_webhook_pending", "", "Messages of a webhook that are to be delivered.", _webhooks(lambda counts: counts.pending)),
    (
        "schedulemesh_webhook_dead",
        "",
        "Messages of a webhook that were given up, since its first start.",
        _webhooks(lambda counts: counts.dead),
    ),
    ("schedulemesh_ledger_wrong_sums", "", "Sums of the ledger that differ from those of its leases; always 0.", _wrong_sums),
    ("schedulemesh_quota_nominal", "", "A tenant's nominal quota, in whole units (bytes for memory).", _nominal),
    ("schedulemesh_quota_used", "", "Amount charged to a tenant, in whole units (bytes for memory).", _used),
    ("schedulemesh_mesh_alive", "", "1 while the session of the mesh is within its time to live.", _alive),
    ("schedulemesh_mesh_heartbeat_age", "s", "Time since the last heartbeat of the mesh.", _heartbeat_age),
    ("schedulemesh_mesh_outside_group", "", "Nodes that failed with OUTSIDE_GROUP since the start of the mesh's process.", _outside),
    ("schedulemesh_pool_capacity", "", "Capacity of a pool, in whole units (bytes for memory).", _capacity),
    ("schedulemesh_pool_used", "", "Use of a pool, in whole units (bytes for memory).", _pool_used),
    ("schedulemesh_leases", "", "Leases that a tenant holds on a mesh.", _leases),
    (
        "schedulemesh_schedule_latency_p95",
        "s",
        "Time from a stage's sending to its start, or to the first reason why it waits, in the last minute.",
        _of_stages(lambda one: one.schedule_latency_p95_ms, 1e-3),
    ),
    (
        "schedulemesh_queue_wait_time_p99",
        "s",
        "Time from a stage's sending to its start, in the last minute.",
        _of_stages(lambda one: one.queue_wait_time_p99_ms, 1e-3),
    ),
    (
        "schedulemesh_stage_run_time_p95",
        "s",
        "Time from a stage's start to its end, in the last minute.",
        _of_stages(lambda one: one.stage_run_time_p95_ms, 1e-3),
    ),
    (
        "schedulemesh_placement_success_rate",
        "",
        "Share of the stages that started, of those tried in the last minute.",
        _of_stages(lambda one: one.placement_success_rate),
    ),
    (
        "schedulemesh_preemption_count",
        "",
        "Preempted stages in the last minute.",
        _of_stages(lambda one: one.preempted),
    ),
)
