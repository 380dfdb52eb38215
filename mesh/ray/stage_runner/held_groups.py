"""Placement groups of a runner's stages: those in use, and those of retired slots that the host has not taken back yet."""

from __future__ import annotations

import threading
from collections.abc import Collection

from mesh.core.ids import StageId
from mesh.ray.placement import SlotGroup

Groups = tuple[SlotGroup, ...]


class HeldGroups:
    """Groups by stage. Safe to use from several threads."""

    def __init__(self) -> None:
        self._used: dict[StageId, Groups] = {}
        self._free: dict[StageId, Groups] = {}
        self._guard = threading.Lock()

    def add(self, stage: StageId, groups: Groups) -> None:
        """Add groups that the stage uses from now on."""
        with self._guard:
            self._used[stage] = self._used.get(stage, ()) + groups

    def free(self, stage: StageId, ids: Collection[str]) -> None:
        """Record that the stage uses these groups no more, by Ray's ids."""
        with self._guard:
            groups = self._used.get(stage, ())
            self._used[stage] = tuple(group for group in groups if group.hex_id not in ids)
            self._free[stage] = self._free.get(stage, ()) + tuple(group for group in groups if group.hex_id in ids)

    def take_free(self, stage: StageId) -> Groups:
        """Return the groups that the stage uses no more, once: another stage may have them afterwards."""
        with self._guard:
            return self._free.pop(stage, ())

    def drop(self, stage: StageId) -> None:
        """Forget the groups of an ended stage: the host returns them."""
        with self._guard:
            self._used.pop(stage, None)
            self._free.pop(stage, None)

    def used(self) -> dict[StageId, Groups]:
        """Return the groups that stages use."""
        with self._guard:
            return {stage: groups for stage, groups in self._used.items() if groups}
