"""Sections about the root and its stores, and settings of the whole federation."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictBool

from federation.config.sections.section import Section
from federation.config.sections.values import WORD, DurationMs, SizeBytes, one_of

RunEnd = Annotated[str, one_of("SUCCEEDED", "FAILED", "CANCELLED"), WORD]
DurabilityWord = Annotated[str, one_of("D0", "D1", "D2"), WORD]


class FederationSection(Section):
    """Settings of the whole federation."""

    name: str = Field(description="Name of the federation; lower-case letters, digits, `.`, `_`, `-`.")
    lease_ttl_ms: DurationMs = Field(
        default=10_000, ge=200, le=3_600_000, alias="lease_ttl", description="How long a mesh may be silent before its leases expire."
    )
    heartbeat_ms: DurationMs = Field(
        default=2_000,
        ge=50,
        alias="heartbeat",
        description="How often a mesh renews its session, with up to 20% jitter; less than half of `lease_ttl`.",
    )
    lease_grace_ms: DurationMs = Field(
        default=3_000,
        ge=300,
        le=3_600_000,
        alias="lease_grace",
        description="Further wait before the root reclaims leases, so that a mesh always stops first; "
        "within a `lease_ttl` the clock of Redis may leap ahead by two thirds of this grace, 2s at most.",
    )
    retention_ms: DurationMs = Field(default=86_400_000, alias="retention", description="How long ended runs and their results are kept.")
    usage_retention_ms: DurationMs = Field(
        default=400 * 86_400_000,
        ge=86_400_000,
        le=4_000 * 86_400_000,
        alias="usage_retention",
        description="How long the use of each day is kept, for bills; in whole days.",
    )
    inline_limit_bytes: SizeBytes = Field(
        default=65_536,
        le=8 * 2**20,
        alias="inline_limit",
        description="Results up to this size are stored in Redis, larger ones as files.",
    )
    body_limit_bytes: SizeBytes = Field(
        default=16 * 2**20, ge=1_024, le=512 * 2**20, alias="body_limit", description="The largest accepted HTTP request body."
    )


class RedisSection(Section):
    """Redis, the store of the federation's state."""

    url: str | None = Field(
        default=None,
        repr=False,  # it may hold a password
        description="URL of a server >= 6.2, of sentinels (`redis+sentinel://one,two/service`), of a cluster (`redis+cluster://one,two`); "
        "`rediss` for TLS; null: an embedded server with its file in the state folder.",
    )


class StorageSection(Section):
    """Storage of large results."""

    url: str | None = Field(
        default=None,
        repr=False,
        description="fsspec URL that all meshes can access, like `s3://bucket/folder`; null: a folder in the state folder.",
    )


class RootSection(Section):
    """HTTP address and cluster of the root."""

    cluster: str = Field(description="The cluster of the HTTP gateways.")
    host: str = Field(default="127.0.0.1", description="The address that HTTP listens on; `0.0.0.0` for all.")
    port: int = Field(default=8000, ge=1, le=65_535, description="The port that HTTP listens on.")
    gateways: int = Field(default=1, ge=1, le=64, description="Number of gateway replicas.")


class RoutingSection(Section):
    """Choice of the mesh for each stage."""

    probation_ms: DurationMs = Field(
        default=5_000,
        le=86_400_000,
        alias="probation",
        description="How long a mesh that was lost and came back gets nothing new; doubled by each further loss. 0s: no probation.",
    )
    probation_max_ms: DurationMs = Field(
        default=600_000, le=86_400_000, alias="probation_max", description="The longest probation, whatever the number of losses."
    )
    loss_window_ms: DurationMs = Field(
        default=1_800_000, ge=1_000, le=30 * 86_400_000, alias="loss_window", description="Losses older than this are forgotten."
    )
    bandwidth_bytes_per_s: SizeBytes = Field(
        default=100 * 2**20,
        ge=1_024,
        le=2**40,
        alias="bandwidth",
        description="Assumed bytes per second between meshes; moving inputs is weighed against waiting beside them.",
    )
    run_time_ms: DurationMs = Field(
        default=1_000,
        ge=1,
        le=86_400_000,
        alias="run_time",
        description="Assumed run time of a stage until one has ended; then the mesh's recent mean is used.",
    )
    flavor_delay_ms: DurationMs = Field(
        default=1_000,
        le=86_400_000,
        alias="flavor_delay",
        description="Longest extra wait, transfer of inputs included, that is accepted for an earlier flavor (in the order of `flavors`). "
        "0s: flavors only break ties between meshes with the same start time.",
    )


