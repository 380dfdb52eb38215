"""Calls about how the mesh does."""

from __future__ import annotations

from pathlib import Path

from rich.panel import Panel

from mesh.runtime.supervision.answers import (
    Audit,
    MeshNews,
)
from mesh.runtime.supervision.charts import draw_page, figures_panel
from mesh.runtime.supervision.checked_calls import checked
from mesh.runtime.supervision.mesh_calls import MeshCalls
from mesh.scheduling.figures import Figures, Targets


@checked()
class FigureCalls(MeshCalls):
    """Figures, pictures of them, news, and the audit."""

    def figures(self) -> Figures:
        """The six figures of seed §6.2, and what stands beside them."""
        figures: Figures = self._link.ask("figures")
        return figures

    def figures_history(self) -> list[Figures]:
        """The figures once per metrics period, of the last two hours at the most; the last ones are of now."""
        history: list[Figures] = self._link.ask("figures_history")
        return history

    def chart(self, path: str | Path, *, targets: Targets | None = None) -> None:
        """Draw the figures into a picture; its name ends in `.png`, `.svg` or `.pdf`.

        Raises:
            ChartsMissing: matplotlib is not installed.
            RuntimeDoorError: The picture cannot be written.
        """
        draw_page(self.figures_history(), Path(path), mesh=self.name, targets=targets)

    def panel(self, *, targets: Targets | None = None) -> Panel:
        """The figures as a panel with sparklines for the terminal: `rich.print(mesh.panel())`."""
        return figures_panel(self.figures_history(), mesh=self.name, targets=targets)

    def events(self) -> list[MeshNews]:
        """What those who look after the mesh should know, oldest first: plugins that are fenced off, settings that were tuned,
        alarms, states that were lost, how jobs go. The last thousand, since the supervisor started; of what an earlier one told
        only the plugins that it had fenced off."""
        news: list[MeshNews] = self._link.ask("news")
        return news

    def audit(self) -> Audit:
        """What is not as it should be, in the ledgers and in Ray; nothing is the rule."""
        found: Audit = self._link.ask("audit")
        return found
