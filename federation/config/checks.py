"""Checks of a federation file across keys. Every check reads the whole file and reports all its problems.

Each check yields `ConfigProblem`s. `capacity_warnings` finds allowed settings that are likely mistakes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from difflib import get_close_matches
from urllib.parse import urlsplit

from federation.config.models import FederationConfig
from federation.config.sections.meshes import MeshLink
from federation.config.sections.quota import QuotaSection
from federation.config.sections.tenants import TenantEntry
from federation.config.sections.values import Amount, format_duration
from federation.config.shape import STAND_IN
from federation.config.tenant_paths import TENANT_DEPTH_MAX, PlacedTenant, PlacedTenants
from federation.config.trust import domains_apart
from federation.config.yaml_source import ConfigProblem, Path
from federation.errors import ConfigError
from federation.redis_url import read_redis_url
from mesh.core.ids import TenantPath
from mesh.core.labels import mismatch, wishes_of
from mesh.core.near_names import nearest
from mesh.core.resources import AMOUNT_MAX, BYTE_RESOURCES, to_units
from mesh.errors import AmountError, SelectorError
from mesh.plugins import PluginError, check_source
from mesh.policies.catalogue import UnknownPolicy, is_free_name, parts_of, with_plugins
from mesh.stages.slot_placement import check_policy
from mesh.stages.stage_settings import ANY_TENANT

Check = Callable[[FederationConfig, PlacedTenants], Iterator[ConfigProblem]]

_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_ID_WORDS = "a name is 1 to 64 of a-z, 0-9, `.`, `_` and `-`, and begins with a letter or a digit"
_RESOURCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}")
_RAY_NAMES = {"cpus": "cpu", "num_cpus": "cpu", "gpus": "gpu", "num_gpus": "gpu", "mem": "memory"}  #: Also `CPU`, `GPU`, by case.


def problems_of(
    config: FederationConfig, placed: PlacedTenants, *, left_out: tuple[Path, ...] = (), installed: Collection[str] = ()
) -> tuple[ConfigProblem, ...]:
    """Return all problems that must be fixed.

    Args:
        left_out: Paths of wrong values with substitutes; problems that could follow from these are dropped.
        installed: Names of the plugins of installed packages.
    """
    checks = CHECKS_ALONE if left_out else (*CHECKS_ALONE, *CHECKS_TOGETHER)
    is_made_up = any(tenant.path == STAND_IN for tenant in placed.tenants)  # The missing value may be in the substituted tenant.
    found = (*(() if is_made_up else placed.problems), *(problem for check in checks for problem in check(config, placed)))
    found = (*found, *_policies(config, installed))
    with_paths = [(problem, (problem.path, *problem.because)) for problem in found]
    return tuple(problem for problem, paths in with_paths if not any(each[: len(path)] == path for each in paths for path in left_out))


def _ids(config: FederationConfig, placed: PlacedTenants) -> Iterator[ConfigProblem]:
    named: list[tuple[Path, str]] = [(("federation", "name"), config.federation.name)]
    for section in ("clusters", "flavors", "meshes"):
        named += [((section, name), name) for name in getattr(config, section)]
    named += [(("meshes", mesh, "pools", pool), pool) for mesh, section in config.meshes.items() for pool in section.pools]
    named += [(("meshes", mesh, "plugins", plugin), plugin) for mesh, section in config.meshes.items() for plugin in section.plugins]
    named += [(("webhooks", "endpoints", name), name) for name in config.webhooks.endpoints]
    named += [(tenant.place, part) for tenant in placed.tenants for part in _own_parts(tenant)]
    for place, name in named:
        if not _ID.fullmatch(name):
            yield ConfigProblem(path=place, text=f"invalid name {name!r}; {_ID_WORDS}")


def _own_parts(tenant: PlacedTenant) -> list[str]:
    """Return the parts of the path that this entry defines, not another tenant."""
    entry = tenant.rights
    if not isinstance(entry, TenantEntry):
        return [str(tenant.place[-1])]
    if entry.path is None:
        return [str(entry.name)]
    return entry.path.split("/") if entry.parent is not None else [entry.path.rpartition("/")[2]]


def _timing(config: FederationConfig, _: PlacedTenants) -> Iterator[ConfigProblem]:
    ttl_ms, heartbeat_ms = config.federation.lease_ttl_ms, config.federation.heartbeat_ms
    if not 2 * heartbeat_ms < ttl_ms:
        text = f"must be less than half of lease_ttl (got {format_duration(heartbeat_ms)} and {format_duration(ttl_ms)})"
        yield ConfigProblem(path=("federation", "heartbeat"), text=f"{text}, so that one lost heartbeat has no effect")


def _routing(config: FederationConfig, _: PlacedTenants) -> Iterator[ConfigProblem]:
    probation_ms, most_ms = config.routing.probation_ms, config.routing.probation_max_ms
    if probation_ms > most_ms:
        text = f"must be at least probation (got {format_duration(most_ms)} and {format_duration(probation_ms)})"
        yield ConfigProblem(path=("routing", "probation_max"), text=text)


def _mesh_labels(config: FederationConfig, _: PlacedTenants) -> Iterator[ConfigProblem]:
    """Check that labels of meshes are plain values; selectors belong to work and flavors."""
    for mesh, section in config.meshes.items():
        for key, value in section.labels.items():
            if value.startswith(("!", "in(")):
                text = f"{value!r} is a selector, but labels of a mesh are plain values; put the selector on work or a flavor"
                yield ConfigProblem(path=("meshes", mesh, "labels", key), text=text)


def _flavor_labels(config: FederationConfig, _: PlacedTenants) -> Iterator[ConfigProblem]:
    for flavor, section in config.flavors.items():
        for key in section.labels:
            if (wrong := _misread(section.labels, key)) is not None:
                yield ConfigProblem(path=("flavors", flavor, "labels", key), text=wrong)


def _addresses(config: FederationConfig, _: PlacedTenants) -> Iterator[ConfigProblem]:
    try:
        read_redis_url(config.redis.url or "unix://")
    except ConfigError as wrong:
        yield ConfigProblem(path=("redis", "url"), text=f"{wrong}; or be null for an embedded server")
    if config.storage.url is not None and not urlsplit(config.storage.url).scheme:
        yield ConfigProblem(path=("storage", "url"), text="must be an fsspec URL like s3://bucket/folder or file:///folder, or null")
    for name, cluster in config.clusters.items():
        if cluster.address is not None and not re.fullmatch(r"[^\s:/]+:\d{1,5}", cluster.address):
            yield ConfigProblem(path=("clusters", name, "address"), text=f"must be host:port (got {cluster.address!r})")


def _webhooks(config: FederationConfig, placed: PlacedTenants) -> Iterator[ConfigProblem]:
    tenants = {str(tenant.path) for tenant in placed.tenants}
    for name, webhook in config.webhooks.endpoints.items():
        here: Path = ("webhooks", "endpoints", name)
        if (wrong := _wrong_url(webhook.url, config.webhooks.allow_http)) is not None:
            yield ConfigProblem(path=(*here, "url"), text=wrong)
        if webhook.tenant != ANY_TENANT and _is_unknown(webhook.tenant, tenants):
            yield ConfigProblem(path=(*here, "tenant"), text=_unknown("tenant", webhook.tenant, tenants))


def _wrong_url(url: str, allow_http: Container[str]) -> str | None:
    """Return the problem of a webhook's address, without the address, whose path may hold a secret."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "must be a URL like https://hooks.example/schedulemesh"
    if parts.scheme not in ("http", "https") or not host:
        return "must be a URL like https://hooks.example/schedulemesh"
    if parts.username is not None or parts.password is not None or parts.fragment:
        return "must have neither a user nor a fragment; sign the calls by `secret_file` instead"
    if parts.scheme == "http" and host not in allow_http:
        return f"calls {host} without TLS; write https, or add {host} to webhooks.allow_http"
    return None


