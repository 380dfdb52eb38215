"""Differences between a file and the running federation: tenants, limits, settings of tenants and meshes, and holders over their new
limits. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from federation.quota.policies import OnQuotaReduction, TenantPolicies
from federation.routing.domains import crowded
from federation.snapshot import FederationSnapshot
from federation.tenants import SEPARATOR, FlavorResource, Quota, TenantTree
from mesh.core.ids import MeshId, TenantPath
from mesh.core.resources import format_units
from mesh.errors import MeshError
from mesh.stages.stage_settings import DEFAULT_SETTINGS, StageSettings
from serve_apps.configuration.config_format import NOT_SET, UNSAID, format_mesh, format_rules, format_settings

#: Limits of a tenant, by their names in a file.
LIMITS = ("nominal", "borrowing_limit", "lending_limit")
NO_LIMIT = "no limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One value that differs in the file."""

    tenant: TenantPath | None  #: None: a rule of the whole federation, or of the mesh.
    what: str  #: Name of the value, like `standard.cpu.nominal`, or a key of the file: `weight`, `limits.running_max`.
    before: str  #: As text, with its unit.
    after: str
    mesh: MeshId | None = None  #: None: not about a mesh.


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Changes that `apply` would make, and their consequences."""

    new: tuple[TenantPath, ...]
    gone: tuple[TenantPath, ...]
    moved: tuple[tuple[TenantPath, TenantPath | None], ...]  #: Each with its new parent.
    limits: tuple[Difference, ...]
    settings: tuple[Difference, ...]
    over: tuple[str, ...]  #: `tenant|flavor|resource` of nodes that would hold more than their limits.
    stopped: frozenset[str] = frozenset()  #: Entries of `over` whose work is stopped; the others keep running.


def changes(snapshot: FederationSnapshot, known: TenantPolicies, tree: TenantTree, asked: TenantPolicies) -> Changes:
    """Return the differences between the running federation and a file.

    Args:
        snapshot: The tree in force and the leases held.
        known: Rules and settings in force, from the last file alone.
        tree: Tree of the new file.
        asked: Rules and settings of the new file.
    """
    before, after = snapshot.tree.tenants, tree.tenants
    gone = sorted(before.keys() - after.keys())
    charged = tree.with_vanished({path: before[path].parent for path in gone}, snapshot.usage)
    over = tuple(sorted({*charged.over(charged.recompute(snapshot.leases)), *_closed(snapshot, charged)}))
    return Changes(
        new=tuple(sorted(after.keys() - before.keys())),
        gone=tuple(gone),
        moved=tuple((path, after[path].parent) for path in after if path in before and after[path].parent != before[path].parent),
        limits=tuple(_limits(snapshot.tree, tree)),
        settings=tuple(_settings(known, asked)),
        over=over,
        stopped=frozenset(row for row in over if _is_stopped(row, snapshot, charged, asked)),
    )


def _closed(snapshot: FederationSnapshot, tree: TenantTree) -> Iterator[str]:
    """Yield the entries of `Changes.over` of leases of a flavor that is closed to their tenant."""
    for lease in snapshot.leases:
        if lease.flavor not in tree.open_flavors(lease.tenant):
            yield from (SEPARATOR.join((lease.tenant, lease.flavor, resource)) for resource in lease.amounts)


def refuse_crowding(snapshot: FederationSnapshot, tree: TenantTree) -> None:
    """Check that the tree keeps tenants apart on the clusters of the meshes that have joined.

    Raises:
        MeshError: With the tree, several top-level tenants would share a Ray cluster that is not `shared`.
    """
    idle = replace(snapshot, leases=())  # Running work ends by itself; only admission counts.
    before = crowded(idle)
    for mesh, together in crowded(replace(idle, tree=tree)).items():
        if mesh not in before:
            raise MeshError(
                f"mesh {mesh} would run work of {', '.join(together)} on one Ray cluster, which isolates no tenants; list one of them in "
                "its `tenants`, or set `shared: true` on its cluster if they trust each other: both need `down` and `up`, or a new `join`"
            )


def _is_stopped(row: str, snapshot: FederationSnapshot, tree: TenantTree, asked: TenantPolicies) -> bool:
    """Return whether a holder of the excess is evicted when its quota is reduced. Each holder's own `on_quota_reduction` decides."""
    node, flavor, resource = row.split(SEPARATOR)
    holders = {lease.tenant for lease in snapshot.leases if lease.flavor == flavor and resource in lease.amounts}
    return any(
        tree.is_within(holder, TenantPath(node)) and asked.settings_of(holder).on_quota_reduction is OnQuotaReduction.EVICT
        for holder in holders
    )


