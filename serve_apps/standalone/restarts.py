"""Restart times of dead parts: the first at once, later ones after longer pauses, at once again after a long life.

The first restart has no pause, because a mesh's process must return within its lease's time to live for its work to continue
(docs/leases.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field

#: Seconds of pause after the second death in a row, doubled with each further death, up to the second value.
PAUSE_S = (1.0, 30.0)
#: Seconds of life after which a death counts as the first again.
STEADY_S = 300.0


@dataclass(slots=True)
class Restarts:
    """Deaths of parts, by name. Times are seconds on a monotonic clock."""

    _due_s: dict[str, float] = field(default_factory=dict)
    _deaths: dict[str, int] = field(default_factory=dict)  #: Deaths in a row.
    _started_s: dict[str, float] = field(default_factory=dict)  #: Time of the last restart.

    def note_death(self, name: str, now_s: float) -> float | None:
        """Record that the part is dead and return the pause before its restart; None if the death is already recorded."""
        if name in self._due_s:
            return None
        if now_s - self._started_s.get(name, now_s) >= STEADY_S:
            self._deaths[name] = 0
        first_s, most_s = PAUSE_S
        deaths = self._deaths.get(name, 0)
        pause_s: float = min(most_s, first_s * 2 ** (deaths - 1)) if deaths else 0.0
        self._deaths[name] = deaths + 1
        self._due_s[name] = now_s + pause_s
        return pause_s

    def is_due(self, name: str, now_s: float) -> bool:
        """Return whether the dead part may be restarted now."""
        return now_s >= self._due_s[name]

    def note_start(self, name: str, now_s: float) -> None:
        """Record a restart, or an attempt at one."""
        self._due_s.pop(name, None)
        self._started_s[name] = now_s

    def put_off(self, name: str, until_s: float) -> None:
        """Do not restart the part before this time."""
        self._due_s[name] = until_s