def _clusters(config: FederationConfig, _: PlacedTenants) -> Iterator[ConfigProblem]:
    if _is_unknown(config.root.cluster, config.clusters):
        yield ConfigProblem(path=("root", "cluster"), text=_unknown("cluster", config.root.cluster, config.clusters))
    for name, mesh in config.meshes.items():
        if not mesh.cluster:
            if mesh.link is not MeshLink.JOINS:
                because = (("meshes", name, "link"),)
                yield ConfigProblem(
                    path=("meshes", name, "cluster"), text="is missing; name the cluster that the mesh runs on", because=because
                )
            continue
        if _is_unknown(mesh.cluster, config.clusters):
            yield ConfigProblem(path=("meshes", name, "cluster"), text=_unknown("cluster", mesh.cluster, config.clusters))


def _users(config: FederationConfig, _: PlacedTenants) -> Iterator[ConfigProblem]:
    for name, cluster in config.clusters.items():
        if cluster.user is None:
            continue
        if name == config.root.cluster:
            text = "the root on this cluster holds the federation's keys and runs as the user of `up`; give the root a cluster of its own"
            yield ConfigProblem(path=("clusters", name, "user"), text=text, because=(("root", "cluster"),))
        elif config.storage.url is None:
            text = "another user has no access to large values in the state folder; name a folder for them in `storage.url`"
            yield ConfigProblem(path=("clusters", name, "user"), text=text)


