"""Decisions of a round about workloads. Frozen values; the caller carries them out."""

from __future__ import annotations

from dataclasses import dataclass

from federation.quota.flavors import Assignment, Refusal
from federation.quota.preemption.candidates import Victim
from mesh.core.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaDecision:
    """Decision about one workload, by its id."""

    workload: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Admit(QuotaDecision):
    """The workload holds its quota from now on."""

    assignment: Assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class Preempt(QuotaDecision):
    """Preempt the victims; the workload is admitted when they are gone. Victims that are stopping already need no new order."""

    assignment: Assignment
    victims: tuple[Victim, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evict(QuotaDecision):
    """Stop the workload for another reason than a preemptor: a drained tenant, a reduced quota."""

    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait(QuotaDecision):
    """Let the workload wait. It keeps its place in the queue; if `is_parked`, it is skipped until something changes."""

    reason: Reason
    is_parked: bool = False
    has_untried: bool = False  #: Not parked, because some flavors were left untried; it would wait again without a change.
    refusals: tuple[Refusal, ...] = ()
    detail: str = ""
