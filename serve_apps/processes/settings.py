"""Settings of the stack's processes: one JSON file per process, readable only by its owner.

Secrets (the URL of Redis holds its password; keys of meshes) travel in these files, never in arguments or logs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, model_validator

from dag.backlog import BacklogLimits
from dag.run.retrying import RetryRules
from dag.schedules.schedule import ScheduleLimits
from dag.webhooks.webhook import Webhook
from federation.configured_meshes import ConfiguredMeshes
from federation.durability import Durability
from federation.estimates import CostRules
from federation.flap_detection import FlapRules
from federation.snapshot import MeshRecord
from federation.usage.keeper import USAGE_DAYS


def otlp_endpoint_in(environment: Mapping[str, str]) -> str | None:
    """Return the OTLP/HTTP address that OpenTelemetry's own variables name; None: none."""
    return environment.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or environment.get("OTEL_EXPORTER_OTLP_ENDPOINT") or None


class LinkSettings(BaseModel):
    """Connection to the root of a mesh without a key to the store."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    roots: tuple[str, ...] = Field(min_length=1)  #: Addresses of the root's replicas, tried in order.
    key: str = Field(repr=False)  #: Key of the mesh.
    ca_file: str | None = None  #: CA certificates of the roots; None: the machine's own.


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    ray_address: str
    heartbeat_ms: int
    storage_url: str  #: fsspec URL of the folder for values that are too large for the control store.

    def write(self, path: Path) -> None:
        """Write to a file that only its owner can read."""
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.fchmod(descriptor, 0o600)  # The mode given to `open` applies only to new files.
        with os.fdopen(descriptor, "w") as file:
            file.write(self.model_dump_json())


class StoreSettings(BaseModel):
    """Connection to the store of a mesh that the root trusts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    redis_url: str = Field(repr=False)
    ledger: str | None = None  #: Ledger id, under which the ledger is recreated after a loss; None: any id.
    replicated: bool = False  #: Replicas are configured, and grants wait briefly for one of them.
    lease_ttl_ms: int
    lease_grace_ms: int


class RootSettings(_Settings):
    """Settings of the root mesh: Serve deployments on one cluster."""

    redis_url: str = Field(repr=False)
    ledger: str | None = None  #: Ledger id, under which the ledger is recreated after a loss; None: any id.
    replicated: bool = False  #: Replicas are configured, and grants wait briefly for one of them.
    lease_ttl_ms: int
    lease_grace_ms: int
    has_own_cluster: bool = False  #: No mesh may use the root's cluster.
    cluster_stays: bool = False  #: The cluster existed before the root and remains after it.
    host: str
    port: int
    gateways: int  #: Replicas of the HTTP gateway.
    body_limit_bytes: int
    inline_limit_bytes: int
    retention_ms: int
    configured_meshes: ConfiguredMeshes  #: Meshes and flavors that the configuration names.
    receipt_keys: dict[int, str] = Field(repr=False)  #: Keys that sign leases sent over HTTP; see `federation.receipts`.
    otlp_endpoint: str | None = None
    traces_file: str | None = None  #: JSON lines, one per span.
    costs: CostRules = CostRules()
    flap_rules: FlapRules = FlapRules()
    backlog: BacklogLimits = BacklogLimits()
    schedules: ScheduleLimits = ScheduleLimits()
    retrying: RetryRules = RetryRules()
    durability: Durability = Durability.D0
    webhooks: tuple[Webhook, ...] = ()
    usage_days: int = USAGE_DAYS  #: How many days the use of a day is kept.

    @staticmethod
    def read(path: str) -> RootSettings:
        """Read the settings from a file of `write`."""
        return RootSettings.model_validate_json(Path(path).read_bytes())


class ChildSettings(_Settings):
    """Settings of one child mesh, with a key to the store or with a link to the root."""

    store: StoreSettings | None
    link: LinkSettings | None
    record: MeshRecord  #: The process sets `cluster` and `address`, which it asks Ray for.
    node_labels: dict[str, str]  #: Ray node labels of the mesh's slice of the cluster.
    inline_limit_bytes: int
    warm_runners: int
    plugins: dict[str, str] = {}  #: By name: `module:attribute`, or the absolute path of a WebAssembly file.

    @model_validator(mode="after")
    def _one_way(self) -> ChildSettings:
        if (self.store is None) == (self.link is None):
            raise ValueError("give exactly one of `store` and `link`")
        return self

    @staticmethod
    def read(path: str) -> ChildSettings:
        """Read the settings from a file of `write`."""
        return ChildSettings.model_validate_json(Path(path).read_bytes())
