"""What may stand in a federation file. Meaning across keys is checked in `federation.config.checks`."""

from __future__ import annotations

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
)
from federation.config.sections.section import Section
from federation.config.sections.tenants import Tenants
from federation.config.yaml_source import Document, Path, Problem, dotted
from federation.located import Located


class FederationConfig(Section):
    """What one file describes."""

    _warnings: tuple[Located, ...] = PrivateAttr(default=())
    _document: Document | None = PrivateAttr(default=None)

    federation: FederationSection = Field(description="What holds for the whole federation.")
    redis: RedisSection = Field(default=RedisSection(), description="Where the truth is kept.")
    storage: StorageSection = Field(default=StorageSection(), description="Where large results are kept.")
    root: RootSection = Field(description="Where the root answers.")
    routing: RoutingSection = Field(default=RoutingSection(), description="How a mesh is chosen for a piece of work.")
    dispatch: DispatchSection = Field(
        default=DispatchSection(), description="How much is taken in, how safely, and how often what failed is tried again."
    )
    telemetry: TelemetrySection = Field(default=TelemetrySection(), description="What is told to the outside.")
    import_paths: tuple[str, ...] = Field(
        default=(".",), description="Folders, relative to this file, that functions named in JSON specs are imported from."
    )
    clusters: dict[str, ClusterSection] = Field(min_length=1, description="Ray clusters by name.")
    flavors: dict[str, FlavorSection] = Field(min_length=1, description="Kinds of capacity by name.")
    meshes: dict[str, MeshSection] = Field(min_length=1, description="Scheduling domains by name.")
    quota: RulesSection = Field(default=RulesSection(), description="By which rules quota is given.")
    tenants: Tenants = Field(description="The tenant tree, by name; or a list of tenants that name their parents.")

    @property
    def warnings(self) -> tuple[Located, ...]:
        """What is allowed and yet likely a mistake."""
        return self._warnings

    def told_at(self, path: Path, text: str) -> str:
        """What turned out wrong with a value later on, with its place: `configs/x.yaml:12:5: redis.url: …`."""
        if self._document is None:
            return f"{dotted(path)}: {text}"
        return str(self._document.located(Problem(path=path, text=text)))
