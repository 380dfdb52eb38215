"""Model of a federation file. `federation.config.checks` checks across keys."""

from __future__ import annotations

from functools import cached_property

from pydantic import Field, PrivateAttr

from federation.config.sections.meshes import ClusterSection, FlavorSection, MeshSection
from federation.config.sections.quota import RulesSection
from federation.config.sections.root import (
    DispatchSection,
    FederationSection,
    RedisSection,
    RootSection,
    RoutingSection,
    StorageSection,
    TelemetrySection,
    WebhooksSection,
)
from federation.config.sections.section import Section
from federation.config.sections.tenants import Tenants
from federation.config.tenant_paths import PlacedTenants, place_tenants
from federation.config.yaml_source import ConfigProblem, Document, Path, dotted
from federation.file_problems import FileProblem


class FederationConfig(Section):
    """Content of a federation file."""

    _warnings: tuple[FileProblem, ...] = PrivateAttr(default=())
    _document: Document | None = PrivateAttr(default=None)

    federation: FederationSection = Field(description="Settings of the whole federation.")
    redis: RedisSection = Field(default=RedisSection(), description="Redis, the store of the federation's state.")
    storage: StorageSection = Field(default=StorageSection(), description="Storage of large results.")
    root: RootSection = Field(description="HTTP address and cluster of the root.")
    routing: RoutingSection = Field(default=RoutingSection(), description="Choice of the mesh for each stage.")
    dispatch: DispatchSection = Field(default=DispatchSection(), description="Limits of submissions, their durability, and retries.")
    telemetry: TelemetrySection = Field(default=TelemetrySection(), description="Export of traces.")
    webhooks: WebhooksSection = Field(default=WebhooksSection(), description="Calls to other services when runs end.")
    import_paths: tuple[str, ...] = Field(
        default=(".",), description="Folders, relative to this file, from which functions in JSON specs are imported."
    )
    clusters: dict[str, ClusterSection] = Field(min_length=1, description="Ray clusters by name.")
    flavors: dict[str, FlavorSection] = Field(min_length=1, description="Kinds of capacity by name.")
    meshes: dict[str, MeshSection] = Field(min_length=1, description="Scheduling domains by name.")
    quota: RulesSection = Field(default=RulesSection(), description="Rules of quota.")
    tenants: Tenants = Field(description="The tenant tree, by name; or a list of tenants that name their parents.")

    @cached_property
    def placed_tenants(self) -> PlacedTenants:
        """All tenants with their paths and parents; the tree, its settings and its checks read this one value."""
        return place_tenants(self.tenants)

    @property
    def warnings(self) -> tuple[FileProblem, ...]:
        """Allowed settings that are likely mistakes."""
        return self._warnings

    def message_at(self, path: Path, text: str) -> str:
        """Return a message about a value that failed later, with its place: `configs/x.yaml:12:5: redis.url: …`."""
        return str(self.problem_at(path, text))

    def problem_at(self, path: Path, text: str) -> FileProblem:
        """Return the problem of a value that failed later, with its place."""
        if self._document is None:
            return FileProblem(source=dotted(path), message=text)
        return self._document.located(ConfigProblem(path=path, text=text))
