"""Calls about metrics, mesh events and the audit."""

from __future__ import annotations

from pathlib import Path

from rich.panel import Panel

from mesh.observability.metric_targets import MetricValues, Targets
from mesh.ray.local.client.charts import draw_page, metrics_panel
from mesh.ray.local.client.checked_calls import checked
from mesh.ray.local.client.mesh_calls import MeshCalls
from mesh.ray.local.status_values import MeshAudit, MeshEvent
from mesh.ray.local.verbs import MeshVerbs


@checked()
class MetricCalls(MeshCalls):
    """Calls that return metrics, charts, mesh events, and the audit."""

    def metric_values(self) -> MetricValues:
        """Return the current metrics."""
        return self._link.ask(MeshVerbs.metric_values)

    def metrics_history(self) -> list[MetricValues]:
        """Return the metrics once per metrics period, for the last two hours at most; the last entry is current."""
        return self._link.ask(MeshVerbs.metrics_history)

    def chart(self, path: str | Path, *, targets: Targets | None = None) -> None:
        """Draw the metrics into a file with suffix `.png`, `.svg` or `.pdf`.

        Raises:
            ChartsMissing: matplotlib is not installed.
            RuntimeAdapterError: The file cannot be written.
        """
        draw_page(self.metrics_history(), Path(path), mesh=self.name, targets=targets)

    def panel(self, *, targets: Targets | None = None) -> Panel:
        """Return the metrics as a panel with sparklines for the terminal: `rich.print(mesh.panel())`."""
        return metrics_panel(self.metrics_history(), mesh=self.name, targets=targets)

    def events(self) -> list[MeshEvent]:
        """Return events for operators, oldest first: disabled plugins, tuned settings, alarms, lost states, changes of jobs.

        Up to a thousand events since the supervisor started; of an earlier supervisor, only the disabled plugins.
        """
        return self._link.ask(MeshVerbs.recent_events)

    def audit(self) -> MeshAudit:
        """Return violations in the ledgers and in Ray; normally there are none."""
        return self._link.ask(MeshVerbs.audit)
