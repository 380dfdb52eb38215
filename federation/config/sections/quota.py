"""The sections about quota: how much of what is a tenant's own, who gives way to whom, and by which rules it is given."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictBool

from federation.config.sections.section import Section
from federation.config.sections.values import WORD, Amount, DurationMs, one_of

WithinTenant = Annotated[str, one_of("never", "lower_priority", "lower_or_newer"), WORD]
Reclaim = Annotated[str, one_of("never", "lower_priority", "any"), WORD]
Borrow = Annotated[str, one_of("never", "lower_priority"), WORD]
Search = Annotated[str, one_of("stop", "next"), WORD]
Prefer = Annotated[str, one_of("borrowing", "preemption"), WORD]
OnCut = Annotated[str, one_of("keep", "evict"), WORD]

#: Ledger, planner and explanations hold no rounds over queues.
_ROUNDS = "Only rounds of `QuotaScheduler` heed it, which the running federation does not hold."
_MIN_RUN = (
    "No stage is preempted before it has run so long. Quota is not taken back from a mesh that has had it for less either, and where it "
    "is, younger work there has the time to come of age."
)


class QuotaSection(Section):
    """The limits of a tenant for one resource of one flavor."""

    nominal: Amount = Field(default=0, description="What is the tenant's own.")
    borrowing_limit: Amount | None = Field(default=None, description="How much it may use beyond its own; null: no limit, 0: nothing.")
    lending_limit: Amount | None = Field(default=None, description="How much of its own others may use; null: all of it, 0: nothing.")


class SchedulingSection(Section):
    """Who gives way to a tenant's work, and where it looks for room; null: as the tenant above."""

    within_tenant: WithinTenant | None = Field(
        default=None,
        description="Which of its own running work gives way: `never`, `lower_priority` (at the top), "
        "`lower_or_newer` of equal priority (for `QuotaScheduler` only; the running federation takes it for `lower_priority`).",
    )
    reclaim: Reclaim | None = Field(
        default=None,
        description="Whose work gives way while others borrow what is the tenant's: `never`, `lower_priority`, `any` (at the top).",
    )
    borrow: Borrow | None = Field(
        default=None,
        description="Whose work gives way while the tenant borrows itself, as the work of others who do: `never` (at the top), "
        "`lower_priority`. With `fair_sharing` it means nothing: shares decide.",
    )
    borrow_priority_max: int | None = Field(
        default=None, description="With `borrow`: only work up to this priority (at the top: any lower one)."
    )
    flavor_order: tuple[str, ...] | None = Field(
        default=None,
        description="The flavors that are tried first, in this order; all others follow in the order of `flavors` of the file; "
        "see [quota](quota.md#which-flavor).",
    )
    on_borrow: Search | None = Field(
        default=None, description="When a flavor would do by borrowing: `stop` (at the top) and take it, or try the `next` one."
    )
    on_preempt: Search | None = Field(
        default=None,
        description="When others would give way for a flavor: `stop`, take it and wait for them, or try the `next` one (at the top).",
    )
    prefer: Prefer | None = Field(
        default=None,
        description="Of several flavors that were tried and would do: rather `borrowing` (at the top), or rather `preemption`.",
    )
    strict_order: StrictBool | None = Field(
        default=None,
        description="Does nothing of the tenant start on a mesh before the first of it that waits there, by priority, then arrival? "
        "null: as the tenant above, at the top: no.",
    )
    min_run_ms: DurationMs | None = Field(
        default=None, alias="min_run", description="As `min_run` of `quota`, for its work; at the top: that one."
    )
    on_cut: OnCut | None = Field(
        default=None,
        description="When its quota is lowered below what runs: `keep` it running (at the top), or `evict` as much as needed.",
    )


class RulesSection(Section):
    """By which rules quota is given; see `docs/quota.md`."""

    fair_sharing: StrictBool = Field(default=True, description="Go by dominant shares; false: by borrowing and priority.")
    min_run_ms: DurationMs = Field(default=60_000, alias="min_run", description=_MIN_RUN)
    hold_ms: DurationMs = Field(default=60_000, alias="hold", description="How long room that is being freed is held for who freed it.")
    heads_max: int = Field(default=16, ge=1, le=1_000, description=f"Workloads of one queue that are decided in a round. {_ROUNDS}")
    backfill: StrictBool = Field(
        default=True, description=f"Does big work that waits get a date that smaller work may not delay? {_ROUNDS}"
    )
    history_half_life_ms: DurationMs = Field(
        default=0,
        alias="history_half_life",
        description="Of claims of one priority beyond their own quota, less use in the past goes first, which counts half after so long; "
        "0s: the past does not count.",
    )
