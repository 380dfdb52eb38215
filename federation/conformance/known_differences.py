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
        name="own victims first",
        why="a mesh looks for victims of the same tenant before the planner plans; Kueue reclaims what others have borrowed first",
        cases=("sched-preempt-workloads-in-clusterqueue-and-cohort",),
        decided_in="adr/0025-stage-preemption-within-a-tenant.md",
    ),
    KnownDifference(
        name="newer work of equal priority",
        why="a mesh compares priorities strictly, so `lower_or_newer` acts as `lower_priority`",
        cases=("preempt-preempt-newer-workloads-with-the-same-priority", "policy-newer-equal-preemptor-older"),
        decided_in="adr/0025-stage-preemption-within-a-tenant.md",
    ),
    KnownDifference(
        name="priority of a lease",
        why="the planner sees only the most urgent work of a lease, which shields the rest; it then finds no victims, and a mesh too few",
        cases=(
            "preempt-preempt-from-all-clusterqueues-in-cohort",
            "preempt-preempt-from-all-clusterqueues-in-cohort-lend",
            "hier-preempt-in-cohort-and-own-cq",
            "hier-preempt-hierarchical-and-priority-candidates",
        ),
        decided_in="adr/0019-one-lease-per-tenant-spent-locally.md",
    ),
    KnownDifference(
        name="nearest subtree first",
        why="the planner reclaims from the nearest subtree first; Kueue compares priorities over the whole tree",
        cases=("hier-reclaim-in-complex-hierarchy",),
    ),
    KnownDifference(
        name="initial share",
        why="the planner takes from a borrower only down to the claimant's share afterwards; there is no `LessThanInitialShare`",
        cases=(
            "fair-preempt-from-different-cluster-queues-if-the-end-result-has-a-small",
            "fair-can-preempt-anything-borrowing-from-cq-with-0-weight",
            "fair-deep-preemption",
            "fair-candidates-skipped-by-the-first-strategy-are-still-available-to-the",
        ),
        decided_in="quota.md#preemption",
    ),
    KnownDifference(
        name="parts of leases",
        why="the planner lowers leases by amounts, whatever the size of stages; a mesh stops whole stages, the least urgent first",
        cases=(
            "fair-can-reclaim-from-queue-using-less-if-taking-the-latest-workload-fro",
            "fair-preempt-one-from-each-cq-borrowing",
            "fair-preempt-workload-that-doesn-t-transfer-the-imbalance-even-if-high-p",
        ),
        decided_in="adr/0019-one-lease-per-tenant-spent-locally.md",
    ),
    KnownDifference(
        name="preemption while borrowing",
        why="a stage may preempt work of the same tenant even if the tenant borrows afterwards",
        cases=("sched-a-workload-is-only-eligible-to-do-preemptions-if-it-fits-fully-wit",),
    ),
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
        name="order by priority",
        why="meshes take free quota and preempt at once, by priority, then arrival; shares and borrowing order only what a plan hands out",
        cases=(
            "sched-in-a-hierarchical-cohort-workload-borrowing-less-is-scheduled-firs",
            "fsched-with-fair-sharing-schedule-workload-with-lowest-share-first",
            "fsched-with-fair-sharing-nominal-first-ordering-admits-workload-fitting",
            "fsched-fair-sharing-two-queues-with-weight-0-schedules-workload-which-bo",
            "fsched-fair-sharing-two-queues-with-high-weight-schedules-workload-which",
            "resched-flavor-stickiness-with-recomputepreemptiontargetsuponoverlap",
        ),
        decided_in="adr/0019-one-lease-per-tenant-spent-locally.md",
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
