"""Stages that start in the order of their tenant: who of them comes first.

Who has been promised room comes first, even before more urgent ones that arrive later: others have stopped for it, and what they free
is held for it alone.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass, field

from mesh.core.ids import TenantPath
from mesh.stages.admission_kinds import Turn


@dataclass(slots=True)
class _Line:
    """Those of one tenant that have not started, whatever room they need; sorted."""

    turns: list[Turn] = field(default_factory=list)
    promised: list[Turn] = field(default_factory=list)  #: Of these, those for which others stop.

    @property
    def first(self) -> Turn | None:
        return next(iter(self.promised or self.turns), None)


@dataclass(slots=True)
class Lines:
    """One for each tenant whose stages start in order.

    Each change returns whose standing it has changed: who came first before, and who does now; nobody when that is the same.
    """

    _lines: dict[TenantPath, _Line] = field(default_factory=dict)

    def first(self, tenant: TenantPath) -> Turn | None:
        """Who may start next; None: nobody waits."""
        line = self._lines.get(tenant)
        return line.first if line is not None else None

    def add(self, tenant: TenantPath, turn: Turn) -> tuple[Turn, ...]:
        """One more waits."""
        return self._change(tenant, lambda line: insort(line.turns, turn))

    def remove(self, tenant: TenantPath, turn: Turn) -> tuple[Turn, ...]:
        """One has started, or is gone. Harmless where it does not stand in line."""

        def take_out(line: _Line) -> None:
            _take_out(line.turns, turn)
            _take_out(line.promised, turn)

        changed = self._change(tenant, take_out)
        if not self._lines[tenant].turns:
            del self._lines[tenant]
        return changed

    def promise(self, tenant: TenantPath, turn: Turn) -> tuple[Turn, ...]:
        """Others stop for it."""
        return self._change(tenant, lambda line: insort(line.promised, turn))

    def withdraw(self, tenant: TenantPath, turn: Turn) -> tuple[Turn, ...]:
        """Nothing is held for it any more, if anything was; it stands where it stood before."""
        return self._change(tenant, lambda line: _take_out(line.promised, turn))

    def _change(self, tenant: TenantPath, change: Callable[[_Line], None]) -> tuple[Turn, ...]:
        line = self._lines.setdefault(tenant, _Line())
        before = line.first
        change(line)
        now = line.first
        return tuple(turn for turn in (before, now) if turn is not None) if now != before else ()


def _take_out(turns: list[Turn], turn: Turn) -> None:
    place = bisect_left(turns, turn)
    if turns[place : place + 1] == [turn]:
        del turns[place]
