"""What a round decides about a workload. Frozen values; somebody else carries them out."""

from __future__ import annotations

from dataclasses import dataclass

from federation.quota.candidates import Victim
from federation.quota.flavors import Assignment, Refusal
from mesh.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """About one workload, by its id."""

    workload: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Admit(Decision):
    """It holds its quota from now on."""

    assignment: Assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class Preempt(Decision):
    """Others give way to it; it is admitted when they are gone. `victims` that are leaving already need no new order."""

    assignment: Assignment
    victims: tuple[Victim, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evict(Decision):
    """It has to stop for another reason than a preemptor: a drained tenant, a cut quota."""

    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait(Decision):
    """Not now. It keeps its place in the queue, or (`is_parked`) is not looked at until something changes."""

    reason: Reason
    is_parked: bool = False
    has_untried: bool = (
        False  #: It is not parked for the sake of flavors that were left untried alone, and would wait again without a change.
    )
    refusals: tuple[Refusal, ...] = ()
    detail: str = ""