def _node_labels(config: FederationConfig, _: PlacedTenants) -> Iterator[ConfigProblem]:
    for name, mesh in config.meshes.items():
        cluster = config.clusters.get(mesh.cluster)
        nodes = cluster.nodes if cluster is not None else None
        if nodes is not None and not any(carries(node.labels, mesh.node_labels) for node in nodes):
            yield ConfigProblem(
                path=("meshes", name, "node_labels"),
                text=f"no node of the cluster {mesh.cluster} has the labels {_labels(mesh.node_labels)}",
            )
            continue
        of_mesh = [node for node in nodes or () if carries(node.labels, mesh.node_labels)]
        for pool, declared in mesh.pools.items():
            if nodes is None or any(_misread(declared.node_labels, key) for key in declared.node_labels):
                continue  # Unknown nodes; or reported at the pool.
            if all(mismatch(declared.node_labels, node.labels) is not None for node in of_mesh):
                text = (
                    f"no node of the mesh {name} matches {_labels(declared.node_labels)}; add the labels to a node, or change the selector"
                )
                yield ConfigProblem(path=("meshes", name, "pools", pool, "node_labels"), text=text)


def _pools(config: FederationConfig, _: PlacedTenants) -> Iterator[ConfigProblem]:
    for mesh, section in config.meshes.items():
        for pool, declared in section.pools.items():
            place: Path = ("meshes", mesh, "pools", pool)
            if _is_unknown(declared.flavor, config.flavors):
                yield ConfigProblem(path=(*place, "flavor"), text=_unknown("flavor", declared.flavor, config.flavors))
            yield from _amounts(declared.capacity, (*place, "capacity"))
            for number, entry in enumerate(declared.groups.reserved if declared.groups is not None else ()):
                yield from _reserved(entry.amounts, declared.capacity, (*place, "groups", "reserved", number))
            for key in declared.node_labels:
                if (wrong := _misread(declared.node_labels, key)) is not None:
                    yield ConfigProblem(path=(*place, "node_labels", key), text=wrong)
    for name, cluster in config.clusters.items():
        for index, node in enumerate(cluster.nodes or ()):
            yield from _amounts(node.resources, ("clusters", name, "nodes", index, "resources"))


def _policies(config: FederationConfig, installed: Collection[str]) -> Iterator[ConfigProblem]:
    """Check plugins and the policies that name them. A mesh that joins has no plugins but those that the file names."""
    for mesh, section in config.meshes.items():
        named: list[str] = []
        for name, source in section.plugins.items():
            if not _ID.fullmatch(name):
                continue  # Reported with the other names.
            try:
                with_plugins((name,))
                named.append(name)
                check_source(name, source)
            except (UnknownPolicy, PluginError) as wrong:
                yield ConfigProblem(path=("meshes", mesh, "plugins", name), text=str(wrong))
        here = () if section.link is MeshLink.JOINS else (name for name in installed if is_free_name(name))
        catalogue = with_plugins((*named, *here))
        for pool, declared in section.pools.items():
            try:
                check_policy(declared.policy, catalogue)
            except UnknownPolicy as unknown:
                because = tuple(("meshes", mesh, "plugins", part) for _, part in parts_of(declared.policy))
                yield ConfigProblem(path=("meshes", mesh, "pools", pool, "policy"), text=str(unknown), because=because)


def _offers(config: FederationConfig, _: PlacedTenants) -> Iterator[ConfigProblem]:
    for mesh, section in config.meshes.items():
        for pool, declared in section.pools.items():
            flavor = config.flavors.get(declared.flavor)
            if flavor is None or any(_misread(flavor.labels, key) for key in flavor.labels):
                continue  # Reported at the pool and at the flavor.
            if (missing := mismatch(flavor.labels, section.labels)) is not None:
                place = ("meshes", mesh, "pools", pool, "flavor")
                yield ConfigProblem(path=place, text=f"the mesh {mesh} cannot offer {declared.flavor}: {missing}; add the label")


