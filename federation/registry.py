"""Registry of meshes: drains, settings, flap detection and run times. It outlives sessions, which the ledger keeps.

Only operators write drains and settings. Only coordinators write flap detection and run times. The two never write the same field. A
coordinator that writes after another has written since its read is refused, and reads again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from federation.configured_meshes import NO_CONFIGURED_MESHES, ConfiguredMeshes
from federation.estimates import Pace, paced
from federation.flap_detection import FlapHistory, FlapRules, Sighting, changed, watch
from federation.mesh_conditions import NEWCOMER, Drain, MeshCondition
from federation.snapshot import AbsentMesh, FederationSnapshot, MeshRecord, Whereabouts
from federation.stage_metrics import StageMetrics
from mesh.core.ids import MeshId
from mesh.stages.stage_settings import StageSettings

NO_STAGE_METRICS = StageMetrics()
#: Least time between two notes that only say that a coordinator watches, ms.
NOTE_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshConditions:
    """The whole registry at one instant."""

    meshes: dict[MeshId, MeshCondition] = field(default_factory=dict)
    watched_ms: int = 0  #: When a coordinator last noted that it watches; 0: never.
    version: int = 0  #: Increases with each note.
    stage_metrics: StageMetrics = NO_STAGE_METRICS  #: As a coordinator noted them last.


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryNote:
    """Observations of a coordinator, to be stored."""

    watched_ms: int
    flap_history: dict[MeshId, FlapHistory] = field(default_factory=dict)  #: Only meshes that changed.
    paces: dict[MeshId, Pace] = field(default_factory=dict)  #: Only meshes that changed.
    stage_metrics: StageMetrics | None = None  #: None: as noted before.


class PublishedSettings(Protocol):
    """Part of the registry that a mesh reads."""

    def settings_of(self, mesh: MeshId) -> StageSettings | None:
        """Return the settings as `MeshRegistry.settings_of`. Raises StoreUnavailable."""


class MeshRegistry(Protocol):
    """Port of the registry; every method is atomic and safe to repeat. All methods raise StoreUnavailable."""

    def drain(self, mesh: MeshId, drain: Drain) -> None:
        """Stop new work for the mesh. A later drain replaces an earlier one."""

    def undrain(self, mesh: MeshId) -> bool:
        """Remove the drain; return False if there was none."""

    def publish_settings(self, settings: Mapping[MeshId, StageSettings]) -> None:
        """Replace the settings of all meshes; meshes without an entry follow their own records."""

    def settings_of(self, mesh: MeshId) -> StageSettings | None:
        """Return the published settings of the mesh; None: there are none."""

    def conditions(self) -> MeshConditions:
        """Return the whole registry."""

    def note(self, note: RegistryNote, version: int) -> bool:
        """Store the observations if `version` is still current; otherwise return False and store nothing."""


def enrolled(
    snapshot: FederationSnapshot, conditions: MeshConditions, configured_meshes: ConfiguredMeshes = NO_CONFIGURED_MESHES
) -> FederationSnapshot:
    """Return the snapshot with each mesh's stored condition, and with known meshes that have no session.

    Settings alone make no mesh known: `apply` publishes those of a mesh that only the next `up` starts.
    """
    known = {mesh for mesh, kept in conditions.meshes.items() if replace(kept, settings=None) != NEWCOMER}
    views = tuple(replace(view, condition=conditions.meshes.get(view.record.mesh, NEWCOMER)) for view in snapshot.meshes)
    away = (configured_meshes.meshes.keys() | known) - {view.record.mesh for view in snapshot.meshes}
    absent = tuple(_absent(mesh, conditions.meshes.get(mesh, NEWCOMER), configured_meshes) for mesh in sorted(away))
    return replace(snapshot, meshes=views, absent=absent)


def _absent(mesh: MeshId, condition: MeshCondition, configured_meshes: ConfiguredMeshes) -> AbsentMesh:
    """Describe a mesh without a session. The ledger forgets a mesh that leaves in order, perhaps before a coordinator notes it."""
    seen = condition.flap_history
    was_lost = seen is not None and not seen.alive and not seen.excused
    whereabouts = Whereabouts.NOT_JOINED if seen is None else Whereabouts.LOST if was_lost else Whereabouts.LEFT
    record = configured_meshes.meshes.get(mesh) or MeshRecord(mesh=mesh, labels={}, pools=(), cluster="")
    return AbsentMesh(record=record, whereabouts=whereabouts, condition=condition)


def observe(
    snapshot: FederationSnapshot, conditions: MeshConditions, run_times_ms: Mapping[MeshId, tuple[int, ...]], rules: FlapRules
) -> tuple[MeshConditions, RegistryNote | None]:
    """Return the registry after a look at the ledger, and the note to store; None: there is nothing to store. Pure.

    Args:
        run_times_ms: Run times of stages that have ended since the last look, by mesh.
    """
    known = {mesh: kept.flap_history for mesh, kept in conditions.meshes.items() if kept.flap_history is not None}
    seen = {view.record.mesh: Sighting(incarnation=view.incarnation, alive=view.alive) for view in snapshot.meshes}
    after = watch(known, seen, now_ms=snapshot.at_ms, watched_ms=conditions.watched_ms, rules=rules)
    paces = {mesh: _paced(conditions.meshes.get(mesh, NEWCOMER).pace, took) for mesh, took in run_times_ms.items() if took}
    meshes = {
        mesh: replace(kept, flap_history=after.get(mesh), pace=paces.get(mesh, kept.pace))
        for mesh in conditions.meshes.keys() | after.keys() | paces.keys()
        for kept in (conditions.meshes.get(mesh, NEWCOMER),)
    }
    updates = changed(known, after)
    is_due = not 0 <= snapshot.at_ms - conditions.watched_ms < NOTE_MS
    note = RegistryNote(watched_ms=snapshot.at_ms, flap_history=updates, paces=paces) if updates or paces or is_due else None
    return replace(conditions, meshes=meshes), note


def _paced(pace: Pace | None, took_ms: tuple[int, ...]) -> Pace:
    for each_ms in took_ms:
        pace = paced(pace, each_ms)
    if pace is None:
        raise ValueError("no run times")
    return pace
