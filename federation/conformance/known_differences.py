"""Known differences between Kueue and the running system, and the cases that show them.

The list is a ratchet. A case that fails and is not listed is a regression; a listed case that passes has to be removed from here and
from docs/conformance.md, which says the same to people.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDifference:
    """One difference."""

    name: str  #: As in the table of docs/conformance.md.
    why: str  #: Behaviour of the running system, with its cause.
    cases: tuple[str, ...]
    decided_in: str = ""  #: Page under docs that says so; empty: nobody has decided it.


KNOWN_DIFFERENCES = (
    KnownDifference(
        name="flavor by preemption",
        why="routing expects a reclaim only with `reclaim: any`, and no preemption within the tenant: the shortest wait decides",
        cases=(
            "sched-prefer-reclamation-over-cq-priority-based-preemption",
            "sched-prefer-first-preemption-flavor-when-second-flavor-also-requires-cq",
            "fsched-preemptionoverborrowing-with-fair-sharing-preempt-in-first-flavor",
        ),
        decided_in="adr/0026-flavor-order-and-strict-order.md",
    ),
    KnownDifference(
        name="owner is no rival",
        why="a tenant borrows at once while no other wants to borrow, though an owner asks for its own quota in the same call, after it",
        cases=("fsched-with-fair-sharing-nominal-first-ordering-admits-workload-fitting",),
        decided_in="adr/0036-the-planner-decides-contested-borrowing.md",
    ),
    KnownDifference(
        name="no blocked quota",
        why="quota that nobody can reclaim for a waiting stage is lent to others meanwhile",
        cases=(
            "sched-capacity-blocked-when-lending-clusterqueue-not-guaranteed-to-recla",
            "sched-capacity-blocked-when-lending-clusterqueue-not-guaranteed-to-recla-2",
        ),
    ),
    KnownDifference(
        name="narrow start",
        why="a stage that may shrink starts at once with the slots that are free; Kueue preempts for more of them",
        cases=("sched-partial-admission-single-variable-pod-set-preempt-with-partial-adm",),
    ),
)


def by_case() -> Mapping[str, KnownDifference]:
    """Return the difference that each listed case shows."""
    return {case: difference for difference in KNOWN_DIFFERENCES for case in difference.cases}
