"""The sections about tenants, in both forms: a tree by name, or a list whose entries name their parents."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any

from pydantic import ConfigDict, Discriminator, Field, StrictBool, Tag, model_validator

from federation.config.sections.quota import QuotaSection, SchedulingSection
from federation.config.sections.section import Section
from federation.config.sections.values import WORD, DurationMs, Weight, one_of

OnMaxWait = Annotated[str, one_of("refuse", "first"), WORD]
Stop = Annotated[str, one_of("none", "hold", "drain"), WORD]

TREE_TAG, LIST_TAG = "(tree)", "(list)"  #: pydantic puts them into the place of an error; no key can be called so.


class WindowSection(Section):
    """A time in which a tenant's work may start, again and again."""

    opens_ms: DurationMs = Field(
        alias="opens", description="When it opens, from the beginning of each period (of a day: after midnight UTC)."
    )
    lasts_ms: DurationMs = Field(alias="lasts", ge=1, description="How long it stays open.")
    every_ms: DurationMs = Field(
        default=86_400_000, ge=1_000, le=366 * 86_400_000, alias="every", description="The period, counted from 1970-01-01 UTC."
    )


class LimitsSection(Section):
    """Limits beside quota, for a tenant and all below it together."""

    running_max: int | None = Field(default=None, ge=1, description="Stages that are sent to meshes and have not ended, at a time.")
    running_max_per_user: int | None = Field(default=None, ge=1, description="The same for each [user](http.md#what-holds-for-all).")
    max_wait_ms: DurationMs | None = Field(
        default=None,
        ge=1_000,
        alias="max_wait",
        description="How long work may wait to start, at the root or at a mesh; see `on_max_wait`; null: as the tenant above.",
    )
    on_max_wait: OnMaxWait | None = Field(
        default=None,
        description="What waited longer: `refuse` it (at the top), or let it go `first` when quota is planned; null: as the tenant above.",
    )
    stop: Stop = Field(default="none", description="`hold`: nothing new starts; `drain`: what runs stops as well, to run again later.")
    windows: tuple[WindowSection, ...] = Field(default=(), description="New work starts only inside of one of these; none: always.")


class TenantRights(Section):
    """What a tenant may do; the same keys in both forms of `tenants`."""

    parent: str | None = Field(
        default=None,
        description="Path of the tenant whose quota it shares; null: of the one that its path names, `acme` for `acme/research`. "
        "Where it is another one the path stays the tenant's name; see [another parent](quota.md#another-parent-for-a-tenant).",
    )
    quotas: dict[str, dict[str, QuotaSection]] = Field(default={}, description="Limits by flavor, then by resource.")
    weight: Weight = Field(
        default=Fraction(1),
        description="Its part of what is borrowed, beside its siblings', as a number or fraction; 0: only what nobody else wants.",
    )
    scheduling: SchedulingSection = Field(
        default=SchedulingSection(), description="Who gives way to its work, and where it looks for room."
    )
    limits: LimitsSection = Field(default=LimitsSection(), description="Limits beside quota, for it and all below it together.")
    functions: tuple[str, ...] | None = Field(
        default=None, description="Patterns like `examples.*:*` that functions named in JSON specs must match; null: as the parent."
    )
    pickled_code: StrictBool | None = Field(
        default=None,
        description="May its clients send pickled functions (run in its own workers only)? null: as the parent, at the top: no.",
    )


class TenantSection(TenantRights):
    """A tenant; its place in the tree is its name."""

    tenants: dict[str, TenantSection] = Field(default={}, description="Tenants below this one, by name.")


class TenantEntry(TenantRights):
    """A tenant in the list form: `path`, or `name`, which stands below `parent` or, without one, at the top."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"path": "…"}]})

    path: str | None = Field(default=None, description="The whole path, like `acme/research`. Either this or `name`.")
    name: str | None = Field(default=None, description="The last part of the path. Either this or `path`.")

    @model_validator(mode="after")
    def _one_name(self) -> TenantEntry:
        if (self.path is None) == (self.name is None):
            raise ValueError("needs either `path`, or `name` (and `parent`), one of the two")
        return self


def _form(value: Any) -> str:
    return LIST_TAG if isinstance(value, (list, tuple)) else TREE_TAG


Tenants = Annotated[
    Annotated[dict[str, TenantSection], Field(min_length=1), Tag(TREE_TAG)]
    | Annotated[tuple[TenantEntry, ...], Field(min_length=1), Tag(LIST_TAG)],
    Discriminator(_form),
]
