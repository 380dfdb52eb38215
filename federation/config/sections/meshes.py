"""Sections about capacity: clusters and their nodes, flavors, meshes and their pools."""

from __future__ import annotations

from enum import Enum

from pydantic import ConfigDict, Field, StrictBool, model_validator

from federation.config.sections.mesh_settings import MeshPreemptionSection, QueueSection, WeightsSection
from federation.config.sections.section import Section
from federation.config.sections.values import Amount, DurationMs, Labels, SizeBytes
from mesh.core.pools import DEFAULT_POLICY
from mesh.stages.spec import PRIORITY_MAX


class NodeSection(Section):
    """Node of a cluster that `up` starts."""

    cpu: int = Field(ge=0, le=100_000, description="CPUs of the node, a whole number.")
    gpu: int = Field(default=0, ge=0, le=100_000, description="GPUs of the node, a whole number.")
    memory_bytes: SizeBytes | None = Field(default=None, alias="memory", description="Memory of the node; null: as Ray detects.")
    resources: dict[str, Amount] = Field(default={}, description="Custom resources by name, in whole units or decimals.")
    labels: Labels = Field(default={}, description="Ray node labels.")


class ClusterSection(Section):
    """Ray cluster: started by `up` (`nodes`), or running at an address (`address`)."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"address": "10.0.0.1:6379"}]})

    nodes: tuple[NodeSection, ...] | None = Field(
        default=None, min_length=1, description="Nodes to start on this machine; the first is the head. Either this or `address`."
    )
    object_store_bytes: SizeBytes = Field(
        default=200 * 2**20, ge=80 * 2**20, alias="object_store", description="Object store of each started node; at least 80MiB."
    )
    address: str | None = Field(default=None, description="`host:port` of a running Ray cluster. Either this or `nodes`.")
    token_file: str | None = Field(
        default=None,
        min_length=1,
        description="File with the token of the cluster at `address`; null: Ray's default. `up` creates the tokens of its own clusters.",
    )
    shared: bool = Field(
        default=False,
        description="The cluster's tenants trust each other, and the root, if it is there too, trusts them: Ray isolates no tenants in a "
        "cluster. Needed if its meshes allow several top-level tenants, or the root is beside them; see [security](security.md).",
    )

    user: str | None = Field(
        default=None,
        min_length=1,
        description="User of the cluster's processes, including tenants' code; null: the user of `up`. Needs an `up` that runs as root.",
    )

    @model_validator(mode="after")
    def _one_origin(self) -> ClusterSection:
        if (self.nodes is None) == (self.address is None):
            raise ValueError("needs either `nodes` (started here) or `address` (attached), not both")
        if self.token_file is not None and self.address is None:
            raise ValueError("`token_file` needs `address`; `up` creates the token of a cluster that it starts")
        if self.user is not None and self.nodes is None:
            raise ValueError("`user` needs `nodes`; the processes of a cluster at `address` have their user already")
        return self


class FlavorSection(Section):
    """Named kind of capacity."""

    labels: Labels = Field(
        default={},
        description="Selectors on the labels of a mesh that offers the flavor: `x`, `!x`, `in(x, y)`, `!in(x, y)`, or `!` (label absent).",
    )
    description: str = Field(default="", description="Text for people.")


class ReservedSection(Section):
    """Reserved placement groups of one shape: `{cpu: 1, count: 2}`. All keys but `count` are resources of one slot."""

    model_config = ConfigDict(extra="allow")

    count: int = Field(default=1, ge=1, le=10_000, description="Number of such groups.")
    __pydantic_extra__: dict[str, Amount]

    @model_validator(mode="after")
    def _takes_something(self) -> ReservedSection:
        if not self.amounts:
            raise ValueError("must name an amount of a resource, like {cpu: 1, count: 2}")
        return self

    @property
    def amounts(self) -> dict[str, Amount]:
        """Amounts of each group, by resource."""
        return dict(self.__pydantic_extra__ or {})


class GroupsSection(Section):
    """Placement groups of a pool: a reserved layer, made in advance, and a dynamic layer, made on demand and kept for reuse."""

    reserved: tuple[ReservedSection, ...] = Field(
        default=(),
        description="Groups that the mesh makes when it starts and holds for urgent work: resources of one slot each, and their `count`.",
    )
    reserved_priority: int = Field(
        default=8,
        ge=-PRIORITY_MAX,
        le=PRIORITY_MAX,
        description="Least priority of work that may take a reserved group; no other work gets its room.",
    )
    dynamic_max: int | None = Field(
        default=None, ge=0, le=1_000_000, description="Most slots in groups made on demand; null: no limit but the pool's capacity."
    )
    idle_ms: DurationMs = Field(
        default=60_000, alias="idle", description="How long a group made on demand is kept for work of the same shape."
    )
    idle_min: int = Field(default=0, ge=0, le=10_000, description="Number of idle groups that are kept longer, until anyone waits.")


class PoolSection(Section):
    """Capacity of one flavor in one mesh."""

    flavor: str = Field(description="The flavor that the pool offers.")
    capacity: dict[str, Amount] = Field(min_length=1, description="Capacity of the pool: `cpu`, `gpu`, `memory` or a custom resource.")
    node_labels: Labels = Field(
        default={}, description="Selectors on Ray node labels, as for a flavor: the pool's work runs on these nodes of the mesh only."
    )
    policy: str = Field(
        default=DEFAULT_POLICY,
        description="How nodes are chosen for the pool's work: a [node policy](plugins.md#the-built-in-node-policies), one of the mesh's "
        "`plugins`, or a sum of some, like `0.7*least_busy+0.3*binpack`.",
    )
    protected: StrictBool = Field(
        default=False,
        description="Stages in the pool are not preempted for stages in other pools of the mesh. Reclaimed quota still stops them.",
    )
    groups: GroupsSection | None = Field(
        default=None, description="Placement groups: reserved ones, and bounds of those made on demand; null: none reserved, no bounds."
    )


class MeshLink(str, Enum):
    """Way in which a mesh reaches the root, and whether `up` starts it."""

    DIRECT = "direct"
    """Started by `up`; has the URL of Redis, like the root."""
    HTTP = "http"
    """Started by `up`; has a key of its own and no URL of Redis."""
    JOINS = "joins"
    """Not started by `up`: joins with `schedulemesh join`, over HTTP, from any Ray cluster."""


class MeshSection(Section):
    """Scheduling domain: a Ray cluster, or a labelled part of one."""

    cluster: str = Field(default="", description="The cluster of the mesh; optional only for a mesh that joins by itself.")
    link: MeshLink = Field(
        default=MeshLink.DIRECT,
        description="`direct`: `up` starts the mesh, with the URL of Redis. `http`: `up` starts it, with a key of its own, over HTTP. "
        "`joins`: an operator starts it with `schedulemesh join`, see [joining](joining.md).",
    )
    node_labels: Labels = Field(default={}, description="Only nodes with all of these Ray labels belong to the mesh; empty: all nodes.")
    labels: Labels = Field(default={}, description="Labels that work selects with `labels=` and that flavors are matched with.")
    tenants: tuple[str, ...] = Field(
        default=("*",), description="Tenants that may use the mesh: paths, each with all tenants below; `*` for all."
    )
    pools: dict[str, PoolSection] = Field(min_length=1, description="Capacity by pool name.")
    weights: WeightsSection = Field(default=WeightsSection(), description="Weights of the node policy `weighted`.")
    preemption: MeshPreemptionSection = Field(
        default=MeshPreemptionSection(), description="Limits on preemption that the mesh decides, within a tenant and for room."
    )
    queues: dict[str, QueueSection] = Field(
        default={},
        description="Order among waiting stages, by tenant: for all tenants below it too, unless they have a queue of their own; `*`: for "
        "all other tenants. See [settings](mesh/settings.md#the-order-of-waiting-stages).",
    )
    plugins: dict[str, str] = Field(
        default={},
        description="[Policies of your own](plugins.md#in-a-federation) by name: `package.module:attribute`, or a `.wasm` or `.wat` file, "
        "relative to this file. They run in the mesh's process. Plugins of installed packages are loaded too.",
    )
    warm_runners: int = Field(
        default=1, ge=0, le=64, description="Stage runners that are started in advance, so that a stage need not wait for a process."
    )
