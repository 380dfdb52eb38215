"""From the text of a federation file to checked configuration, and from that to the federation's own values.

Reading the file is a door and stands in `serve_apps.configuration.config_file`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from federation.config.checks import problems_of, warnings_of
from federation.config.models import FederationConfig
from federation.config.sections.quota import QuotaSection
from federation.config.shape import shape_of
from federation.config.tenant_forest import PlacedTenant, forest_of
from federation.config.yaml_source import Problem, parse
from federation.errors import ConfigError
from federation.estimates import CostRules
from federation.roster import Roster
from federation.routing.openness import may_use
from federation.snapshot import MeshRecord, PoolRecord
from federation.steadiness import SteadinessRules
from federation.tenants import FlavorResource, Quota, Tenant
from mesh.ids import FlavorName, MeshId, PoolName, TenantPath
from mesh.resources import ResourceSet, to_units

__all__ = [
    "FederationConfig",
    "cost_rules_of",
    "default_tenant_of",
    "default_within",
    "load_config",
    "mesh_record_of",
    "roster_of",
    "steadiness_rules_of",
    "tenants_of",
]


def load_config(text: str, *, source: str, is_folder: Callable[[str], bool] = lambda _path: True) -> FederationConfig:
    """The configuration that `text` holds; `source` is the name that complaints about it begin with.

    Args:
        is_folder: Whether a folder that the file names is there; without it that is not asked.
    Raises:
        ConfigError: One line per problem, in the order of the file: `configs/x.yaml:12:5: tenants.acme: …`; with the warnings, unless
            these could follow from values that are wrong by themselves.
    """
    shape = shape_of(parse(text, source=source))
    config, document = shape.config, shape.document
    if config is None:
        raise ConfigError(located=document.in_order(shape.problems))
    forest = forest_of(config.tenants)
    problems = (*shape.problems, *problems_of(config, forest, left_out=shape.left_out), *_without_folder(config, is_folder))
    warnings = () if shape.left_out else document.in_order(warnings_of(config, forest), have_remedies=False)
    if problems:
        raise ConfigError(located=document.in_order(problems), warnings=warnings)
    config._warnings, config._document = warnings, document  # noqa: SLF001  this is where a checked configuration is made
    return config


def tenants_of(config: FederationConfig) -> tuple[Tenant, ...]:
    """The tenants, parents first; quotas in units, rights inherited from above where a tenant says nothing of its own."""
    return tuple(_tenant(placed) for placed in forest_of(config.tenants).tenants)


def default_tenant_of(config: FederationConfig) -> TenantPath:
    """The first tenant in the file without tenants below it: whose work is whose tenant nobody names."""
    return _leaves_of(config)[0]


def default_within(config: FederationConfig, *, within: TenantPath) -> TenantPath | None:
    """As `default_tenant_of`, of those alone that a key of the tenant `within` reaches, which goes by paths; None where there is none."""
    return next((path for path in _leaves_of(config) if may_use((within,), path)), None)


def _leaves_of(config: FederationConfig) -> list[TenantPath]:
    placed = forest_of(config.tenants).tenants
    parents = {tenant.parent for tenant in placed}
    leaves = [tenant for tenant in placed if tenant.path not in parents]
    if isinstance(config.tenants, tuple):  # The forest has the list by levels.
        leaves.sort(key=lambda tenant: int(tenant.place[-1]))
    return [tenant.path for tenant in leaves]


def mesh_record_of(config: FederationConfig, mesh: str, *, cluster: str, address: str = "") -> MeshRecord:
    """What the mesh tells at join. `cluster` is Ray's own id of the cluster, `address` where it runs.

    Raises:
        ConfigError: The configuration has no such mesh.
    """
    section = config.meshes.get(mesh)
    if section is None:
        raise ConfigError(f"there is no mesh {mesh!r} in the configuration; it has {', '.join(sorted(config.meshes))}")
    pools = tuple(
        PoolRecord(pool=PoolName(name), flavor=FlavorName(pool.flavor), capacity=ResourceSet.of(pool.capacity))
        for name, pool in section.pools.items()
    )
    runs_on = config.clusters.get(section.cluster)
    return MeshRecord(
        mesh=MeshId(mesh),
        labels=dict(section.labels),
        pools=pools,
        cluster=cluster,
        address=address,
        tenants=section.tenants,
        shared=runs_on is not None and runs_on.shared,
    )


def roster_of(config: FederationConfig) -> Roster:
    """What meshes that come are held against."""
    return Roster(
        flavors={FlavorName(flavor): dict(section.labels) for flavor, section in config.flavors.items()},
        meshes={MeshId(mesh): mesh_record_of(config, mesh, cluster="") for mesh in config.meshes},
    )


def cost_rules_of(config: FederationConfig) -> CostRules:
    """What waiting and moving are reckoned with."""
    return CostRules(
        bandwidth_bytes_per_s=config.routing.bandwidth_bytes_per_s,
        run_ms_unknown=config.routing.run_time_ms,
        queue_max=config.dispatch.queue_max,
        flavor_delay_ms=config.routing.flavor_delay_ms,
    )


def steadiness_rules_of(config: FederationConfig) -> SteadinessRules:
    """How long a mesh that came back is on probation."""
    section = config.routing
    return SteadinessRules(probation_ms=section.probation_ms, probation_ms_max=section.probation_max_ms, window_ms=section.loss_window_ms)


def _without_folder(config: FederationConfig, is_folder: Callable[[str], bool]) -> Iterator[Problem]:
    for index, path in enumerate(config.import_paths):
        if not is_folder(path):
            text = f"there is no folder {path}; paths are taken from the folder of this file"
            yield Problem(path=("import_paths", index), text=text)


def _tenant(placed: PlacedTenant) -> Tenant:
    quotas: dict[FlavorResource, Quota] = {
        (FlavorName(flavor), resource): _quota(resource, quota)
        for flavor, rows in placed.rights.quotas.items()
        for resource, quota in rows.items()
    }
    return Tenant(path=placed.path, parent=placed.parent, quotas=quotas, functions=placed.functions, pickled_code=placed.pickled_code)


def _quota(resource: str, quota: QuotaSection) -> Quota:
    borrowing, lending = quota.borrowing_limit, quota.lending_limit
    return Quota(
        nominal=to_units(resource, quota.nominal),
        borrowing_limit=None if borrowing is None else to_units(resource, borrowing),
        lending_limit=None if lending is None else to_units(resource, lending),
    )