def _tenant_names(config: FederationConfig, placed: PlacedTenants) -> Iterator[ConfigProblem]:
    known = {tenant.path for tenant in placed.tenants}
    for mesh, section in config.meshes.items():
        for index, path in enumerate(section.tenants):
            if path != "*" and _is_unknown(path, known):
                yield ConfigProblem(path=("meshes", mesh, "tenants", index), text=_unknown("tenant", path, known))
        for path in section.queues:
            if path != ANY_TENANT and _is_unknown(path, known):
                yield ConfigProblem(path=("meshes", mesh, "queues", path), text=_unknown("tenant", path, known))
    depths: dict[str | None, int] = {None: 0}
    for tenant in placed.tenants:
        depths[tenant.path] = depths[tenant.parent] + 1
        if depths[tenant.path] == TENANT_DEPTH_MAX + 1:  # Only the first tenant that is too deep is reported.
            yield ConfigProblem(path=tenant.place, text=f"tenants may be at most {TENANT_DEPTH_MAX} levels deep")


def _quotas(config: FederationConfig, placed: PlacedTenants) -> Iterator[ConfigProblem]:
    for tenant in placed.tenants:
        for flavor, quotas in tenant.rights.quotas.items():
            place: Path = (*tenant.place, "quotas", flavor)
            if _is_unknown(flavor, config.flavors):
                yield ConfigProblem(path=place, text=_unknown("flavor", flavor, config.flavors))
            for resource, quota in quotas.items():
                yield from _quota(tenant, resource, quota, (*place, resource))


def _quota(tenant: PlacedTenant, resource: str, quota: QuotaSection, place: Path) -> Iterator[ConfigProblem]:
    yield from _resource_name(resource, place)
    for limit in ("nominal", "borrowing_limit", "lending_limit"):
        amount = getattr(quota, limit)
        if amount is not None and (wrong := _wrong(resource, amount)) is not None:
            yield ConfigProblem(path=(*place, limit), text=wrong)
        if amount is not None and limit != "nominal" and tenant.parent is None:
            text = f"{tenant.path} is at the top of the tree, with no tenant to borrow from or lend to; remove the limit"
            yield ConfigProblem(path=(*place, limit), text=text)


def _flavor_orders(config: FederationConfig, placed: PlacedTenants) -> Iterator[ConfigProblem]:
    for tenant in placed.tenants:
        named = tenant.rights.scheduling.flavor_order or ()
        for number, flavor in enumerate(named):
            place: Path = (*tenant.place, "scheduling", "flavor_order", number)
            if flavor not in config.flavors:
                yield ConfigProblem(path=place, text=_unknown("flavor", flavor, config.flavors))
            elif flavor in named[:number]:
                yield ConfigProblem(path=place, text=f"{flavor} is named twice; remove one of them")


def _priority_bounds(_: FederationConfig, placed: PlacedTenants) -> Iterator[ConfigProblem]:
    bounds: dict[TenantPath | None, tuple[int, TenantPath] | None] = {None: None}
    for tenant in placed.tenants:  # Parents come before children.
        own, above = tenant.rights.limits.priority_max, bounds[tenant.parent]
        bounds[tenant.path] = above if own is None or (above is not None and own > above[0]) else (own, tenant.path)
        if own is not None and above is not None and own > above[0]:
            text = f"must be at most {above[0]}, the bound of {above[1]} (got {own}); remove the key to use that bound"
            yield ConfigProblem(path=(*tenant.place, "limits", "priority_max"), text=text)


def _windows(_: FederationConfig, placed: PlacedTenants) -> Iterator[ConfigProblem]:
    for tenant in placed.tenants:
        for number, window in enumerate(tenant.rights.limits.windows):
            place: Path = (*tenant.place, "limits", "windows", number)
            if window.opens_ms >= window.every_ms:
                text = f"must be less than `every` (got {format_duration(window.opens_ms)} and {format_duration(window.every_ms)})"
                yield ConfigProblem(path=(*place, "opens"), text=text)
            if window.lasts_ms >= window.every_ms:
                text = f"must be less than `every` (got {format_duration(window.lasts_ms)} and {format_duration(window.every_ms)})"
                yield ConfigProblem(path=(*place, "lasts"), text=f"{text}; without the window work may start at any time")


