"""Text of a federation file to validated configuration, and configuration to the federation's values.

`serve_apps.configuration.config_file` reads the file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from federation.config.capacity_warnings import warnings_of
from federation.config.checks import problems_of
from federation.config.models import FederationConfig
from federation.config.sections.meshes import GroupsSection, MeshLink, MeshSection
from federation.config.sections.quota import QuotaSection
from federation.config.sections.values import micros_of
from federation.config.shape import shape_of
from federation.config.tenant_paths import PlacedTenant
from federation.config.yaml_source import ConfigProblem, parse
from federation.configured_meshes import ConfiguredMeshes
from federation.errors import ConfigError
from federation.estimates import CostRules
from federation.flap_detection import FlapRules
from federation.mesh_access import may_use
from federation.snapshot import MeshRecord, PoolRecord
from federation.tenants import FlavorResource, Quota, Tenant
from mesh.core.ids import FlavorName, MeshId, PoolName, TenantPath
from mesh.core.resources import ResourceSet, to_units
from mesh.core.shapes import UNBOUNDED, GroupPoolSpec, GroupShape
from mesh.plugins import WASM_SUFFIXES
from mesh.preemption.stage_preemption import PreemptionLimits
from mesh.stages.stage_settings import NodeWeights, QueueRules, StageSettings

__all__ = [
    "FederationConfig",
    "configured_meshes_of",
    "cost_rules_of",
    "default_tenant_of",
    "default_within",
    "flap_rules_of",
    "load_config",
    "mesh_record_of",
    "stage_settings_of",
    "tenants_of",
]


def load_config(
    text: str,
    *,
    source: str,
    is_folder: Callable[[str], bool] = lambda _path: True,
    is_file: Callable[[str], bool] = lambda _path: True,
    installed: Collection[str] = (),
) -> FederationConfig:
    """Return the configuration in `text`. Messages begin with the name `source`.

    Args:
        is_folder: Whether a folder that the file names exists; the default skips this check.
        is_file: The same for a file.
        installed: Names of the plugins of installed packages.

    Raises:
        ConfigError: One line per problem, in the order of the file: `configs/x.yaml:12:5: tenants.acme: …`. Includes the warnings, unless
            these could follow from wrong values.
    """
    shape = shape_of(parse(text, source=source))
    config, document = shape.config, shape.document
    if config is None:
        raise ConfigError(located=document.in_order(shape.problems))
    placed = config.placed_tenants
    problems = (
        *(*shape.problems, *problems_of(config, placed, left_out=shape.left_out, installed=installed)),
        *(*_without_folder(config, is_folder), *_without_file(config, is_file)),
    )
    warnings = () if shape.left_out else document.in_order(warnings_of(config, placed), have_remedies=False)
    if problems:
        raise ConfigError(located=document.in_order(problems), warnings=warnings)
    config._warnings, config._document = warnings, document  # noqa: SLF001  the only place that makes a validated configuration
    return config


def tenants_of(config: FederationConfig) -> tuple[Tenant, ...]:
    """Return the tenants, parents first; quotas in units, rights inherited where a tenant sets none."""
    return tuple(_tenant(placed) for placed in config.placed_tenants.tenants)


def default_tenant_of(config: FederationConfig) -> TenantPath:
    """Return the default tenant for work without a tenant: the file's first tenant without tenants below it."""
    return _leaves_of(config)[0]


def default_within(config: FederationConfig, *, within: TenantPath) -> TenantPath | None:
    """Return the default tenant among those that a key of the tenant `within` covers (by path); None if there is none."""
    return next((path for path in _leaves_of(config) if may_use((within,), path)), None)


def _leaves_of(config: FederationConfig) -> list[TenantPath]:
    placed = config.placed_tenants.tenants
    parents = {tenant.parent for tenant in placed}
    leaves = [tenant for tenant in placed if tenant.path not in parents]
    if isinstance(config.tenants, tuple):  # The placement orders the list by levels.
        leaves.sort(key=lambda tenant: int(tenant.place[-1]))
    return [tenant.path for tenant in leaves]


