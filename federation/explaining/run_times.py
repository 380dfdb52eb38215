"""How long stages run at each mesh, and for how long those that run do so already."""

from __future__ import annotations

from collections.abc import Mapping

from federation.dispatch import StageAges
from federation.estimates import CostRules, typical_run_ms
from federation.snapshot import MeshView
from mesh.ids import MeshId


class RunTimes:
    """As of one snapshot.

    Args:
        ages: For how long stages run at each mesh; of a mesh that is not among them, as if all began now.
        rules: What a stage is taken to run where none has ended yet.
    """

    def __init__(self, meshes: Mapping[MeshId, MeshView], ages: Mapping[MeshId, StageAges], rules: CostRules) -> None:
        paces = {mesh: view.standing.pace for mesh, view in meshes.items()}
        self._run_ms = {mesh: pace.run_ms for mesh, pace in paces.items() if pace is not None}
        self._typical_ms = typical_run_ms(paces.values(), rules)
        self._age_ms = {mesh: age.claimed_ms_min for mesh, age in ages.items()}

    @property
    def is_measured(self) -> bool:
        """A stage has ended somewhere; else every run time is that of the rules."""
        return bool(self._run_ms)

    def run_ms(self, mesh: MeshId) -> int:
        """The mean; of a mesh where none has ended yet, that of the others."""
        return self._run_ms.get(mesh, self._typical_ms)

    def age_ms(self, mesh: MeshId) -> int:
        """For how long at least each stage has run that runs there."""
        return self._age_ms.get(mesh, 0)
