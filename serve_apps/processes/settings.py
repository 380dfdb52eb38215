"""What a process of the stack is told at its start: one JSON file per process, readable by its owner only.

Secrets (the URL of Redis holds its password; keys of meshes) travel in these files, never in arguments or logs.
"""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, model_validator

from dag.backlog import BacklogLimits
from dag.retrying import RetryRules
from federation.durability import Durability
from federation.estimates import CostRules
from federation.roster import Roster
from federation.snapshot import MeshRecord
from federation.steadiness import SteadinessRules


class LinkSettings(BaseModel):
    """How a mesh without a key to the store reaches the root."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    roots: tuple[str, ...] = Field(min_length=1)  #: Addresses of replicas, tried in turn.
    key: str = Field(repr=False)  #: The mesh's own.
    ca_file: str | None = None  #: Certificates that sign those of the roots; None: as this machine believes.


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    ray_address: str
    heartbeat_ms: int
    storage_url: str  #: fsspec URL of the folder for values that are too large for the control store.

    def write(self, path: Path) -> None:
        """Write to a file that only its owner reads."""
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.fchmod(descriptor, 0o600)  # The mode above is for new files only.
        with os.fdopen(descriptor, "w") as file:
            file.write(self.model_dump_json())


class StoreSettings(BaseModel):
    """How a mesh in the root's own domain of trust reaches the store."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    redis_url: str = Field(repr=False)
    ledger: str | None = None  #: Its id, under which it is founded again after a loss; None: whoever it is.
    replicated: bool = False  #: Replicas are configured, and grants wait for one of them for a moment.
    lease_ttl_ms: int
    lease_grace_ms: int


class RootSettings(_Settings):
    """For the root mesh: Serve deployments on one cluster."""

    redis_url: str = Field(repr=False)
    ledger: str | None = None  #: Its id, under which it is founded again after a loss; None: whoever it is.
    replicated: bool = False  #: Replicas are configured, and grants wait for one of them for a moment.
    lease_ttl_ms: int
    lease_grace_ms: int
    has_own_cluster: bool = False  #: No mesh may be on the root's cluster.
    cluster_stays: bool = False  #: When the root ends: it was there before.
    host: str
    port: int
    gateways: int  #: Replicas of the HTTP gateway.
    body_limit_bytes: int
    inline_limit_bytes: int
    retention_ms: int
    roster: Roster  #: Meshes and flavors that the configuration names.
    receipt_keys: dict[int, str] = Field(repr=False)  #: Sign leases that are told over HTTP; see `federation.receipts`.
    otlp_endpoint: str | None = None
    traces_file: str | None = None  #: JSON lines, one span each.
    costs: CostRules = CostRules()
    steadiness: SteadinessRules = SteadinessRules()
    backlog: BacklogLimits = BacklogLimits()
    retrying: RetryRules = RetryRules()
    durability: Durability = Durability.D0

    @staticmethod
    def read(path: str) -> RootSettings:
        """What `write` has written there."""
        return RootSettings.model_validate_json(Path(path).read_bytes())


class ChildSettings(_Settings):
    """For one child mesh: with a key to the store, or with a link to the root."""

    store: StoreSettings | None
    link: LinkSettings | None
    record: MeshRecord  #: `cluster` and `address` are filled in by the process, which asks Ray.
    node_labels: dict[str, str]  #: The slice of the cluster: Ray node labels.
    inline_limit_bytes: int
    warm_runners: int

    @model_validator(mode="after")
    def _one_way(self) -> ChildSettings:
        if (self.store is None) == (self.link is None):
            raise ValueError("needs either `store` or `link`, one of the two")
        return self

    @staticmethod
    def read(path: str) -> ChildSettings:
        """What `write` has written there."""
        return ChildSettings.model_validate_json(Path(path).read_bytes())
