"""What a file would change in the federation that runs: tenants, limits, settings, and who would hold more than it may. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from fractions import Fraction
from typing import Any

from federation.quota.policies import QueueSettings, StandingOrders
from federation.snapshot import Snapshot
from federation.tenants import SEPARATOR, FlavorResource, Quota, TenantTree
from mesh.ids import TenantPath
from mesh.resources import format_units

#: The limits of a tenant, by the names that they have in a file.
LIMITS = ("nominal", "borrowing_limit", "lending_limit")
NO_LIMIT, NOTHING_SAID = "no limit", "nothing said"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One value that is another one in the file."""

    tenant: TenantPath | None  #: None: a rule of the whole federation.
    what: str  #: Like `standard.cpu.nominal`, `weight`, `running_max`.
    before: str  #: In words, with its unit.
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """All that `apply` would change, and what that leaves behind."""

    new: tuple[TenantPath, ...]
    gone: tuple[TenantPath, ...]
    moved: tuple[tuple[TenantPath, TenantPath | None], ...]  #: Each with the parent that it has then.
    limits: tuple[Difference, ...]
    settings: tuple[Difference, ...]
    over: tuple[str, ...]  #: `tenant|flavor|resource` of nodes that would hold more than their limits.


def changes(snapshot: Snapshot, known: StandingOrders, tree: TenantTree, asked: StandingOrders) -> Changes:
    """What differs between what is in force and what a file asks for.

    Args:
        snapshot: With the tree that is in force, and what is held.
        known: The rules and settings in force, of a file alone.
        tree: Of the file.
        asked: The rules and settings of the file.
    """
    before, after = snapshot.tree.tenants, tree.tenants
    gone = sorted(before.keys() - after.keys())
    charged = tree.with_vanished({path: before[path].parent for path in gone}, snapshot.usage)
    return Changes(
        new=tuple(sorted(after.keys() - before.keys())),
        gone=tuple(gone),
        moved=tuple((path, after[path].parent) for path in after if path in before and after[path].parent != before[path].parent),
        limits=tuple(_limits(snapshot.tree, tree)),
        settings=tuple(_settings(known, asked)),
        over=charged.over(charged.recompute(snapshot.leases)),
    )


def as_json(found: Changes) -> dict[str, Any]:
    """For programs."""
    return {
        "new_tenants": list(found.new),
        "tenants_gone": list(found.gone),
        "tenants_moved": [{"tenant": path, "parent": parent} for path, parent in found.moved],
        "limits": [_difference_json(one) for one in found.limits],
        "settings": [_difference_json(one) for one in found.settings],
        "over_limits": [dict(zip(("tenant", "flavor", "resource"), row.split(SEPARATOR), strict=True)) for row in found.over],
    }


def _difference_json(one: Difference) -> dict[str, Any]:
    return {"tenant": one.tenant, "what": one.what, "before": one.before, "after": one.after}


def _limits(before: TenantTree, after: TenantTree) -> Iterator[Difference]:
    keys = sorted(before.flavor_resources() | after.flavor_resources())
    for path in sorted(after.tenants):  # Of tenants that are gone it is enough that they are.
        for key in keys:
            old, new = _quota(before, path, key), _quota(after, path, key)
            for limit in LIMITS:
                told = _limit_words(old, limit, key), _limit_words(new, limit, key)
                if told[0] != told[1]:
                    yield Difference(tenant=path, what=f"{key[0]}.{key[1]}.{limit}", before=told[0], after=told[1])


def _quota(tree: TenantTree, path: TenantPath, key: FlavorResource) -> Quota:
    return tree.quota(path, key) if path in tree.tenants else Quota()


def _limit_words(quota: Quota, limit: str, key: FlavorResource) -> str:
    units: int | None = getattr(quota, limit)
    return NO_LIMIT if units is None else format_units(key[1], units)


def _settings(known: StandingOrders, asked: StandingOrders) -> Iterator[Difference]:
    yield from _fields_apart(None, known.rules, asked.rules)
    for name in sorted(known.settings.keys() | asked.settings.keys() | known.weights.keys() | asked.weights.keys()):
        path = TenantPath(name)
        weights = _weight(known.weights, name), _weight(asked.weights, name)
        if weights[0] != weights[1]:
            yield Difference(tenant=path, what="weight", before=str(weights[0]), after=str(weights[1]))
        yield from _fields_apart(path, known.settings.get(name, QueueSettings()), asked.settings.get(name, QueueSettings()))


def _weight(weights: Mapping[str, Fraction], name: str) -> Fraction:
    return weights.get(name, Fraction(1))


def _fields_apart(path: TenantPath | None, old: Any, new: Any, above: str = "") -> Iterator[Difference]:
    """Of two dataclasses of one type, down to plain values."""
    for one in fields(old):
        before, after = getattr(old, one.name), getattr(new, one.name)
        if before == after:
            continue
        if is_dataclass(before) and type(before) is type(after):
            yield from _fields_apart(path, before, after, f"{above}{one.name}.")
        else:
            yield Difference(tenant=path, what=f"{above}{one.name}", before=_words(before), after=_words(after))


def _words(value: object) -> str:
    if value is None or value == ():
        return NOTHING_SAID
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Enum):
        return str(value.value)
    return str(value)
