"""What the host of a mesh knows of one runner: whose it is, what it runs, and what it still has to be told or to tell."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mesh.ids import RunId, StageId, TenantPath

RunnerKey = tuple[TenantPath, str]


@dataclass(slots=True)
class BoundRunner:
    """A runner that is bound to a tenant and a runtime environment."""

    actor: Any
    holder: int  #: The token of the first stage that it was given.
    stages: dict[StageId, Any] = field(default_factory=dict)  #: With their placement groups.
    heard: dict[StageId, int] = field(default_factory=dict)  #: Reports that have been confirmed, until the runner knows it.
    ends: dict[StageId, int] = field(default_factory=dict)  #: The numbers of last reports that are not confirmed.
    runs: dict[RunId, StageId] = field(default_factory=dict)
    """Of which it may hold values, for they are not known to be over; each with the first stage that it was given."""
    idle_since_s: float | None = None  #: Monotonic; None: it is not idle, or nobody has looked yet.
