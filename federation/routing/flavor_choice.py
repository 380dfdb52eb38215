"""Choice of the flavor, if several would do: the tenant's order, `on_borrow`, `on_preempt` and `prefer`.

The search is that of `federation.quota.flavors`, on routing's knowledge of meshes instead of one quota snapshot:

    there is quota and room                                             fit; the level says how far up it borrows
    own quota covers it, and borrowers hold that quota there            reclaim
    otherwise                                                           it waits, and flavors do not decide

Source: ADR 0026; Kueue `scheduler/flavorassigner`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from federation.quota.flavors import WORST, Grade, Mode, goes_on, is_better
from federation.quota.policies import QueueSettings
from mesh.core.ids import FlavorName


class Graded(NamedTuple):
    """A flavor, and its grade at the mesh where it does best."""

    flavor: FlavorName
    grade: Grade


def search(offers: Iterable[Graded], settings: QueueSettings) -> Graded | None:
    """Return the flavor to take; None if the work would wait for any of them.

    Args:
        offers: Grades from the meshes, in any order; a flavor may come several times.
    """
    preference = settings.fungibility.preference
    best_of: dict[FlavorName, Grade] = {}
    for flavor, grade in offers:
        if flavor not in best_of or is_better(grade, best_of[flavor], preference):
            best_of[flavor] = grade
    best = Graded(FlavorName(""), WORST)
    for flavor in in_order(best_of, settings):
        tried = Graded(flavor, best_of[flavor])
        if not goes_on(tried.grade, settings.fungibility):
            return tried
        if is_better(tried.grade, best.grade, preference):
            best = tried
    return best if best.grade.mode > Mode.NO_RECLAIM_CANDIDATES else None


def in_order(flavors: Iterable[FlavorName], settings: QueueSettings) -> list[FlavorName]:
    """Return the flavors in the order of the search; flavors that the file does not name come last, by name."""
    ranks = {flavor: rank for rank, flavor in enumerate(settings.flavors)}
    return sorted(flavors, key=lambda flavor: (ranks.get(flavor, len(ranks)), flavor))


def words_of(taken: Graded, passed: Graded) -> str:
    """Explain why this flavor was taken and not that of the next best mesh."""
    if taken.grade.mode is Mode.RECLAIM:
        return f"the tenant's own quota of flavor {taken.flavor} is reclaimed from borrowers"
    if passed.grade.mode is Mode.RECLAIM:
        return f"flavor {taken.flavor} has room, and {passed.flavor} would need a reclaim"
    if passed.grade.mode is not Mode.FIT:
        return f"flavor {taken.flavor} has room, and for {passed.flavor} it would wait"
    if taken.grade.level < passed.grade.level:
        return f"flavor {taken.flavor} needs less borrowing than {passed.flavor}"
    return f"flavor {taken.flavor} is tried before {passed.flavor}"
