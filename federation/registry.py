"""The registry of meshes: which are drained, how steady each is, how fast. The ledger says who is there; this says how to take it.

Sessions come and go with processes; what stands here does not. A drain is written by a person and by nobody else; steadiness
and pace are written by whoever coordinates. The two never touch the same field, and of two coordinators the one that read
before the other wrote is refused and looks again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from federation.estimates import Pace, paced
from federation.roster import NO_ROSTER, Roster
from federation.snapshot import AbsentMesh, MeshRecord, Snapshot, Whereabouts
from federation.standing import NEWCOMER, Drain, Standing
from federation.steadiness import Sighting, Steadiness, SteadinessRules, changed, watch
from mesh.ids import MeshId

#: That somebody looked is written down this often; more often nobody needs to know.
NOTE_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Standings:
    """The whole registry at one instant."""

    meshes: dict[MeshId, Standing] = field(default_factory=dict)
    watched_ms: int = 0  #: When a coordinator last noted that it looks; 0: never.
    version: int = 0  #: Counted up by each note.


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What a coordinator has seen, to be written down."""

    watched_ms: int
    steadiness: dict[MeshId, Steadiness] = field(default_factory=dict)  #: Those that changed.
    paces: dict[MeshId, Pace] = field(default_factory=dict)  #: The same.


class MeshRegistry(Protocol):
    """The port; every method is atomic, and safe to repeat. Raises (all): StoreUnavailable."""

    def drain(self, mesh: MeshId, drain: Drain) -> None:
        """From now on the mesh gets nothing new. Drained already: the later word counts."""

    def undrain(self, mesh: MeshId) -> bool:
        """Take the drain back; False when there was none."""

    def standings(self) -> Standings:
        """All that is remembered."""

    def note(self, note: Note, version: int) -> bool:
        """Write down what was seen, if nobody has since `standings` gave this `version`; False (and nothing done) when somebody has."""


def enrolled(snapshot: Snapshot, standings: Standings, roster: Roster = NO_ROSTER) -> Snapshot:
    """The snapshot with what is remembered of each mesh, and with those that are known and not there."""
    views = tuple(replace(view, standing=standings.meshes.get(view.record.mesh, NEWCOMER)) for view in snapshot.meshes)
    away = (roster.meshes.keys() | standings.meshes.keys()) - {view.record.mesh for view in snapshot.meshes}
    absent = tuple(_absent(mesh, standings.meshes.get(mesh, NEWCOMER), roster) for mesh in sorted(away))
    return replace(snapshot, meshes=views, absent=absent)


def _absent(mesh: MeshId, standing: Standing, roster: Roster) -> AbsentMesh:
    """The ledger forgets at once whoever leaves in good order; nobody may have looked since, to note it."""
    seen = standing.steadiness
    was_lost = seen is not None and not seen.alive and not seen.excused
    whereabouts = Whereabouts.NOT_JOINED if seen is None else Whereabouts.LOST if was_lost else Whereabouts.LEFT
    record = roster.meshes.get(mesh) or MeshRecord(mesh=mesh, labels={}, pools=(), cluster="")
    return AbsentMesh(record=record, whereabouts=whereabouts, standing=standing)


def look(
    snapshot: Snapshot, standings: Standings, run_times_ms: Mapping[MeshId, tuple[int, ...]], rules: SteadinessRules
) -> tuple[Standings, Note | None]:
    """What is known after a look at the ledger, and what of it is to be written down; None when nothing is. Pure.

    Args:
        run_times_ms: How long stages ran that have ended since the last look, by mesh.
    """
    known = {mesh: kept.steadiness for mesh, kept in standings.meshes.items() if kept.steadiness is not None}
    seen = {view.record.mesh: Sighting(incarnation=view.incarnation, alive=view.alive) for view in snapshot.meshes}
    after = watch(known, seen, now_ms=snapshot.at_ms, watched_ms=standings.watched_ms, rules=rules)
    paces = {mesh: _paced(standings.meshes.get(mesh, NEWCOMER).pace, took) for mesh, took in run_times_ms.items() if took}
    meshes = {
        mesh: Standing(drain=kept.drain, steadiness=after.get(mesh), pace=paces.get(mesh, kept.pace))
        for mesh in standings.meshes.keys() | after.keys() | paces.keys()
        for kept in (standings.meshes.get(mesh, NEWCOMER),)
    }
    news = changed(known, after)
    is_due = not 0 <= snapshot.at_ms - standings.watched_ms < NOTE_MS
    note = Note(watched_ms=snapshot.at_ms, steadiness=news, paces=paces) if news or paces or is_due else None
    return replace(standings, meshes=meshes), note


def _paced(pace: Pace | None, took_ms: tuple[int, ...]) -> Pace:
    for each_ms in took_ms:
        pace = paced(pace, each_ms)
    if pace is None:
        raise ValueError("no run times")
    return pace