class DispatchSection(Section):
    """Limits of submissions, their durability, and retries."""

    runs_max: int = Field(
        default=10_000, ge=1, le=10_000_000, description="Open runs of a tenant and all tenants below it; further ones are refused."
    )
    bytes_max: SizeBytes = Field(
        default=2 * 2**30, ge=1_024, description="Bytes of graphs and code of these open runs; further runs are refused."
    )
    queue_max: int = Field(
        default=10_000, ge=1, le=10_000_000, description="Stages that may wait for one mesh; further stages stay at the root."
    )
    memory_percent_max: int = Field(
        default=80, ge=1, le=100, description="Percent of the Redis server's `maxmemory` in use above which submissions are refused (503)."
    )
    durability: DurabilityWord = Field(
        default="D0",
        description="Default durability of submissions: `D0`; `D1`, on disk; `D2`, also on a replica; if the server supports it.",
    )
    retry_wait_ms: DurationMs = Field(
        default=2_000,
        le=3_600_000,
        alias="retry_wait",
        description="Wait before the first retry, doubled for each further retry. 0s: no wait.",
    )
    retry_wait_max_ms: DurationMs = Field(
        default=300_000, le=86_400_000, alias="retry_wait_max", description="The longest wait before a retry."
    )
    kills_max: int = Field(default=3, ge=1, le=100, description="Workers that may die under a node before the node is treated as poison.")
    losses_max: int = Field(default=3, ge=0, le=1_000, description="Attempts that a node may lose with meshes before it fails.")
    resume_window_ms: DurationMs = Field(
        default=600_000,
        le=86_400_000,
        alias="resume_window",
        description="How long meshes keep the values of a failed or cancelled run, so that `resume` need not compute them again.",
    )
    schedules_max: int = Field(default=100, ge=0, le=100_000, description="Schedules of a tenant, without the tenants below it.")
    schedule_bytes_max: SizeBytes = Field(
        default=64 * 2**20, ge=1_024, description="Bytes of graphs and code in all schedules of a tenant, without the tenants below it."
    )


class TelemetrySection(Section):
    """Export of traces."""

    otlp_endpoint: str | None = Field(
        default=None,
        description="OTLP/HTTP address for traces, like `http://collector:4318`; null: that of `OTEL_EXPORTER_OTLP_ENDPOINT`, or none.",
    )
    traces_file: StrictBool = Field(default=True, description="Also write traces, as lines of JSON, into the state folder.")


class WebhookSection(Section):
    """Receiver that the root calls when runs end."""

    url: str = Field(repr=False, description="Address of the receiver: `https`, or `http` to a host in `allow_http`.")
    events: tuple[RunEnd, ...] = Field(
        default=("SUCCEEDED", "FAILED", "CANCELLED"), min_length=1, description="Ends of runs that the receiver is told of."
    )
    tenant: str = Field(default="*", description="Only runs of this tenant and the tenants below it; `*`: of all tenants.")
    secret_file: str | None = Field(
        default=None,
        min_length=1,
        description="File with the keys that sign the calls, one a line, each `whsec_` and base64; null: unsigned.",
    )
    timeout_ms: DurationMs = Field(
        default=10_000, ge=100, le=60_000, alias="timeout", description="Longest time of one call, until its status has come."
    )
    attempts_max: int = Field(
        default=10, ge=1, le=100, description="Attempts before a call is given up; the waits between them grow from 5s to 6h."
    )


class WebhooksSection(Section):
    """[Webhooks](webhooks.md): calls to other services when runs end."""

    allow_http: tuple[str, ...] = Field(default=(), description="Hosts that may be called without TLS, by name or address.")
    endpoints: dict[str, WebhookSection] = Field(default={}, description="Receivers by name.")
