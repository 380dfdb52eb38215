"""What may stand in a federation file, key by key. Meaning across keys is checked in `federation.config_checks`.

A quantity is text with its unit (`10s`, `64KiB`); the attribute that holds it names the unit (`lease_ttl_ms`). Amounts of
resources stay as they were written until it is known which resource they are of.
"""

from __future__ import annotations

import re
from enum import Enum
from fractions import Fraction
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    PrivateAttr,
    StrictBool,
    Tag,
    WithJsonSchema,
    model_validator,
)

from mesh.errors import AmountError
from mesh.resources import parse_bytes

_DURATION = re.compile(r"^(?P<count>\d{1,12})\s*(?P<unit>ms|s|m|h|d)$")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_duration(text: object) -> int:
    """`"500ms"`, `"10s"`, `"5m"`, `"2h"`, `"1d"` to milliseconds.

    Raises:
        ValueError: No such text; a number alone has no unit and is refused.
    """
    match = _DURATION.match(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"must be a time like 500ms, 10s, 5m, 2h or 1d (got {text!r})")
    return int(match["count"]) * _UNIT_MS[match["unit"]]


def format_duration(duration_ms: int) -> str:
    """The shortest text that `parse_duration` reads back."""
    unit = next(unit for unit in ("d", "h", "m", "s", "ms") if duration_ms % _UNIT_MS[unit] == 0)
    return f"{duration_ms // _UNIT_MS[unit]}{unit}" if duration_ms else "0s"


def _size(text: object) -> int:
    if isinstance(text, bool) or not isinstance(text, (int, str)):
        raise ValueError(f"must be a size like 512KiB, 200MiB or 4GiB (got {text!r})")  # noqa: TRY004  pydantic collects ValueErrors only
    try:
        return parse_bytes(text)
    except AmountError as wrong:
        raise ValueError(str(wrong)) from None


def _amount(value: object) -> int | float | str:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"must be an amount like 2, 0.5 or 4GiB (got {value!r})")  # noqa: TRY004  pydantic collects ValueErrors only
    return value


def _weight(value: object) -> Fraction:
    try:
        weight = Fraction(str(value)) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else None
    except (ValueError, ZeroDivisionError):
        weight = None
    if weight is None or weight < 0 or 0 < weight <= WEIGHT_LEAST or weight > WEIGHT_MOST:
        raise ValueError(f"must be 0, or a number like 2, 0.5 or 1/3 up to {WEIGHT_MOST} (got {value!r})")
    return weight