def mesh_changes(known: Mapping[MeshId, StageSettings], asked: Mapping[MeshId, StageSettings]) -> tuple[Difference, ...]:
    """Return the differences between the settings in force and those of a file, for the meshes that both have.

    Args:
        known: Settings that were published last.
        asked: Settings of the new file.
    """
    return tuple(
        Difference(tenant=None, mesh=mesh, what=key, before=before.get(key, unset), after=after.get(key, unset))
        for mesh in sorted(known.keys() & asked.keys())
        for before, after in [(dict(format_mesh(known[mesh])), dict(format_mesh(asked[mesh])))]
        for key in dict.fromkeys((*before, *after))
        for unset in ["false" if key.startswith("pools.") else NOT_SET]
        if before.get(key, unset) != after.get(key, unset)
    )


def overruled(mesh: MeshId, own: StageSettings, published: StageSettings) -> tuple[str, ...]:
    """Return the keys that a mesh sets itself and for which the root's file has another value, which counts."""
    chosen = {one.what for one in mesh_changes({mesh: DEFAULT_SETTINGS}, {mesh: own})}
    return tuple(one.what for one in mesh_changes({mesh: own}, {mesh: published}) if one.what in chosen)


def mesh_changes_as_json(found: Iterable[Difference]) -> list[dict[str, Any]]:
    """Return changed settings of meshes as JSON values."""
    return [{"mesh": one.mesh, "what": one.what, "before": one.before, "after": one.after} for one in found]


def as_json(found: Changes) -> dict[str, Any]:
    """Return the changes as JSON values."""
    return {
        "new_tenants": list(found.new),
        "tenants_gone": list(found.gone),
        "tenants_moved": [{"tenant": path, "parent": parent} for path, parent in found.moved],
        "limits": [_difference_json(one) for one in found.limits],
        "settings": [_difference_json(one) for one in found.settings],
        "over_limits": [
            {
                **dict(zip(("tenant", "flavor", "resource"), row.split(SEPARATOR), strict=True)),
                "on_quota_reduction": (OnQuotaReduction.EVICT if row in found.stopped else OnQuotaReduction.KEEP).value,
            }
            for row in found.over
        ],
    }


def _difference_json(one: Difference) -> dict[str, Any]:
    return {"tenant": one.tenant, "what": one.what, "before": one.before, "after": one.after}


def _limits(before: TenantTree, after: TenantTree) -> Iterator[Difference]:
    keys = sorted(before.flavor_resources() | after.flavor_resources())
    for path in sorted(after.tenants):  # Removed tenants are listed without their limits.
        for key in keys:
            old, new = _quota(before, path, key), _quota(after, path, key)
            for limit in LIMITS:
                described = _limit_words(old, limit, key), _limit_words(new, limit, key)
                if described[0] != described[1]:
                    yield Difference(tenant=path, what=f"{key[0]}.{key[1]}.{limit}", before=described[0], after=described[1])


def _quota(tree: TenantTree, path: TenantPath, key: FlavorResource) -> Quota:
    return tree.quota(path, key) if path in tree.tenants else Quota()


def _limit_words(quota: Quota, limit: str, key: FlavorResource) -> str:
    units: int | None = getattr(quota, limit)
    return NO_LIMIT if units is None else format_units(key[1], units)


def _settings(known: TenantPolicies, asked: TenantPolicies) -> Iterator[Difference]:
    yield from _apart(None, format_rules(known.rules), format_rules(asked.rules))
    before = _usual_flavors(known)
    usual = before, _usual_flavors(asked, before)
    if all(usual):
        yield from _apart(None, [("flavors", ", ".join(usual[0]))], [("flavors", ", ".join(usual[1]))])
    for name in sorted(asked.settings.keys() | asked.weights.keys()):  # Removed tenants are listed without their settings.
        path = TenantPath(name)
        weights = [[("weight", str(tenant_policies.weights.get(name, Fraction(1))))] for tenant_policies in (known, asked)]
        yield from _apart(path, *weights)
        tenant_policies = (
            _flavor_order(tenant_policies, name, order) for tenant_policies, order in zip((known, asked), usual, strict=True)
        )
        yield from _apart(path, *([("scheduling.flavor_order", order)] for order in tenant_policies))
        yield from _apart(path, format_settings(known.settings.get(name, UNSAID)), format_settings(asked.settings.get(name, UNSAID)))


def _usual_flavors(tenant_policies: TenantPolicies, before: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the flavor order that most tenants use, so that it is listed once for all of them. A tie keeps the order in use before.
    Empty if there are no tenants.
    """
    tried = Counter(own.flavors for own in tenant_policies.settings.values() if own.flavors)
    return max(tried, key=lambda order: (tried[order], order == before), default=())


def _flavor_order(tenant_policies: TenantPolicies, name: str, usual: tuple[str, ...]) -> str:
    own = tenant_policies.settings.get(name, UNSAID).flavors
    return ", ".join(own) if own and own != usual else NOT_SET


def _apart(path: TenantPath | None, old: Iterable[tuple[str, str]], new: Iterable[tuple[str, str]]) -> Iterator[Difference]:
    for (what, before), (_, after) in zip(old, new, strict=True):
        if before != after:
            yield Difference(tenant=path, what=what, before=before, after=after)
