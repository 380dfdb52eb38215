"""State that the host of a mesh keeps about one runner: its tenant, its stages, and the reports that wait for confirmation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mesh.core.ids import RunId, StageId, TenantPath

RunnerKey = tuple[TenantPath, str]


@dataclass(slots=True)
class BoundRunner:
    """A runner that is bound to a tenant and a runtime environment."""

    actor: Any
    holder: int  #: Token of the first stage that the runner got.
    stages: dict[StageId, Any] = field(default_factory=dict)  #: Stages with their placement groups.
    heard: dict[StageId, int] = field(default_factory=dict)  #: Numbers of confirmed reports, until the runner knows of the confirmation.
    ends: dict[StageId, int] = field(default_factory=dict)  #: Numbers of the last reports of stages that are not confirmed.
    runs: dict[RunId, StageId] = field(default_factory=dict)
    """Runs whose values the runner may hold, each with the first stage that the runner got; ended runs are removed."""
    idle_since_s: float | None = None  #: Seconds, monotonic; None: the runner is busy, or was not checked yet.
