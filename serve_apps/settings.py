"""What a process of the stack is told at its start: one JSON file per process, readable by its owner only.

Secrets (the URL of Redis holds its password) travel in these files, never in arguments or logs.
"""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from federation.estimates import CostRules
from federation.snapshot import MeshRecord
from federation.steadiness import SteadinessRules


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    redis_url: str
    ray_address: str
    lease_ttl_ms: int
    lease_grace_ms: int
    heartbeat_ms: int
    storage_url: str  #: fsspec URL of the folder for values that are too large for the control store.

    def write(self, path: Path) -> None:
        """Write to a file that only its owner reads."""
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.fchmod(descriptor, 0o600)  # The mode above is for new files only.
        with os.fdopen(descriptor, "w") as file:
            file.write(self.model_dump_json())


class RootSettings(_Settings):
    """For the root mesh: Serve deployments on one cluster."""

    host: str
    port: int
    gateways: int  #: Replicas of the HTTP gateway.
    body_limit_bytes: int
    retention_ms: int
    otlp_endpoint: str | None = None
    traces_file: str | None = None  #: JSON lines, one span each.
    costs: CostRules = CostRules()
    steadiness: SteadinessRules = SteadinessRules()

    @staticmethod
    def read(path: str) -> RootSettings:
        """What `write` has written there."""
        return RootSettings.model_validate_json(Path(path).read_bytes())


class ChildSettings(_Settings):
    """For one child mesh."""

    record: MeshRecord  #: `cluster` and `address` are filled in by the process, which asks Ray.
    node_labels: dict[str, str]  #: The slice of the cluster: Ray node labels.
    inline_limit_bytes: int
    warm_runners: int

    @staticmethod
    def read(path: str) -> ChildSettings:
        """What `write` has written there."""
        return ChildSettings.model_validate_json(Path(path).read_bytes())
