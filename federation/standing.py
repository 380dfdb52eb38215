"""What the federation remembers of a mesh beside what the mesh tells of itself: it outlives every process."""

from dataclasses import dataclass

from federation.estimates import Pace
from federation.steadiness import Steadiness


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """Somebody wants the mesh to finish what it has and to get nothing new."""

    reason: str = ""  #: In that person's words.
    by: str = ""  #: The id of the API key.
    since_ms: int = 0  #: Milliseconds since the epoch.


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """All of it, for one mesh. None: nothing is known, which speaks for the mesh."""

    drain: Drain | None = None
    steadiness: Steadiness | None = None
    pace: Pace | None = None


#: The standing of a mesh that nobody knows anything about.
NEWCOMER = Standing()
