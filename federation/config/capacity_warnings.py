"""Warnings about quota, pools and nodes of a federation file that do not go together: allowed, and likely mistakes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from federation.config.checks import Check, carries, each_quota, units_of
from federation.config.models import FederationConfig
from federation.config.sections.meshes import NodeSection
from federation.config.tenant_paths import PlacedTenants
from federation.config.trust import root_among_tenants
from federation.config.yaml_source import ConfigProblem, Path
from mesh.core.ids import TenantPath
from mesh.core.near_names import unheld
from mesh.core.resources import format_units, to_units


def warnings_of(config: FederationConfig, placed: PlacedTenants) -> tuple[ConfigProblem, ...]:
    """Return allowed settings that are likely mistakes."""
    return tuple(problem for check in WARNINGS for problem in check(config, placed))


def _unoffered(config: FederationConfig, placed: PlacedTenants) -> Iterator[ConfigProblem]:
    offered = {pool.flavor for mesh in config.meshes.values() for pool in mesh.pools.values()}
    for tenant in placed.tenants:
        for flavor in tenant.rights.quotas:
            if flavor in config.flavors and flavor not in offered:
                yield ConfigProblem(
                    path=(*tenant.place, "quotas", flavor), text=f"no mesh in this file offers {flavor}; only a mesh that joins could"
                )


def _oversold(config: FederationConfig, _: PlacedTenants) -> Iterator[ConfigProblem]:
    """Find pools with more CPUs or GPUs than the started nodes have: work would be admitted and then wait in Ray."""
    for name, mesh in config.meshes.items():
        cluster = config.clusters.get(mesh.cluster)
        nodes = [node for node in (cluster.nodes if cluster else None) or () if carries(node.labels, mesh.node_labels)]
        for resource, has in (("cpu", sum(node.cpu for node in nodes)), ("gpu", sum(node.gpu for node in nodes))):
            parts: list[tuple[int, Path]] = [
                (units_of(resource, pool.capacity[resource]), ("meshes", name, "pools", label, "capacity", resource))
                for label, pool in mesh.pools.items()
                if resource in pool.capacity
            ]
            place = _first_beyond(parts, to_units(resource, has))
            if nodes and place is not None:
                promised = format_units(resource, sum(units for units, _ in parts))
                text = f"the pools of {name} declare {promised} {resource}, its nodes have {has}; work beyond the nodes would wait in Ray"
                yield ConfigProblem(path=place, text=text)


def _overreserved(config: FederationConfig, _: PlacedTenants) -> Iterator[ConfigProblem]:
    """Find reserved groups that the pool cannot hold together, or no started node alone: they would never be made."""
    for name, mesh in config.meshes.items():
        cluster = config.clusters.get(mesh.cluster)
        nodes = [node for node in (cluster.nodes if cluster else None) or () if carries(node.labels, mesh.node_labels)]
        for label, pool in mesh.pools.items():
            place: Path = ("meshes", name, "pools", label, "groups", "reserved")
            total: Counter[str] = Counter()
            for number, entry in enumerate(pool.groups.reserved if pool.groups is not None else ()):
                amounts = {resource: units_of(resource, amount) for resource, amount in entry.amounts.items()}
                total.update({resource: units * entry.count for resource, units in amounts.items()})
                if nodes and not any(_holds(node, amounts) for node in nodes):
                    text = "no node of the mesh holds such a group; make it smaller, or a node larger"
                    yield ConfigProblem(path=(*place, number), text=text)
            for resource, units in total.items():
                has = units_of(resource, pool.capacity.get(resource, 0))
                if units > has:
                    taken, there = format_units(resource, units), format_units(resource, has)
                    text = f"the groups take {taken} {resource} together, the pool has {there}; groups beyond it are never made"
                    yield ConfigProblem(path=place, text=text)


def _holds(node: NodeSection, amounts: Mapping[str, int]) -> bool:
    """Return whether the node holds these CPUs, GPUs and custom resources when it is empty."""
    has = {"cpu": to_units("cpu", node.cpu), "gpu": to_units("gpu", node.gpu)}
    has |= {resource: units_of(resource, amount) for resource, amount in node.resources.items()}
    if node.memory_bytes is not None:
        has["memory"] = node.memory_bytes
    return all(units <= has.get(resource, units if resource == "memory" else 0) for resource, units in amounts.items())


def _unbacked(config: FederationConfig, placed: PlacedTenants) -> Iterator[ConfigProblem]:
    """Find quota that no pool of the file could fill. Each kind is reported once, at the quota with the largest share."""
    held: Counter[tuple[str, str]] = Counter()
    for mesh in config.meshes.values():
        for pool in mesh.pools.values():
            held.update({(pool.flavor, resource): units_of(resource, amount) for resource, amount in pool.capacity.items()})
    given: defaultdict[tuple[str, str], list[tuple[int, Path]]] = defaultdict(list)
    for tenant in placed.tenants:
        for flavor, resource, quota, place in each_quota(tenant):
            given[flavor, resource].append((units_of(resource, quota.nominal), place))
    for (flavor, resource), parts in given.items():
        total, pools = sum(units for units, _ in parts), held[flavor, resource]
        beyond = _first_beyond(parts, pools)
        if pools and beyond is not None:
            described = f"tenants own {format_units(resource, total)} {resource} of {flavor} in total, the pools of this file have "
            text = f"{described}{format_units(resource, pools)}; only a mesh that joins could add the rest"
            yield ConfigProblem(path=(*beyond, "nominal"), text=text)


def _first_beyond(parts: Sequence[tuple[int, Path]], most: int) -> Path | None:
    """Return the place of the largest number above `most`, else of the first with which the sum exceeds it; None: no excess."""
    alone = [part for part in parts if part[0] > most]
    if alone:
        return max(alone, key=lambda part: part[0])[1]
    sums = accumulate(units for units, _ in parts)
    return next((place for total, (_, place) in zip(sums, parts, strict=True) if total > most), None)


def _unheld(config: FederationConfig, placed: PlacedTenants) -> Iterator[ConfigProblem]:
    """Find quota of a resource that no pool of the flavor has, such as `TPU` instead of `tpu`; it could never be used."""
    held: defaultdict[str, set[str]] = defaultdict(set)
    for mesh in config.meshes.values():
        for pool in mesh.pools.values():
            held[pool.flavor].update(pool.capacity)
    for tenant in placed.tenants:
        for flavor, resource, _, place in each_quota(tenant):
            if flavor in held and resource not in held[flavor]:
                yield ConfigProblem(path=place, text=unheld(f"no pool of the flavor {flavor} has", resource, held[flavor]))


def _lent_beyond(_: FederationConfig, placed: PlacedTenants) -> Iterator[ConfigProblem]:
    """Find lending limits above a tenant's own quota, which is the nominal quota of the tenant and all tenants below it."""
    parents = {tenant.path: tenant.parent for tenant in placed.tenants}
    own: Counter[tuple[str, str, str]] = Counter()
    for tenant in placed.tenants:
        for flavor, resource, quota, _place in each_quota(tenant):
            path: str | None = tenant.path
            while path is not None:
                own[path, flavor, resource] += units_of(resource, quota.nominal)
                path = parents.get(TenantPath(path))
    for tenant in placed.tenants:
        for flavor, resource, quota, place in each_quota(tenant):
            has = own[tenant.path, flavor, resource]
            if quota.lending_limit is not None and units_of(resource, quota.lending_limit) > has:
                text = f"is more than the {format_units(resource, has)} that the tenant owns; remove the limit to lend all"
                yield ConfigProblem(path=(*place, "lending_limit"), text=text)


