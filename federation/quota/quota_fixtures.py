"""Small quota worlds for tests, in few words: one resource, `gpu`, of the flavor `red` unless another is named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from federation.quota.forest import ForestNode, QuotaForest
from federation.quota.policies import MESH, Policies, QueueSettings, ResourceGroup, Rules
from federation.quota.scheduler import QuotaScheduler
from federation.quota.snapshot import Ask, QuotaSnapshot
from federation.quota.workloads import ReplicaSet, Running, Workload
from federation.tenants import FlavorResource, Quota
from mesh.core.ids import FlavorName

RED: FlavorResource = (FlavorName("red"), "gpu")
BLUE: FlavorResource = (FlavorName("blue"), "gpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaNode:
    """A node of a small world; a queue if no other node names it as its parent."""

    parent: str | None = None
    nominal: int = 0
    borrowing: int | None = None
    lending: int | None = None
    blue: int | None = None  #: Nominal quota of the second flavor; None: the node does not declare it.
    weight: Fraction = Fraction(1)
    settings: QueueSettings = field(default_factory=QueueSettings)
    policies: Policies | None = None  #: Overrides the policies of the settings.
    flavors: tuple[str, ...] = ("red",)

    @property
    def quotas(self) -> dict[FlavorResource, Quota]:
        """By (flavor, resource)."""
        limits = Quota(nominal=self.nominal, borrowing_limit=self.borrowing, lending_limit=self.lending)
        return {RED: limits} if self.blue is None else {RED: limits, BLUE: Quota(nominal=self.blue)}


def forest_of(nodes: Mapping[str, QuotaNode]) -> QuotaForest:
    """Return the forest of a small world."""
    parents = {node.parent for node in nodes.values()}
    return QuotaForest(
        ForestNode(name=name, parent=node.parent, quotas=node.quotas, weight=node.weight, is_queue=name not in parents)
        for name, node in nodes.items()
    )


def settings_of(forest: QuotaForest, nodes: Mapping[str, QuotaNode]) -> dict[int, QueueSettings]:
    """Return the settings of its nodes."""
    found: dict[int, QueueSettings] = {}
    for name, node in nodes.items():
        own = node.settings
        found[forest.index[name]] = QueueSettings(
            policies=node.policies or own.policies,
            fungibility=own.fungibility,
            groups=own.groups or (ResourceGroup(resources=("gpu",), flavors=node.flavors),),
            is_strict=own.is_strict,
            stop=own.stop,
            running_max=own.running_max,
            running_max_per_user=own.running_max_per_user,
            max_wait_ms=own.max_wait_ms,
            windows=own.windows,
            on_quota_reduction=own.on_quota_reduction,
            min_run_ms=own.min_run_ms,
        )
    return found


def scheduler_of(rules: Rules = MESH, **nodes: QuotaNode) -> QuotaScheduler:
    """Return a scheduler of a small world with nothing running."""
    forest = forest_of(nodes)
    return QuotaScheduler(forest, settings_of(forest, nodes), rules)


def snapshot_of(running: list[Running], rules: Rules, now_ms: int = 0, **nodes: QuotaNode) -> QuotaSnapshot:
    """Return a snapshot of a small world with this running work."""
    forest = forest_of(nodes)
    snapshot = QuotaSnapshot(forest, rules, settings_of(forest, nodes), now_ms=now_ms)
    for one in running:
        snapshot.add(one)
    snapshot.forget_log()
    return snapshot


def work(
    name: str,
    queue: str,
    gpu: int,
    *,
    priority: int = 0,
    created_ms: int = 0,
    user: str = "",
    count: int = 1,
    count_min: int | None = None,
    runs_ms: int | None = None,
) -> Workload:
    """Return a workload of `count` replicas with so many GPUs each."""
    one = ReplicaSet(name="main", count=count, count_min=count_min, amounts={"gpu": gpu})
    return Workload(
        workload=name,
        queue=queue,
        created_ms=created_ms,
        replica_sets=(one,),
        priority=priority,
        user=user,
        expected_run_ms=runs_ms,
    )


def runs(
    workload: Workload,
    *,
    since_ms: int = 0,
    key: FlavorResource = RED,
    saved_ms: int | None = None,
    is_leaving: bool = False,
) -> Running:
    """Return the workload as running with all that it asks for, of one flavor."""
    units = sum(one.count * one.amounts["gpu"] for one in workload.replica_sets)
    return Running(workload=workload, amounts={key: units}, since_ms=since_ms, saved_ms=saved_ms, is_leaving=is_leaving)


def ask_for(snapshot: QuotaSnapshot, workload: Workload, key: FlavorResource = RED) -> Ask:
    """Return the request of the workload for one flavor that does not fit."""
    units = sum(one.count * one.amounts["gpu"] for one in workload.replica_sets)
    return Ask(workload=workload, node=snapshot.forest.index[workload.queue], amounts={key: units}, needed=frozenset({key}))
