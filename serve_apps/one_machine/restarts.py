"""When a part that has died is started again: at once at first, later each time, at once again after it has lived for long.

The first restart does not wait: a mesh's process has a part of its lease's time to live to be back, and the work goes on (docs/leases.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field

#: The pause after the second death in a row; it doubles with each further death, up to the second figure. Seconds.
PAUSE_S = (1.0, 30.0)
#: A part that has lived this long has not died of what it died of before.
STEADY_S = 300.0


@dataclass(slots=True)
class Restarts:
    """The deaths of parts, by name. Times are seconds on any clock that does not go back."""

    _due_s: dict[str, float] = field(default_factory=dict)
    _deaths: dict[str, int] = field(default_factory=dict)  #: In a row.
    _started_s: dict[str, float] = field(default_factory=dict)  #: When the part was last started again.

    def note_death(self, name: str, now_s: float) -> float | None:
        """The part is dead: how long it stays so. None: that is known already."""
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
        """Is it time to start the dead part again?"""
        return now_s >= self._due_s[name]

    def note_start(self, name: str, now_s: float) -> None:
        """It was started again, or that was tried."""
        self._due_s.pop(name, None)
        self._started_s[name] = now_s

    def put_off(self, name: str, until_s: float) -> None:
        """Whenever it dies, it is not started again before this moment."""
        self._due_s[name] = until_s
