"""Conversion of a federation file for the quota core: the forest, the settings of its nodes, the rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from federation.config.loading import tenants_of
from federation.config.models import FederationConfig
from federation.config.sections.quota import SchedulingSection
from federation.config.sections.tenants import LimitsSection
from federation.config.tenant_paths import PlacedTenant
from federation.quota.forest import OWN_LEAF, QuotaForest
from federation.quota.policies import (
    Fungibility,
    OnMaxWait,
    OnQuotaReduction,
    Policies,
    PreemptionMode,
    Preference,
    QueueSettings,
    ResourceGroup,
    Rules,
    Stop,
    TenantPolicies,
    TimeWindow,
    TryOn,
)
from federation.tenants import TenantTree
from mesh.core.ids import TenantPath

#: Values of a file, and their policies.
PREEMPT = {
    "never": PreemptionMode.NEVER,
    "lower_priority": PreemptionMode.LOWER_PRIORITY,
    "lower_or_newer": PreemptionMode.LOWER_OR_NEWER,
    "any": PreemptionMode.ANY,
}
TRY_ON = {"stop": TryOn.STOP, "next": TryOn.NEXT}
PREFER = {"borrowing": Preference.BORROWING, "preemption": Preference.PREEMPTION}

#: Defaults at the top of the tree.
TOP = SchedulingSection(
    within_tenant="lower_priority",
    reclaim="any",
    borrow="never",
    flavor_order=(),
    on_borrow="stop",
    on_preempt="next",
    prefer="borrowing",
    strict_order=False,
    on_quota_reduction="keep",
)


def rules_of(config: FederationConfig) -> Rules:
    asked = config.quota
    return Rules(
        fair_sharing=asked.fair_sharing,
        min_run_ms=asked.min_run_ms,
        reservation_timeout_ms=asked.reservation_timeout_ms,
        history_half_life_ms=asked.history_half_life_ms,
    )


def tenant_policies_of(config: FederationConfig) -> TenantPolicies:
    """Return the rules, weights and settings of a file's tenants by path, for callers that have the limits from elsewhere."""
    forest, settings = forest_with_settings(config)
    placed = config.placed_tenants.tenants
    return TenantPolicies(
        rules=rules_of(config),
        weights={tenant.path: tenant.rights.weight for tenant in placed if tenant.rights.weight != 1},
        settings={tenant.path: settings[forest.node(tenant.path)] for tenant in placed},
    )


def forest_with_settings(config: FederationConfig) -> tuple[QuotaForest, Mapping[int, QueueSettings]]:
    """Return the forest of a file's tenants, and the settings of each node.

    Scheduling settings are inherited key by key. Flavors are tried in the tenant's order, then in the order of the file, one for all
    resources of a replica set.
    """
    placed = config.placed_tenants.tenants
    weights: dict[str, Fraction] = {tenant.path: tenant.rights.weight for tenant in placed}
    forest = QuotaForest.of_tenants(TenantTree(tenants_of(config)), weights)
    resources = sorted({resource for _, resource in forest.keys})
    everything = ResourceGroup(resources=tuple(resources), flavors=tuple(config.flavors))
    inherited: dict[TenantPath | None, SchedulingSection] = {None: TOP}
    waits: dict[TenantPath | None, tuple[int | None, str]] = {None: (None, OnMaxWait.REFUSE.value)}
    bounds: dict[TenantPath | None, int | None] = {None: None}
    settings: dict[int, QueueSettings] = {}
    for tenant in placed:  # Parents come before children.
        limits = tenant.rights.limits
        inherited[tenant.path] = own = _inheriting(inherited[tenant.parent], tenant)
        above_ms, above = waits[tenant.parent]
        wait_ms, then = above_ms if limits.max_wait_ms is None else limits.max_wait_ms, limits.on_max_wait or above
        waits[tenant.path] = wait_ms, then
        bounds[tenant.path] = bound = min((one for one in (bounds[tenant.parent], limits.priority_max) if one is not None), default=None)
        # The own leaf stands below its tenant, so the tenant's limits apply to it already.
        for node, section in ((tenant.path, limits), (tenant.path + OWN_LEAF, LimitsSection())):
            if node in forest.index:
                settings[forest.index[node]] = replace(
                    _settings(own, section, everything), max_wait_ms=wait_ms, on_max_wait=OnMaxWait(then), priority_max=bound
                )
    return forest, settings


def _inheriting(above: SchedulingSection, tenant: PlacedTenant) -> SchedulingSection:
    own = {name: value for name, value in tenant.rights.scheduling.__dict__.items() if value is not None}
    return above.model_copy(update=own)


def _settings(own: SchedulingSection, limits: LimitsSection, everything: ResourceGroup) -> QueueSettings:
    return QueueSettings(
        policies=Policies(
            within_queue=PREEMPT[str(own.within_tenant)],
            reclaim=PREEMPT[str(own.reclaim)],
            borrow=PREEMPT[str(own.borrow)],
            borrow_priority_max=own.borrow_priority_max,
        ),
        fungibility=Fungibility(
            on_borrow=TRY_ON[str(own.on_borrow)], on_preempt=TRY_ON[str(own.on_preempt)], preference=PREFER[str(own.prefer)]
        ),
        groups=(replace(everything, flavors=tuple(dict.fromkeys((*(own.flavor_order or ()), *everything.flavors)))),),
        is_strict=bool(own.strict_order),
        stop=Stop(limits.stop),
        running_max=limits.running_max,
        running_max_per_user=limits.running_max_per_user,
        windows=tuple(TimeWindow(opens_ms=one.opens_ms, lasts_ms=one.lasts_ms, every_ms=one.every_ms) for one in limits.windows),
        on_quota_reduction=OnQuotaReduction(str(own.on_quota_reduction)),
        min_run_ms=own.min_run_ms,
    )
