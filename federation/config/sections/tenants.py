"""Sections about tenants, in both forms: a tree by name, or a list whose entries name their parents."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any

from pydantic import ConfigDict, Discriminator, Field, StrictBool, Tag, model_validator

from federation.config.sections.quota import QuotaSection, SchedulingSection
from federation.config.sections.section import Section
from federation.config.sections.values import WORD, DurationMs, Weight, one_of
from mesh.stages.spec import PRIORITY_MAX

OnMaxWait = Annotated[str, one_of("refuse", "first"), WORD]
Stop = Annotated[str, one_of("none", "hold", "drain"), WORD]

TREE_TAG, LIST_TAG = "(tree)", "(list)"  #: pydantic puts these tags into the path of an error; no key can have these names.


class WindowSection(Section):
    """Recurring time window in which a tenant's work may start."""

    opens_ms: DurationMs = Field(
        alias="opens", description="Start of the window, from the beginning of each period (for a day: after midnight UTC)."
    )
    lasts_ms: DurationMs = Field(alias="lasts", ge=1, description="Length of the window.")
    every_ms: DurationMs = Field(
        default=86_400_000, ge=1_000, le=366 * 86_400_000, alias="every", description="The period, counted from 1970-01-01 UTC."
    )


class LimitsSection(Section):
    """Limits beside quota, for a tenant and all tenants below it together."""

    priority_max: int | None = Field(
        default=None,
        ge=-PRIORITY_MAX,
        le=PRIORITY_MAX,
        description="Highest `priority` that users may ask for; submissions above it are refused. null: as the parent; a tenant may only "
        "set a lower one than its parent.",
    )
    running_max: int | None = Field(default=None, ge=1, description="Most stages that are sent to meshes and have not ended.")
    running_max_per_user: int | None = Field(default=None, ge=1, description="The same for each [user](http.md#what-holds-for-all).")
    max_wait_ms: DurationMs | None = Field(
        default=None,
        ge=1_000,
        alias="max_wait",
        description="Longest wait of work for its start, at the root or at a mesh; see `on_max_wait`; null: as the parent.",
    )
    on_max_wait: OnMaxWait | None = Field(
        default=None,
        description="Work that has waited longer: `refuse` it (top-level default), or plan quota for it `first`; null: as the parent.",
    )
    stop: Stop = Field(default="none", description="`hold`: nothing new starts; `drain`: running work stops as well, to run again later.")
    windows: tuple[WindowSection, ...] = Field(
        default=(), description="New work starts only inside one of these windows; none: at any time."
    )


class TenantRights(Section):
    """Settings of a tenant; the same keys in both forms of `tenants`."""

    parent: str | None = Field(
        default=None,
        description="Path of the parent, whose quota the tenant shares; null: the tenant that its path names, `acme` for `acme/research`. "
        "The path stays the tenant's name under any parent; see [another parent](quota.md#another-parent-for-a-tenant).",
    )
    quotas: dict[str, dict[str, QuotaSection]] = Field(
        default={},
        description="Limits by flavor, then by resource. A flavor that neither a tenant nor one above it names is closed to it; "
        "a `nominal` of 0 opens it for borrowing.",
    )
    weight: Weight = Field(
        default=Fraction(1),
        description="Its share of borrowed quota relative to its siblings, as a number or fraction; 0: only quota that no sibling wants.",
    )
    scheduling: SchedulingSection = Field(default=SchedulingSection(), description="Preemption for its work, and the order of flavors.")
    limits: LimitsSection = Field(
        default=LimitsSection(), description="Limits beside quota, for the tenant and all tenants below it together."
    )
    functions: tuple[str, ...] | None = Field(
        default=None, description="Patterns like `examples.*:*` for functions named in JSON specs; null: as the parent."
    )
    pickled_code: StrictBool | None = Field(
        default=None,
        description="Whether its clients may send pickled functions, which run in its own workers. null: as the parent (top-level: no).",
    )


class TenantSection(TenantRights):
    """Tenant of the tree form; its key is its name."""

    tenants: dict[str, TenantSection] = Field(default={}, description="Tenants below this one, by name.")


class TenantEntry(TenantRights):
    """Tenant of the list form: `path`, or `name` below `parent` (at the top without `parent`)."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"path": "…"}]})

    path: str | None = Field(default=None, description="The whole path, like `acme/research`. Either this or `name`.")
    name: str | None = Field(default=None, description="The last part of the path. Either this or `path`.")

    @model_validator(mode="after")
    def _one_name(self) -> TenantEntry:
        if (self.path is None) == (self.name is None):
            raise ValueError("needs either `path`, or `name` (and `parent`), not both")
        return self


def _form(value: Any) -> str:
    return LIST_TAG if isinstance(value, (list, tuple)) else TREE_TAG


Tenants = Annotated[
    Annotated[dict[str, TenantSection], Field(min_length=1), Tag(TREE_TAG)]
    | Annotated[tuple[TenantEntry, ...], Field(min_length=1), Tag(LIST_TAG)],
    Discriminator(_form),
]