def _sums(config: FederationConfig, placed: PlacedTenants) -> Iterator[ConfigProblem]:
    """Check that sums of a ledger stay below 2^53, the largest exact integer in Redis' numbers."""
    nominal: Counter[tuple[str, str]] = Counter()
    for tenant in placed.tenants:
        for flavor, resource, quota, place in each_quota(tenant):
            nominal[flavor, resource] += units_of(resource, quota.nominal)
            borrowing = units_of(resource, quota.borrowing_limit or 0)
            if nominal[flavor, resource] + borrowing > AMOUNT_MAX:
                number = "nominal" if nominal[flavor, resource] > AMOUNT_MAX else "borrowing_limit"
                text = f"with this value the quotas for {resource} of {flavor} add up to more than 2^53 units; write less"
                yield ConfigProblem(path=(*place, number), text=text)
    capacity: Counter[tuple[str, str]] = Counter()
    for mesh, section in config.meshes.items():
        for pool, declared in section.pools.items():
            for resource, amount in declared.capacity.items():
                capacity[declared.flavor, resource] += units_of(resource, amount)
                if capacity[declared.flavor, resource] > AMOUNT_MAX:
                    place = ("meshes", mesh, "pools", pool, "capacity", resource)
                    yield ConfigProblem(
                        path=place, text=f"with this value the pools of {declared.flavor} add up to more than 2^53 units; write less"
                    )


#: Checks of names and of single values.
CHECKS_ALONE: tuple[Check, ...] = (
    _ids,
    _mesh_labels,
    _flavor_labels,
    _addresses,
    _webhooks,
    _clusters,
    _pools,
    _tenant_names,
    _quotas,
    _flavor_orders,
)
#: Checks of values against each other; with a substituted default these could report false problems.
CHECKS_TOGETHER: tuple[Check, ...] = (_timing, _routing, _users, _node_labels, _offers, _priority_bounds, _windows, _sums, domains_apart)


def _amounts(amounts: Mapping[str, Amount], place: Path) -> Iterator[ConfigProblem]:
    for resource, amount in amounts.items():
        yield from _resource_name(resource, (*place, resource))
        if (wrong := _wrong(resource, amount)) is not None:
            yield ConfigProblem(path=(*place, resource), text=wrong)


def _reserved(amounts: Mapping[str, Amount], capacity: Mapping[str, Amount], place: Path) -> Iterator[ConfigProblem]:
    """Find wrong amounts of a reserved group; a resource that the pool lacks is most likely a misspelt key."""
    for resource in amounts:
        if resource not in capacity:
            meant = nearest(resource, (*capacity, "count"))
            yield ConfigProblem(path=(*place, resource), text=f"the pool has no {resource}{meant} (it has {', '.join(capacity)})")
    yield from _amounts({resource: amount for resource, amount in amounts.items() if resource in capacity}, place)


def _resource_name(resource: str, place: Path) -> Iterator[ConfigProblem]:
    meant = _RAY_NAMES.get(resource.lower(), resource.lower())
    if resource != meant and meant in {"cpu", "gpu", *BYTE_RESOURCES}:
        yield ConfigProblem(path=place, text=f"unknown resource; did you mean {meant}?")
    elif not _RESOURCE.fullmatch(resource):
        yield ConfigProblem(path=place, text=f"{resource!r} is not a resource; write cpu, gpu, memory or the name of a custom resource")


def _wrong(resource: str, amount: Amount) -> str | None:
    if str(amount).lstrip().startswith("-") and str(amount).strip(" -0.") != "":
        return f"must not be negative (got {amount}); write 0 or more"
    try:
        to_units(resource, amount)
    except AmountError as wrong:
        return str(wrong)
    return None


def units_of(resource: str, amount: Amount) -> int:
    """Return the amount in units; 0 for a wrong amount, which `_wrong` has reported."""
    return to_units(resource, amount) if _wrong(resource, amount) is None else 0


def each_quota(tenant: PlacedTenant) -> Iterator[tuple[str, str, QuotaSection, Path]]:
    for flavor, quotas in tenant.rights.quotas.items():
        for resource, quota in quotas.items():
            yield flavor, resource, quota, (*tenant.place, "quotas", flavor, resource)


def _misread(selector: Mapping[str, str], key: str) -> str | None:
    """Return why the selector of this label is invalid; None if it is valid."""
    try:
        wishes_of({key: selector[key]})
    except SelectorError as wrong:
        return str(wrong)
    return None


def carries(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in wanted.items())


def _labels(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _is_unknown(name: str, known: Container[str]) -> bool:
    """Return whether the name is unknown; False if a wrong or missing part of the file may define it."""
    return name not in known and STAND_IN not in known


def _unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """Return a message that lists the known names, the nearest first."""
    near = get_close_matches(name, sorted(known), n=3, cutoff=0.5)
    others = [other for other in sorted(known) if other not in near]
    shown = [*near, *others]
    more = f" and {len(shown) - 10} more" if len(shown) > 10 else ""  # noqa: PLR2004  keeps the line readable
    hint = f"did you mean {near[0]}? " if near else ""
    return f"unknown {kind} {name!r}; {hint}known: {', '.join(shown[:10])}{more}"
