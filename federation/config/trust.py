"""Check that tenants without mutual trust run on separate Ray clusters. A Ray cluster is one trust domain (ADR 0032)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from federation.config.models import FederationConfig
from federation.config.tenant_paths import PlacedTenants
from federation.config.yaml_source import ConfigProblem
from federation.routing.domains import admitted_top_level
from federation.tenants import top_level_of
from mesh.core.ids import TenantPath

_LOOPBACK = ("localhost", "127.0.0.1")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Domain:
    """One Ray cluster, under all names that the file has for it."""

    clusters: tuple[str, ...]
    meshes: tuple[str, ...]
    is_shared: bool
    has_root: bool

    def admitted(self, config: FederationConfig, top_level: Iterable[TenantPath]) -> list[TenantPath]:
        """Return the top-level tenants that its meshes allow, in order."""
        tops = tuple(top_level)
        return sorted({top for mesh in self.meshes for top in admitted_top_level(config.meshes[mesh].tenants, tops)})


def domains_apart(config: FederationConfig, placed: PlacedTenants) -> Iterator[ConfigProblem]:
    """Check that only a `shared` cluster allows several top-level tenants, or has the root beside tenants' work."""
    top_level = {top_level_of(tenant.path) for tenant in placed.tenants}
    for domain in _domains(config):
        first, *others = domain.clusters
        for other in others:
            if config.clusters[other].shared != config.clusters[first].shared:
                text = f"has the address of {first}, so both are the same Ray cluster; write the same `shared` for both"
                yield ConfigProblem(path=("clusters", other, "address"), text=text)
        if domain.is_shared or not domain.meshes:
            continue
        admitted = domain.admitted(config, top_level)
        if len(admitted) > 1:
            text = (
                f"{_listed(domain.meshes, 'the mesh', 'the meshes')} on it would run work of {_and(admitted)}, and Ray isolates no tenants "
                "within a cluster; give each tenant a cluster of its own and list the tenant in `tenants` of the meshes there, or write "
                "`shared: true` if the tenants trust each other"
            )
            yield ConfigProblem(path=("clusters", first), text=text)
        if domain.has_root:
            text = (
                f"the root is in it beside {_listed(domain.meshes, 'the mesh', 'the meshes')}, whose tenants could run code in the control "
                "plane; give the root a cluster of its own, like `clusters.root: {nodes: [{cpu: 1}]}` with `root.cluster: root`, or write "
                "`shared: true` if the root trusts its tenants"
            )
            yield ConfigProblem(path=("clusters", first), text=text)
    yield from _joining_apart(config, top_level)


def _joining_apart(config: FederationConfig, top_level: Iterable[TenantPath]) -> Iterator[ConfigProblem]:
    """Check meshes that join from a cluster that the file does not describe."""
    tops = tuple(top_level)
    for name, mesh in config.meshes.items():
        admitted = sorted(admitted_top_level(mesh.tenants, tops))
        if not mesh.cluster and len(admitted) > 1:
            text = (
                f"it would run work of {_and(admitted)} on one Ray cluster, which isolates no tenants; list one in `tenants`, or name "
                "its `cluster`, with `address` and `shared: true`, if they trust each other"
            )
            yield ConfigProblem(path=("meshes", name), text=text)


def root_among_tenants(config: FederationConfig, _: PlacedTenants) -> Iterator[ConfigProblem]:
    """Warn about the risks of a root on a cluster with tenants' work."""
    for domain in _domains(config):
        if domain.has_root and domain.is_shared and domain.meshes:
            text = (
                "it is shared by the root and its tenants: any task there can run code in gateways and coordinator, read every key and "
                "value, and reach Redis; suitable for one machine and one team, see docs/security.md"
            )
            yield ConfigProblem(path=("clusters", domain.clusters[0], "shared"), text=text)


def _domains(config: FederationConfig) -> list[_Domain]:
    """Return the trust domains: clusters with the same address are one."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    for name, cluster in config.clusters.items():
        names[_place_of(name, cluster.address)].append(name)
    meshes: Mapping[str, list[str]] = {
        place: [mesh for mesh, section in config.meshes.items() if section.cluster in clusters] for place, clusters in names.items()
    }
    return [
        _Domain(
            clusters=tuple(clusters),
            meshes=tuple(meshes[place]),
            is_shared=all(config.clusters[name].shared for name in clusters),
            has_root=config.root.cluster in clusters,
        )
        for place, clusters in names.items()
    ]


def _place_of(name: str, address: str | None) -> str:
    if address is None:
        return name  # Addresses have a colon, this name has none.
    host, _, port = address.rpartition(":")
    return f"{_LOOPBACK[1] if host in _LOOPBACK else host}:{port}"


def _listed(names: tuple[str, ...], one: str, several: str) -> str:
    return f"{one if len(names) == 1 else several} {_and(names)}"


def _and(names: Iterable[str]) -> str:
    *before, last = names
    return f"{', '.join(before)} and {last}" if before else last