def _closed(_: FederationConfig, placed: PlacedTenants) -> Iterator[ConfigProblem]:
    """Find tenants without tenants below them that may use no flavor at all, though others of their tree own quota."""
    roots: dict[TenantPath | None, TenantPath] = {}
    opened: dict[TenantPath | None, bool] = {None: False}
    for tenant in placed.tenants:  # Parents come before children.
        roots[tenant.path] = roots[tenant.parent] if tenant.parent is not None else tenant.path
        opened[tenant.path] = opened[tenant.parent] or any(tenant.rights.quotas.values())
    lending = {roots[tenant.path]: key for tenant in placed.tenants for *key, _, _ in each_quota(tenant)}
    parents = {tenant.parent for tenant in placed.tenants}
    for tenant in placed.tenants:
        if tenant.path not in parents and not opened[tenant.path] and roots[tenant.path] in lending:
            flavor, resource = lending[roots[tenant.path]]
            text = (
                "neither the tenant nor one above it names a quota, so its work never starts; "
                f"`quotas: {{{flavor}: {{{resource}: {{nominal: 0}}}}}}` would open a flavor for borrowing"
            )
            yield ConfigProblem(path=tenant.place, text=text)


WARNINGS: tuple[Check, ...] = (_unoffered, _oversold, _overreserved, _unbacked, _unheld, _lent_beyond, _closed, root_among_tenants)
