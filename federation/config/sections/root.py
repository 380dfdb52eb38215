"""The sections about the root and its stores, and about what holds for the whole federation."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictBool

from federation.config.sections.section import Section
from federation.config.sections.values import WORD, DurationMs, SizeBytes, one_of

DurabilityWord = Annotated[str, one_of("D0", "D1", "D2"), WORD]


class FederationSection(Section):
    """What holds for the whole federation."""

    name: str = Field(description="What people call the federation; lower-case letters, digits, `.`, `_`, `-`.")
    lease_ttl_ms: DurationMs = Field(
        default=10_000, ge=200, le=3_600_000, alias="lease_ttl", description="How long a mesh may be silent before its leases run out."
    )
    heartbeat_ms: DurationMs = Field(
        default=2_000,
        ge=50,
        alias="heartbeat",
        description="How often a mesh renews its session, a fifth sooner or later each time; less than half of `lease_ttl`.",
    )
    lease_grace_ms: DurationMs = Field(
        default=3_000,
        ge=300,
        le=3_600_000,
        alias="lease_grace",
        description="How much longer the root waits before it takes leases back, so that a mesh always stops first; "
        "two thirds of it, 2s at most, the clock of Redis may leap ahead within a `lease_ttl`.",
    )
    retention_ms: DurationMs = Field(default=86_400_000, alias="retention", description="How long ended runs and their results are kept.")
    inline_limit_bytes: SizeBytes = Field(
        default=65_536,
        le=8 * 2**20,
        alias="inline_limit",
        description="Results up to this size travel through Redis, larger ones as files.",
    )
    body_limit_bytes: SizeBytes = Field(
        default=16 * 2**20, ge=1_024, le=512 * 2**20, alias="body_limit", description="The largest HTTP request body that is read."
    )


class RedisSection(Section):
    """Where the truth is kept."""

    url: str | None = Field(
        default=None,
        repr=False,  # it may hold a password
        description="URL of a server >= 6.2, of sentinels (`redis+sentinel://one,two/service`), of a cluster (`redis+cluster://one,two`); "
        "`rediss` for TLS; null: an embedded one, its file in the state folder.",
    )


class StorageSection(Section):
    """Where large results are kept."""

    url: str | None = Field(
        default=None,
        repr=False,
        description="fsspec URL that all meshes reach, like `s3://bucket/folder`; null: a folder in the state folder.",
    )


class RootSection(Section):
    """Where the root answers."""

    cluster: str = Field(description="The cluster that the HTTP gateways run in.")
    host: str = Field(default="127.0.0.1", description="The address that HTTP listens on; `0.0.0.0` for all.")
    port: int = Field(default=8000, ge=1, le=65_535, description="The port that HTTP listens on.")
    gateways: int = Field(default=1, ge=1, le=64, description="How many gateway replicas answer HTTP.")


class RoutingSection(Section):
    """How a mesh is chosen for a piece of work."""

    probation_ms: DurationMs = Field(
        default=5_000,
        le=86_400_000,
        alias="probation",
        description="How long a mesh that was lost and came back gets nothing new; doubled by each further loss. 0s: not at all.",
    )
    probation_max_ms: DurationMs = Field(
        default=600_000, le=86_400_000, alias="probation_max", description="The longest probation, however often the mesh was lost."
    )
    loss_window_ms: DurationMs = Field(
        default=1_800_000, ge=1_000, le=30 * 86_400_000, alias="loss_window", description="Losses longer ago than this are forgotten."
    )
    bandwidth_bytes_per_s: SizeBytes = Field(
        default=100 * 2**20,
        ge=1_024,
        le=2**40,
        alias="bandwidth",
        description="Bytes per second between meshes: what bringing inputs is reckoned with against waiting where they are.",
    )
    run_time_ms: DurationMs = Field(
        default=1_000,
        ge=1,
        le=86_400_000,
        alias="run_time",
        description="How long a stage is taken to run where none has ended yet; later the mesh's own recent mean counts.",
    )
    flavor_delay_ms: DurationMs = Field(
        default=1_000,
        le=86_400_000,
        alias="flavor_delay",
        description="How much later work may begin for the sake of a flavor that is tried earlier (the order is that of `flavors`): "
        "so long its inputs may be on the way. 0s: flavors decide between meshes where it would begin at the same time.",
    )


class DispatchSection(Section):
    """How much is taken in, how safely, and how often what failed is tried again."""

    runs_max: int = Field(
        default=10_000, ge=1, le=10_000_000, description="Open runs of a tenant and all below it; further ones are refused."
    )
    bytes_max: SizeBytes = Field(default=2 * 2**30, ge=1_024, description="Bytes of graphs and code that are open at most, alike.")
    queue_max: int = Field(
        default=10_000, ge=1, le=10_000_000, description="Stages that may wait for one mesh; beyond them, work stays at the root."
    )
    memory_percent_max: int = Field(
        default=80, ge=1, le=100, description="Percent of the Redis server's `maxmemory` in use beyond which nothing is taken in (503)."
    )
    durability: DurabilityWord = Field(
        default="D0",
        description="What submissions wait for that do not say: `D0`; `D1`, on disk; `D2`, on a replica too; where the server can.",
    )
    retry_wait_ms: DurationMs = Field(
        default=2_000,
        le=3_600_000,
        alias="retry_wait",
        description="What failed waits this long before it is tried again, doubled each time. 0s: it does not wait.",
    )
    retry_wait_max_ms: DurationMs = Field(default=300_000, le=86_400_000, alias="retry_wait_max", description="The longest such wait.")
    kills_max: int = Field(default=3, ge=1, le=100, description="Workers that may die under a node before it is taken for poison.")
    losses_max: int = Field(default=3, ge=0, le=1_000, description="Attempts that a node may lose with meshes before it fails.")


class TelemetrySection(Section):
    """What is told to the outside."""

    otlp_endpoint: str | None = Field(
        default=None, description="OTLP/HTTP address that traces go to, like `http://collector:4318`; null: nowhere."
    )
    traces_file: StrictBool = Field(default=True, description="Also write traces, as lines of JSON, into the state folder.")
