"""The sections about what there is to run on: clusters and their nodes, flavors, meshes and their pools."""

from __future__ import annotations

from enum import Enum

from pydantic import ConfigDict, Field, model_validator

from federation.config.sections.section import Section
from federation.config.sections.values import Amount, Labels, SizeBytes


class NodeSection(Section):
    """A node of a cluster that `up` starts."""

    cpu: int = Field(ge=0, le=100_000, description="CPUs that the node offers, whole ones.")
    gpu: int = Field(default=0, ge=0, le=100_000, description="GPUs that the node offers, whole ones.")
    memory_bytes: SizeBytes | None = Field(default=None, alias="memory", description="Memory that the node offers; null: what Ray finds.")
    resources: dict[str, Amount] = Field(default={}, description="Custom resources by name, in whole units or decimals.")
    labels: Labels = Field(default={}, description="Ray node labels.")


class ClusterSection(Section):
    """A Ray cluster: started by `up` (`nodes`), or found at an address (`address`)."""

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
        description="File with the token of the cluster at `address`; null: where Ray looks for one. `up` makes those of its own clusters.",
    )
    shared: bool = Field(
        default=False,
        description="Its tenants trust each other, and the root trusts them where it is in the cluster, too: Ray separates nobody within a "
        "cluster. Needed where its meshes admit several top-level tenants, or the root is beside them; see [security](security.md).",
    )

    user: str | None = Field(
        default=None,
        min_length=1,
        description="User that the cluster's processes, and tenants' code in them, run as; null: that of `up`. `up` has to run as root.",
    )

    @model_validator(mode="after")
    def _one_origin(self) -> ClusterSection:
        if (self.nodes is None) == (self.address is None):
            raise ValueError("needs either `nodes` (started here) or `address` (attached), one of the two")
        if self.token_file is not None and self.address is None:
            raise ValueError("`token_file` goes with `address`: `up` makes the token of a cluster that it starts")
        if self.user is not None and self.nodes is None:
            raise ValueError("`user` goes with `nodes`: whoever started the cluster at `address` has decided whose processes it is")
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
