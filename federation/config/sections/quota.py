"""Sections about quota: nominal quota and limits, preemption, and the rules of the ledger."""

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
OnQuotaReduction = Annotated[str, one_of("keep", "evict"), WORD]

_MIN_RUN = (
    "No stage is preempted before it has run this long. Quota that a mesh has had for less is not reclaimed either, and a reclaim gives "
    "younger work there the time to reach this age."
)


class QuotaSection(Section):
    """Limits of a tenant for one resource of one flavor."""

    nominal: Amount = Field(default=0, description="The tenant's own quota.")
    borrowing_limit: Amount | None = Field(default=None, description="Most use beyond its own quota; null: no limit, 0: none.")
    lending_limit: Amount | None = Field(default=None, description="Most of its own quota that others may use; null: all, 0: none.")


class SchedulingSection(Section):
    """Preemption for a tenant's work, and the order of flavors; null: as the parent."""

    within_tenant: WithinTenant | None = Field(
        default=None,
        description="Which of its own running work may be preempted: `never`, `lower_priority` (default of a top-level tenant), "
        "`lower_or_newer` (also work of equal priority whose run was submitted later).",
    )
    reclaim: Reclaim | None = Field(
        default=None,
        description="Work of others that may be preempted to reclaim lent quota: `never`, `lower_priority`, `any` (top-level default).",
    )
    borrow: Borrow | None = Field(
        default=None,
        description="Which work of other borrowers may be preempted while the tenant itself borrows: `never` (top-level default), "
        "`lower_priority`. Without effect under `fair_sharing`, where shares decide.",
    )
    borrow_priority_max: int | None = Field(
        default=None, description="With `borrow`: only work up to this priority may be preempted (top-level default: any lower priority)."
    )
    flavor_order: tuple[str, ...] | None = Field(
        default=None,
        description="Flavors to try first, in this order; all others follow in the order of `flavors` in the file; "
        "see [quota](quota.md#which-flavor).",
    )
    on_borrow: Search | None = Field(
        default=None, description="If a flavor fits by borrowing: `stop` (top-level default) and use it, or try the `next` one."
    )
    on_preempt: Search | None = Field(
        default=None,
        description="If a flavor fits by preemption: `stop`, use it and preempt, or try the `next` one (top-level default).",
    )
    prefer: Prefer | None = Field(
        default=None,
        description="Among several flavors that fit: prefer `borrowing` (top-level default) or `preemption`.",
    )
    strict_order: StrictBool | None = Field(
        default=None,
        description="StrictFIFO: nothing of the tenant starts on a mesh before its first waiting work there, by priority, then arrival. "
        "null: as the parent, top-level default: no.",
    )
    min_run_ms: DurationMs | None = Field(
        default=None, alias="min_run", description="As `min_run` of `quota`, for the tenant's work; top-level default: that value."
    )
    on_quota_reduction: OnQuotaReduction | None = Field(
        default=None,
        description="When its quota is reduced below its use: `keep` the work running (top-level default), or `evict` as much as needed.",
    )


class RulesSection(Section):
    """Rules of quota; see `docs/quota.md`."""

    fair_sharing: StrictBool = Field(default=True, description="Order tenants by dominant shares; false: by borrowing and priority.")
    min_run_ms: DurationMs = Field(default=60_000, alias="min_run", description=_MIN_RUN)
    reservation_timeout_ms: DurationMs = Field(
        default=60_000, alias="reservation_timeout", description="How long freed capacity is held for the work that preempted for it."
    )
    history_half_life_ms: DurationMs = Field(
        default=0,
        alias="history_half_life",
        description="Half-life of past use: among borrowers of equal shares, less past use goes first; without `fair_sharing`, before "
        "priority. 0s: past use does not count.",
    )
