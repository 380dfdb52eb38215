"""Settings of the root's process that come from the federation file, the same for `up` and for Serve's config file."""

from __future__ import annotations

import os

from federation.config.loading import FederationConfig, configured_meshes_of, cost_rules_of, flap_rules_of
from federation.durability import Durability
from federation.usage.accounting import DAY_MS
from serve_apps.configuration.dispatch_rules import backlog_limits_of, retry_rules_of, schedule_limits_of, webhooks_of
from serve_apps.processes.settings import RootSettings, otlp_endpoint_in


def root_settings_of(
    config: FederationConfig,
    *,
    ray_address: str,
    redis_url: str,
    ledger: str | None,
    replicated: bool,
    storage_url: str,
    port: int,
    receipt_keys: dict[int, str],
    cluster_stays: bool,
    traces_file: str | None = None,
) -> RootSettings:
    """Return the root's settings.

    Args:
        ray_address: Ray cluster of the root; empty if the root is deployed from inside the cluster.
        replicated: Grants wait briefly for a replica of Redis.
        storage_url: Folder for large values.
        cluster_stays: The cluster existed before the root and remains after it.
    """
    section, federation = config.root, config.federation
    return RootSettings(
        ray_address=ray_address,
        heartbeat_ms=federation.heartbeat_ms,
        storage_url=storage_url,
        redis_url=redis_url,
        ledger=ledger,
        replicated=replicated,
        lease_ttl_ms=federation.lease_ttl_ms,
        lease_grace_ms=federation.lease_grace_ms,
        has_own_cluster=not config.clusters[section.cluster].shared,
        cluster_stays=cluster_stays,
        host=section.host,
        port=port,
        gateways=section.gateways,
        body_limit_bytes=federation.body_limit_bytes,
        inline_limit_bytes=federation.inline_limit_bytes,
        retention_ms=federation.retention_ms,
        configured_meshes=configured_meshes_of(config),
        receipt_keys=receipt_keys,
        otlp_endpoint=config.telemetry.otlp_endpoint or otlp_endpoint_in(os.environ),
        traces_file=traces_file,
        costs=cost_rules_of(config),
        flap_rules=flap_rules_of(config),
        backlog=backlog_limits_of(config),
        schedules=schedule_limits_of(config),
        retrying=retry_rules_of(config),
        durability=Durability(config.dispatch.durability),
        webhooks=webhooks_of(config),
        usage_days=federation.usage_retention_ms // DAY_MS,
    )
