"""Stored status of a mesh, beside the mesh's own record; it outlives every process."""

from dataclasses import dataclass

from federation.estimates import Pace
from federation.flap_detection import FlapHistory
from mesh.stages.stage_settings import StageSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """Drain of a mesh: it finishes its work and gets nothing new."""

    reason: str = ""  #: Written by the operator.
    by: str = ""  #: Id of the operator's API key.
    since_ms: int = 0  #: Milliseconds since the epoch.


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshCondition:
    """Stored status of one mesh. None: unknown, which counts in the mesh's favor."""

    drain: Drain | None = None
    flap_history: FlapHistory | None = None
    pace: Pace | None = None
    settings: StageSettings | None = None  #: Settings of the root's file, which the mesh follows; None: those of its own record.


#: Status of a mesh without stored facts.
NEWCOMER = MeshCondition()
