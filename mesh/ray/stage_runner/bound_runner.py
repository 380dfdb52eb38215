"""State that the host of a mesh keeps about one runner: its tenant, its stages, and the reports that wait for confirmation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mesh.core.ids import RunId, StageId, TenantPath
from mesh.core.resources import ResourceSet
from mesh.core.shapes import Gang
from mesh.ray.stage_runner.held_groups import Groups
from mesh.ray.stage_runner.kept_values import KeptValues

RunnerKey = tuple[TenantPath, str]


@dataclass(slots=True)
class HostedStage:
    """A stage of a runner that has not ended."""

    slot: ResourceSet
    groups: Groups = ()  #: Placement groups of its slots.
    gang: Gang | None = None  #: Gang that each slot is.
    growths: int = 0  #: Growths that wait for their placement groups.


@dataclass(slots=True)
class BoundRunner:
    """A runner that is bound to a tenant and a runtime environment."""

    actor: Any
    holder: int  #: Token of the first stage that the runner got.
    stages: dict[StageId, HostedStage] = field(default_factory=dict)
    heard: dict[StageId, int] = field(default_factory=dict)  #: Numbers of confirmed reports, until the runner knows of the confirmation.
    ends: dict[StageId, int] = field(default_factory=dict)  #: Numbers of the last reports of stages that are not confirmed.
    runs: dict[RunId, StageId] = field(default_factory=dict)
    """Runs whose values the runner may hold, each with the first stage that the runner got; ended runs are removed."""
    values: KeptValues = field(default_factory=KeptValues)  #: Of nodes that finished on it, or on the runners that it replaced.
    idle_since_s: float | None = None  #: Seconds, monotonic; None: the runner is busy, or was not checked yet.