def mesh_record_of(config: FederationConfig, mesh: str, *, cluster: str, address: str = "") -> MeshRecord:
    """Return the record with which the mesh joins.

    Args:
        cluster: Ray's id of the cluster.
        address: Ray address of the cluster.

    Raises:
        ConfigError: The configuration has no such mesh.
    """
    section = config.meshes.get(mesh)
    if section is None:
        raise ConfigError(f"there is no mesh {mesh!r} in the configuration; it has {', '.join(sorted(config.meshes))}")
    pools = tuple(
        PoolRecord(
            pool=PoolName(name),
            flavor=FlavorName(pool.flavor),
            capacity=ResourceSet.of(pool.capacity),
            node_labels=dict(pool.node_labels),
            policy=pool.policy,
            groups=_groups_of(pool.groups),
        )
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
        settings=_settings_of(section),
    )


def stage_settings_of(config: FederationConfig) -> dict[MeshId, StageSettings]:
    """Return the settings of each mesh that `apply` changes while the mesh runs."""
    return {MeshId(name): _settings_of(section) for name, section in config.meshes.items()}


def _settings_of(section: MeshSection) -> StageSettings:
    weights, preemption = section.weights, section.preemption
    return StageSettings(
        weights=NodeWeights(
            availability=micros_of(weights.availability),
            fragmentation=micros_of(weights.fragmentation),
            locality=micros_of(weights.locality),
            contention=micros_of(weights.contention),
        ),
        preemption=PreemptionLimits(
            threshold=None if preemption.threshold is None else micros_of(preemption.threshold),
            lost_work_per_s=micros_of(preemption.lost_work_per_s),
            per_minute_max=preemption.per_minute_max,
            protected_pools=tuple(PoolName(name) for name, pool in section.pools.items() if pool.protected),
        ),
        queues={
            tenant: QueueRules(priority=queue.priority, aging_per_s=micros_of(queue.aging_per_s))
            for tenant, queue in section.queues.items()
        },
    )


def configured_meshes_of(config: FederationConfig) -> ConfiguredMeshes:
    """Return the meshes and flavors against which the root checks joining meshes."""
    return ConfiguredMeshes(
        flavors={FlavorName(flavor): dict(section.labels) for flavor, section in config.flavors.items()},
        meshes={MeshId(mesh): mesh_record_of(config, mesh, cluster="") for mesh in config.meshes},
    )


def cost_rules_of(config: FederationConfig) -> CostRules:
    """Return the parameters of the estimates of waiting and transfer."""
    return CostRules(
        bandwidth_bytes_per_s=config.routing.bandwidth_bytes_per_s,
        run_ms_unknown=config.routing.run_time_ms,
        queue_max=config.dispatch.queue_max,
        flavor_delay_ms=config.routing.flavor_delay_ms,
    )


def flap_rules_of(config: FederationConfig) -> FlapRules:
    """Return the probation of meshes that came back."""
    section = config.routing
    return FlapRules(probation_ms=section.probation_ms, probation_ms_max=section.probation_max_ms, window_ms=section.loss_window_ms)


def _without_folder(config: FederationConfig, is_folder: Callable[[str], bool]) -> Iterator[ConfigProblem]:
    for index, path in enumerate(config.import_paths):
        if not is_folder(path):
            text = f"the folder {path} does not exist; paths are relative to the folder of this file"
            yield ConfigProblem(path=("import_paths", index), text=text)


def _groups_of(section: GroupsSection | None) -> GroupPoolSpec | None:
    if section is None:
        return None
    shapes = (GroupShape((ResourceSet.of(entry.amounts),)) for entry in section.reserved for _ in range(entry.count))
    return GroupPoolSpec(
        reserved=tuple(shapes),
        max_dynamic=UNBOUNDED if section.dynamic_max is None else section.dynamic_max,
        min_idle=section.idle_min,
        idle_ms=section.idle_ms,
        reserved_priority=section.reserved_priority,
        warm_agents=False,
    )


def _without_file(config: FederationConfig, is_file: Callable[[str], bool]) -> Iterator[ConfigProblem]:
    """Check the files of secrets, and those of plugins, except of a mesh that joins: they are on its own machine."""
    for name, webhook in config.webhooks.endpoints.items():
        if webhook.secret_file is not None and not is_file(webhook.secret_file):
            text = f"the file {webhook.secret_file} does not exist; paths are relative to the folder of this file"
            yield ConfigProblem(path=("webhooks", "endpoints", name, "secret_file"), text=text)
    for mesh, section in config.meshes.items():
        for name, path in section.plugins.items() if section.link is not MeshLink.JOINS else ():
            if path.endswith(WASM_SUFFIXES) and not is_file(path):
                text = f"the file {path} does not exist; paths are relative to the folder of this file"
                yield ConfigProblem(path=("meshes", mesh, "plugins", name), text=text)


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
