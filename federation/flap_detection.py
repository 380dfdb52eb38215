"""Flap detection: a mesh that was lost and came back gets nothing new until its probation ends.

A flapping mesh costs more than an absent one, because work sent to it is lost and repeated elsewhere. So the probation grows with each
loss: `probation_ms` after the first loss, twice that after the second within `window_ms`, and so on up to `probation_ms_max`. Losses
older than the window are forgotten.

    first seen ──► there ──lost──► away ──back──► on probation ──stable_ms──► there
                     └─ left in order, or lost with all others ─► away, excused ──back──► there

Two cases are excused. A mesh that leaves in order is not lost. If the watcher itself was away, or if every mesh (two at least) is lost in
one look, the cause was most likely the store or the watcher's network.

A probation never gets shorter: no decay, excuse or return ends it early.

Source: exponential probation and decay as in BGP's route flap damping (RFC 2439) and Envoy's outlier ejection; losses that survive a
restart of the watcher, from MultiKueue's issues; the excuse for an absent watcher from Armada #315.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from mesh.core.ids import MeshId

#: Losses kept per mesh; `probation_ms_max` is reached before more losses would matter.
LOSSES_KEPT = 16
#: A watcher with a longer gap between looks was away, and excuses all changes meanwhile.
WATCH_GAP_MS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FlapRules:
    """Probation of meshes that came back."""

    probation_ms: int = 5_000  #: After the first loss within the window; 0: never on probation.
    probation_ms_max: int = 600_000  #: Upper limit, whatever the number of losses.
    window_ms: int = 1_800_000  #: Losses older than this are forgotten.

    def probation_of(self, losses: int) -> int:
        """Return the probation in ms after this many losses within the window; zero losses count as one."""
        return min(self.probation_ms_max, self.probation_ms << min(max(0, losses - 1), 2 * LOSSES_KEPT))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """A mesh as the ledger shows it at one look."""

    incarnation: int
    alive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FlapHistory:
    """Presence of a mesh over time. Times are on the store's clock, ms since the epoch."""

    incarnation: int  #: Incarnation of the session that was seen last.
    alive: bool
    excused: bool = False  #: Absent, and its return causes no probation.
    losses_ms: tuple[int, ...] = ()  #: When losses were seen, oldest first, within the window of the last one.
    back_ms: int = 0  #: When its return was seen; 0: it was never away.
    stable_ms: int = 0  #: End of the probation; 0: it was never on probation.

    def remaining_ms(self, now_ms: int) -> int:
        """Return the rest of the probation, ms; 0 if there is none."""
        return max(0, self.stable_ms - now_ms)

    def losses_within(self, window_ms: int, now_ms: int) -> int:
        """Return the number of losses in the last `window_ms`."""
        return len(_recent(self.losses_ms, window_ms, now_ms))


def watch(
    known: Mapping[MeshId, FlapHistory], seen: Mapping[MeshId, Sighting], *, now_ms: int, watched_ms: int, rules: FlapRules
) -> dict[MeshId, FlapHistory]:
    """Return the presence of all meshes after one look. Pure; a look that finds nothing new changes nothing.

    Args:
        known: Result of the look before; meshes that have left stay in it.
        seen: Meshes in the ledger now; a missing mesh has left in order, or never joined.
        watched_ms: When a coordinator last looked; 0: never.
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


def changed(before: Mapping[MeshId, FlapHistory], after: Mapping[MeshId, FlapHistory]) -> dict[MeshId, FlapHistory]:
    """Return the entries of `after` that changed."""
    return {mesh: kept for mesh, kept in after.items() if before.get(mesh) != kept}


def _is_loss(kept: FlapHistory, sighting: Sighting) -> bool:
    return kept.alive and (not sighting.alive or sighting.incarnation != kept.incarnation)


def _meet(sighting: Sighting, now_ms: int, *, excused: bool) -> FlapHistory:
    """Describe a mesh that is seen for the first time; an absent one was lost before the first look."""
    if sighting.alive or excused:
        return FlapHistory(incarnation=sighting.incarnation, alive=sighting.alive, excused=not sighting.alive)
    return FlapHistory(incarnation=sighting.incarnation, alive=False, losses_ms=(now_ms,))


def _leave(kept: FlapHistory) -> FlapHistory:
    """Describe a mesh that the ledger does not list any more. A lost mesh stays lost: a late leave excuses nothing."""
    return replace(kept, alive=False, excused=True) if kept.alive else kept


def _look(kept: FlapHistory, sighting: Sighting, now_ms: int, rules: FlapRules, *, excused: bool) -> FlapHistory:
    if _is_loss(kept, sighting):
        losses = kept.losses_ms if excused else (*_recent(kept.losses_ms, rules.window_ms, now_ms), now_ms)[-LOSSES_KEPT:]
        kept = replace(kept, alive=False, excused=excused, losses_ms=losses)
    if sighting.alive and not kept.alive:
        probation_ms = 0 if kept.excused else rules.probation_of(kept.losses_within(rules.window_ms, now_ms))
        stable_ms = max(kept.stable_ms, now_ms + probation_ms) if probation_ms else kept.stable_ms
        return replace(kept, incarnation=sighting.incarnation, alive=True, excused=False, back_ms=now_ms, stable_ms=stable_ms)
    return replace(kept, incarnation=sighting.incarnation)


def _recent(losses_ms: Iterable[int], window_ms: int, now_ms: int) -> tuple[int, ...]:
    return tuple(at_ms for at_ms in losses_ms if now_ms - window_ms <= at_ms <= now_ms)


def _reanchored(kept: FlapHistory, now_ms: int) -> FlapHistory:
    """Restart the probation now if the store's clock fell back; otherwise the probation might last for years."""
    if now_ms >= kept.back_ms:
        return kept
    return replace(kept, back_ms=now_ms, stable_ms=now_ms + max(0, kept.stable_ms - kept.back_ms))
