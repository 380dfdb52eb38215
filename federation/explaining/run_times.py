"""Run times and ages of the stages at each mesh."""

from __future__ import annotations

from collections.abc import Mapping

from federation.dispatch import StageAges
from federation.estimates import CostRules, typical_run_ms
from federation.snapshot import MeshView
from mesh.core.ids import MeshId


class RunTimes:
    """Run times on one snapshot.

    Args:
        ages: Ages of the running stages at each mesh; a missing mesh counts as if all began now.
        rules: Assumed run time of a stage while none has ended.
    """

    def __init__(self, meshes: Mapping[MeshId, MeshView], ages: Mapping[MeshId, StageAges], rules: CostRules) -> None:
        paces = {mesh: view.condition.pace for mesh, view in meshes.items()}
        self._run_ms = {mesh: pace.run_ms for mesh, pace in paces.items() if pace is not None}
        self._typical_ms = typical_run_ms(paces.values(), rules)
        self._age_ms = {mesh: age.claimed_ms_min for mesh, age in ages.items()}

    @property
    def is_measured(self) -> bool:
        """A stage has ended somewhere; otherwise every run time is that of the rules."""
        return bool(self._run_ms)

    def run_ms(self, mesh: MeshId) -> int:
        """Return the mean run time at the mesh; before any stage has ended there, that of the other meshes."""
        return self._run_ms.get(mesh, self._typical_ms)

    def age_ms(self, mesh: MeshId) -> int:
        """Return the minimum age of the stages that run there."""
        return self._age_ms.get(mesh, 0)