def _one_of(*words: str) -> PlainValidator:
    """Text that is one of the words."""

    def chosen(value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise ValueError(f"must be one of {', '.join(words)} (got {value!r})")
        return value

    return PlainValidator(chosen)


_WORD = WithJsonSchema({"type": "string"})
WEIGHT_LEAST = Fraction(1, 10**9)  #: Smaller ones are mistakes; 0 has a meaning of its own.
WEIGHT_MOST = 1_000_000
Weight = Annotated[Fraction, PlainValidator(_weight), WithJsonSchema({"type": "string"})]
WithinTenant = Annotated[str, _one_of("never", "lower_priority", "lower_or_newer"), _WORD]
Reclaim = Annotated[str, _one_of("never", "lower_priority", "any"), _WORD]
Borrow = Annotated[str, _one_of("never", "lower_priority"), _WORD]
Search = Annotated[str, _one_of("stop", "next"), _WORD]
Prefer = Annotated[str, _one_of("borrowing", "preemption"), _WORD]
OnCut = Annotated[str, _one_of("keep", "evict"), _WORD]
OnMaxWait = Annotated[str, _one_of("refuse", "first"), _WORD]
DurabilityWord = Annotated[str, _one_of("D0", "D1", "D2"), _WORD]
Stop = Annotated[str, _one_of("none", "hold", "drain"), _WORD]

DurationMs = Annotated[int, BeforeValidator(parse_duration), WithJsonSchema({"type": "string", "format": "time"})]
SizeBytes = Annotated[int, BeforeValidator(_size), WithJsonSchema({"type": "string", "format": "size"})]
Amount = Annotated[int | float | str, PlainValidator(_amount), WithJsonSchema({"type": ["number", "string"], "format": "amount"})]
Labels = dict[str, str]

TREE_TAG, LIST_TAG = "(tree)", "(list)"  #: pydantic puts them into the place of an error; no key can be called so.


class Section(BaseModel):
    """A part of the file: unknown keys are errors, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class FederationSection(Section):
    """What holds for the whole federation."""

    name: str = Field(description="What people call the federation; lower-case letters, digits, `.`, `_`, `-`.")
    lease_ttl_ms: DurationMs = Field(
        default=10_000, ge=200, le=3_600_000, alias="lease_ttl", description="How long a mesh may be silent before its leases run out."
    )
    heartbeat_ms: DurationMs = Field(
        default=2_000, ge=50, alias="heartbeat", description="How often a mesh renews its session; less than half of `lease_ttl`."
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


class NodeSection(Section):
    """A node of a cluster that `up` starts."""

    cpu: int = Field(ge=0, le=100_000, description="CPUs that the node offers, whole ones.")
    gpu: int = Field(default=0, ge=0, le=100_000, description="GPUs that the node offers, whole ones.")
    memory_bytes: SizeBytes | None = Field(default=None, alias="memory", description="Memory that the node offers; null: what Ray finds.")
    resources: dict[str, Amount] = Field(default={}, description="Custom resources by name, in whole units or decimals.")
    labels: Labels = Field(default={}, description="Ray node labels.")


class ClusterSection(Section):
    """A Ray cluster: started by `up` (`nodes`), or found at an address (`address`)."""

    nodes: tuple[NodeSection, ...] | None = Field(
        default=None, min_length=1, description="Nodes to start on this machine; the first is the head. Either this or `address`."
    )
    object_store_bytes: SizeBytes = Field(
        default=200 * 2**20, ge=80 * 2**20, alias="object_store", description="Object store of each started node; at least 80MiB."
    )
    address: str | None = Field(default=None, description="`host:port` of a running Ray cluster. Either this or `nodes`.")

    @model_validator(mode="after")
    def _one_origin(self) -> ClusterSection:
        if (self.nodes is None) == (self.address is None):
            raise ValueError("needs either `nodes` (started here) or `address` (attached), one of the two")
        return self


class FlavorSection(Section):
    """A named kind of capacity."""

    labels: Labels = Field(
        default={}, description="What labels a mesh needs to offer the flavor: `x`, `!x`, `in(x, y)`, `!in(x, y)`, or `!`: not there."
    )
    description: str = Field(default="", description="For people.")


class PoolSection(Section):
    """The capacity of one flavor in one mesh."""

    flavor: str = Field(description="The flavor that the pool offers.")
    capacity: dict[str, Amount] = Field(
        min_length=1, description="What the pool holds at most: `cpu`, `gpu`, `memory` or a custom resource."
    )


class MeshLink(str, Enum):
    """How a mesh reaches the root, and who starts it."""

    DIRECT = "direct"
    """Started by `up`; has the URL of Redis, as the root itself."""
    HTTP = "http"
    """Started by `up`; has a key of its own and no URL of Redis."""
    JOINS = "joins"
    """Not started by `up`: comes by itself with `schedulemesh join`, over HTTP, from any Ray cluster."""


class MeshSection(Section):
    """A Ray cluster, or a labelled slice of one, as a scheduling domain."""

    cluster: str = Field(default="", description="The cluster that the mesh is in; only a mesh that joins by itself needs none.")
    link: MeshLink = Field(
        default=MeshLink.DIRECT,
        description="`direct`: `up` starts the mesh, with the URL of Redis. `http`: with a key of its own instead, over HTTP. "
        "`joins`: it comes by itself, see [joining](joining.md).",
    )
    node_labels: Labels = Field(default={}, description="Only nodes with all of these Ray labels belong to the mesh; empty: all nodes.")
    labels: Labels = Field(default={}, description="What work asks for by `labels=`; flavors are matched with these.")
    tenants: tuple[str, ...] = Field(default=("*",), description="Who may use it: tenant paths, each with all below it; `*` for everybody.")
    pools: dict[str, PoolSection] = Field(min_length=1, description="Capacity by pool name.")
    warm_runners: int = Field(
        default=1, ge=0, le=64, description="Stage runners kept started, so that a stage need not wait for a process."
    )


class QuotaSection(Section):
    """The limits of a tenant for one resource of one flavor."""

    nominal: Amount = Field(default=0, description="What is the tenant's own.")
    borrowing_limit: Amount | None = Field(default=None, description="How much it may use beyond its own; null: no limit, 0: nothing.")
    lending_limit: Amount | None = Field(default=None, description="How much of its own others may use; null: all of it, 0: nothing.")


#: The ledger and the planner that works on it do not ask for these.
_EXPLAINED = "Only explanations, dry runs and conformance heed it."
_MIN_RUN = (
    "Nothing is preempted before it has run so long: within a mesh since the stage began, where quota is taken back since its mesh has "
    "held the lease without a break."
)


class SchedulingSection(Section):
    """Who gives way to a tenant's work, and where it looks for room; null: as the tenant above."""

    within_tenant: WithinTenant | None = Field(
        default=None,
        description="Which of its own running work gives way: `never`, `lower_priority` (at the top), "
        "`lower_or_newer` of equal priority (within a mesh the same as `lower_priority`).",
    )
    reclaim: Reclaim | None = Field(
        default=None,
        description="Whose work gives way while others borrow what is the tenant's: `never`, `lower_priority`, `any` (at the top).",
    )
    borrow: Borrow | None = Field(
        default=None,
        description="Whose work gives way while the tenant borrows itself, as the work of others who do: `never` (at the top), "
        "`lower_priority`. With `fair_sharing` it means nothing: shares decide.",
    )
    borrow_priority_max: int | None = Field(
        default=None, description="With `borrow`: only work up to this priority (at the top: any lower one)."
    )
    on_borrow: Search | None = Field(
        default=None,
        description="When a flavor would do by borrowing: `stop` (at the top) and take it, or try the `next` one. Flavors are tried in the "
        "order of `flavors`, see [quota](quota.md#which-flavor).",
    )
    on_preempt: Search | None = Field(
        default=None,
        description="When others would give way for a flavor: `stop`, take it and wait for them, or try the `next` one (at the top).",
    )
    prefer: Prefer | None = Field(
        default=None,
        description="Of several flavors that were tried and would do: rather `borrowing` (at the top), or rather `preemption`.",
    )
    strict_order: StrictBool | None = Field(
        default=None,
        description="Does nothing of the tenant start on a mesh before the first of it that waits there, by priority, then arrival? "
        "null: as the tenant above, at the top: no.",
    )
    min_run_ms: DurationMs | None = Field(
        default=None, alias="min_run", description="As `min_run` of `quota`, for its work; at the top: that one."
    )
    on_cut: OnCut | None = Field(
        default=None,
        description="When its quota is lowered below what runs: `keep` it running (at the top), or `evict` as much as needed.",
    )


class WindowSection(Section):
    """A time in which a tenant's work may start, again and again."""

    opens_ms: DurationMs = Field(
        alias="opens", description="When it opens, from the beginning of each period (of a day: after midnight UTC)."
    )
    lasts_ms: DurationMs = Field(alias="lasts", ge=1, description="How long it stays open.")
    every_ms: DurationMs = Field(
        default=86_400_000, ge=1_000, le=366 * 86_400_000, alias="every", description="The period, counted from 1970-01-01 UTC."
    )


class LimitsSection(Section):
    """Limits beside quota, for a tenant and all below it together."""

    running_max: int | None = Field(default=None, ge=1, description="Stages that are sent to meshes and have not ended, at a time.")
    running_max_per_user: int | None = Field(default=None, ge=1, description="The same for each [user](http.md#what-holds-for-all).")
    max_wait_ms: DurationMs | None = Field(
        default=None,
        ge=1_000,
        alias="max_wait",
        description="How long work may wait to start, at the root or at a mesh; see `on_max_wait`; null: as the tenant above.",
    )
    on_max_wait: OnMaxWait | None = Field(
        default=None,
        description="What waited longer: `refuse` it (at the top), or let it go `first` when quota is planned; null: as the tenant above.",
    )
    stop: Stop = Field(default="none", description="`hold`: nothing new starts; `drain`: what runs stops as well, to run again later.")
    windows: tuple[WindowSection, ...] = Field(default=(), description="New work starts only inside of one of these; none: always.")


class RulesSection(Section):
    """By which rules quota is given; see `docs/quota.md`."""

    fair_sharing: StrictBool = Field(default=True, description="Go by dominant shares; false: by borrowing and priority.")
    min_run_ms: DurationMs = Field(default=60_000, alias="min_run", description=_MIN_RUN)
    hold_ms: DurationMs = Field(default=60_000, alias="hold", description="How long room that is being freed is held for who freed it.")
    heads_max: int = Field(default=16, ge=1, le=1_000, description=f"Workloads of one queue that are decided in a round. {_EXPLAINED}")
    backfill: StrictBool = Field(
        default=True, description=f"Does big work that waits get a date that smaller work may not delay? {_EXPLAINED}"
    )
    history_half_life_ms: DurationMs = Field(
        default=0,
        alias="history_half_life",
        description="Of claims of one priority beyond their own quota, less use in the past goes first, which counts half after so long; "
        "0s: the past does not count.",
    )


class TenantRights(Section):
    """What a tenant may do; the same keys in both forms of `tenants`."""

    parent: str | None = Field(
        default=None,
        description="Path of the tenant whose quota it shares; null: of the one that its path names, `acme` for `acme/research`. "
        "Where it is another one the path stays the tenant's name; see [another parent](quota.md#another-parent-for-a-tenant).",
    )
    quotas: dict[str, dict[str, QuotaSection]] = Field(default={}, description="Limits by flavor, then by resource.")
    weight: Weight = Field(
        default=Fraction(1),
        description="Its part of what is borrowed, beside its siblings', as a number or fraction; 0: only what nobody else wants.",
    )
    scheduling: SchedulingSection = Field(
        default=SchedulingSection(), description="Who gives way to its work, and where it looks for room."
    )
    limits: LimitsSection = Field(default=LimitsSection(), description="Limits beside quota, for it and all below it together.")
    functions: tuple[str, ...] | None = Field(
        default=None, description="Patterns like `examples.*:*` that functions named in JSON specs must match; null: as the parent."
    )
    pickled_code: StrictBool | None = Field(
        default=None,
        description="May its clients send pickled functions (run in its own workers only)? null: as the parent, at the top: no.",
    )


class TenantSection(TenantRights):
    """A tenant; its place in the tree is its name."""

    tenants: dict[str, TenantSection] = Field(default={}, description="Tenants below this one, by name.")


class TenantEntry(TenantRights):
    """A tenant in the list form: `path`, or `name`, which stands below `parent` or, without one, at the top."""

    path: str | None = Field(default=None, description="The whole path, like `acme/research`. Either this or `name`.")
    name: str | None = Field(default=None, description="The last part of the path. Either this or `path`.")

    @model_validator(mode="after")
    def _one_name(self) -> TenantEntry:
        if (self.path is None) == (self.name is None):
            raise ValueError("needs either `path`, or `name` (and `parent`), one of the two")
        return self


def _form(value: Any) -> str:
    return LIST_TAG if isinstance(value, (list, tuple)) else TREE_TAG


Tenants = Annotated[
    Annotated[dict[str, TenantSection], Field(min_length=1), Tag(TREE_TAG)]
    | Annotated[tuple[TenantEntry, ...], Field(min_length=1), Tag(LIST_TAG)],
    Discriminator(_form),
]


class FederationConfig(Section):
    """What one file describes."""

    _warnings: tuple[str, ...] = PrivateAttr(default=())

    federation: FederationSection = Field(description="What holds for the whole federation.")
    redis: RedisSection = Field(default=RedisSection(), description="Where the truth is kept.")
    storage: StorageSection = Field(default=StorageSection(), description="Where large results are kept.")
    root: RootSection = Field(description="Where the root answers.")
    routing: RoutingSection = Field(default=RoutingSection(), description="How a mesh is chosen for a piece of work.")
    dispatch: DispatchSection = Field(
        default=DispatchSection(), description="How much is taken in, how safely, and how often what failed is tried again."
    )
    telemetry: TelemetrySection = Field(default=TelemetrySection(), description="What is told to the outside.")
    import_paths: tuple[str, ...] = Field(
        default=(".",), description="Folders, relative to this file, that functions named in JSON specs are imported from."
    )
    clusters: dict[str, ClusterSection] = Field(min_length=1, description="Ray clusters by name.")
    flavors: dict[str, FlavorSection] = Field(min_length=1, description="Kinds of capacity by name.")
    meshes: dict[str, MeshSection] = Field(min_length=1, description="Scheduling domains by name.")
    quota: RulesSection = Field(default=RulesSection(), description="By which rules quota is given.")
    tenants: Tenants = Field(description="The tenant tree, by name; or a list of tenants that name their parents.")

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is allowed and yet likely a mistake, one located line each."""
        return self._warnings
