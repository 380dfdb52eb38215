"""Whether a mesh stays: one that was lost and came back gets nothing new until it has been there for a while.

A mesh that comes and goes costs more than one that is away: whatever it is given is lost, and computed again elsewhere.
So its return is believed late, and later each time: `probation_ms` after the first loss, twice that after the second within
`window_ms`, and so on up to `probation_ms_max`. Losses older than the window are forgotten, so trust comes back by itself.

    first seen ──► there ──lost──► away ──back──► on probation ──steady_ms──► there
                     └─ left in good order, or lost with everybody ─► away, excused ──back──► there

Two things are no fault of the mesh. Who leaves in good order is not lost. And when whoever watches was away itself, or
when every mesh (two at least) is lost in one look, it was most likely the store or the watcher's own network.

A probation never gets shorter once it is told: not by a decay, not by an excuse, not by another return.

Source: exponential probation and decay as BGP's route flap damping (RFC 2439) and Envoy's outlier ejection; loss as durable
state that a restart of the watcher does not forget, from MultiKueue's issues; "the arbiter was away" from Armada #315.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from mesh.ids import MeshId

#: Losses that are kept of one mesh; more of them double the probation no further than `probation_ms_max` anyway.
LOSSES_KEPT = 16
#: Who looks less often than this was away, and blames nobody for what changed meanwhile.
WATCH_GAP_MS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadinessRules:
    """How long a mesh that came back is on probation."""

    probation_ms: int = 5_000  #: After the first loss within the window; 0: never on probation.
    probation_ms_max: int = 600_000  #: However often it was lost.
    window_ms: int = 1_800_000  #: Losses older than this are forgotten.

    def probation_of(self, losses: int) -> int:
        """The probation in ms after so many losses within the window; at least one."""
        return min(self.probation_ms_max, self.probation_ms << min(max(0, losses - 1), 2 * LOSSES_KEPT))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """A mesh as the ledger shows it at one look."""

    incarnation: int
    alive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Steadiness:
    """What is remembered of a mesh's comings and goings. Times are of the store's clock, ms since the epoch."""

    incarnation: int  #: Of the session that was seen last.
    alive: bool
    excused: bool = False  #: It is away, and its return costs nothing.
    losses_ms: tuple[int, ...] = ()  #: When it was found lost, oldest first; those within the window of the last one.
    back_ms: int = 0  #: When it was found back; 0: it was never away.
    steady_ms: int = 0  #: It gets nothing new before this; 0: it was never on probation.

    def remaining_ms(self, now_ms: int) -> int:
        """How much longer it is on probation; 0 when it is steady."""
        return max(0, self.steady_ms - now_ms)

    def losses_within(self, window_ms: int, now_ms: int) -> int:
        """How often it was found lost in the last `window_ms`."""
        return len(_recent(self.losses_ms, window_ms, now_ms))


def watch(
    known: Mapping[MeshId, Steadiness], seen: Mapping[MeshId, Sighting], *, now_ms: int, watched_ms: int, rules: SteadinessRules
) -> dict[MeshId, Steadiness]:
    """What is known after one look at all meshes. Pure; a look that shows nothing new changes nothing.

    Args:
        known: After the look before; a mesh that has left stays in it.
        seen: By the ledger now; a mesh that is not in it has left in good order, or never joined.
        watched_ms: When somebody last looked; 0: never.
    """
    was_away = now_ms - watched_ms > WATCH_GAP_MS
    lost = {mesh for mesh, sighting in seen.items() if mesh in known and _is_loss(known[mesh], sighting)}
    present = {mesh for mesh, kept in known.items() if kept.alive and mesh in seen}
    excused = was_away or (len(present) > 1 and lost == present)
    after = {mesh: _leave(_reanchored(kept, now_ms)) for mesh, kept in known.items() if mesh not in seen}
    for mesh, sighting in seen.items():
        kept = known.get(mesh)
        if kept is None:
            after[mesh] = _meet(sighting, now_ms, excused=was_away)
        else:
            after[mesh] = _look(_reanchored(kept, now_ms), sighting, now_ms, rules, excused=excused)
    return after


def changed(before: Mapping[MeshId, Steadiness], after: Mapping[MeshId, Steadiness]) -> dict[MeshId, Steadiness]:
    """What of `after` is new, to be written down."""
    return {mesh: kept for mesh, kept in after.items() if before.get(mesh) != kept}


def _is_loss(kept: Steadiness, sighting: Sighting) -> bool:
    return kept.alive and (not sighting.alive or sighting.incarnation != kept.incarnation)


def _meet(sighting: Sighting, now_ms: int, *, excused: bool) -> Steadiness:
    """A mesh that is seen for the first time; one that is away then was lost before anybody looked."""
    if sighting.alive or excused:
        return Steadiness(incarnation=sighting.incarnation, alive=sighting.alive, excused=not sighting.alive)
    return Steadiness(incarnation=sighting.incarnation, alive=False, losses_ms=(now_ms,))


def _leave(kept: Steadiness) -> Steadiness:
    """It is gone from the ledger. Who was lost before stays lost: a late good-bye excuses nothing."""
    return replace(kept, alive=False, excused=True) if kept.alive else kept


def _look(kept: Steadiness, sighting: Sighting, now_ms: int, rules: SteadinessRules, *, excused: bool) -> Steadiness:
    if _is_loss(kept, sighting):
        losses = kept.losses_ms if excused else (*_recent(kept.losses_ms, rules.window_ms, now_ms), now_ms)[-LOSSES_KEPT:]
        kept = replace(kept, alive=False, excused=excused, losses_ms=losses)
    if sighting.alive and not kept.alive:
        probation_ms = 0 if kept.excused else rules.probation_of(kept.losses_within(rules.window_ms, now_ms))
        steady_ms = max(kept.steady_ms, now_ms + probation_ms) if probation_ms else kept.steady_ms
        return replace(kept, incarnation=sighting.incarnation, alive=True, excused=False, back_ms=now_ms, steady_ms=steady_ms)
    return replace(kept, incarnation=sighting.incarnation)


def _recent(losses_ms: Iterable[int], window_ms: int, now_ms: int) -> tuple[int, ...]:
    return tuple(at_ms for at_ms in losses_ms if now_ms - window_ms <= at_ms <= now_ms)


def _reanchored(kept: Steadiness, now_ms: int) -> Steadiness:
    """The store's clock fell back behind what it said before: the probation is counted from now, else it might last for years."""
    if now_ms >= kept.back_ms:
        return kept
    return replace(kept, back_ms=now_ms, steady_ms=now_ms + max(0, kept.steady_ms - kept.back_ms))
