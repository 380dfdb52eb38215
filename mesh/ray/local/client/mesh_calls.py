"""Calls about the mesh as a whole: status, settings, metrics, events and audit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rich.panel import Panel

from mesh.core.ids import LabelName
from mesh.observability.metric_targets import MetricsSnapshot, Targets
from mesh.ray.local.client.charts import draw_page, metrics_panel
from mesh.ray.local.client.checked_calls import check_not_below_zero, checked
from mesh.ray.local.client.supervisor_link import SupervisorLink
from mesh.ray.local.status_values import MeshAudit, MeshEvent, MeshStatus
from mesh.ray.local.verbs import MeshVerbs
from mesh.tasks.events import LabelConfigured


@checked()
class MeshCalls:
    """Calls about the mesh as a whole."""

    def __init__(self, link: SupervisorLink) -> None:
        self._link = link

    def status(self) -> MeshStatus:
        """Return the status of the whole mesh."""
        return self._link.ask(MeshVerbs.status)

    def change_settings(self, /, **settings: float) -> None:
        """Change numbers of `SchedulerSettings`; name a nested field with two underscores: `weights__availability=2.0`.

        Raises:
            SubmissionError: A value is not a number, or a count or duration is negative.
            SettingError: There is no such setting.
        """
        for name, value in settings.items():
            check_not_below_zero(name, value)
        self._link.ask(MeshVerbs.change_settings, {name.replace("__", "."): value for name, value in settings.items()})

    def configure_label(
        self,
        label: str,
        *,
        priority: float = 0.0,
        aging_per_s: float | None = None,
        weights: Mapping[str, float] | None = None,
        policy: str = "",
    ) -> None:
        """Configure how one label's queue is ordered (`P_label`, ageing) and how its tasks are placed."""
        self._link.ask(
            MeshVerbs.configure_label,
            LabelConfigured(
                at_ms=0, label=LabelName(label), priority=priority, aging_per_s=aging_per_s, weights=dict(weights or {}), policy=policy
            ),
        )

    def metrics(self) -> MetricsSnapshot:
        """Return the current metrics."""
        return self._link.ask(MeshVerbs.metrics)

    def metrics_history(self) -> list[MetricsSnapshot]:
        """Return the metrics once per metrics period, for the last two hours at most; the last entry is current."""
        return self._link.ask(MeshVerbs.metrics_history)

    def chart(self, path: str | Path, *, targets: Targets | None = None) -> None:
        """Draw the metrics into a file with suffix `.png`, `.svg` or `.pdf`.

        Raises:
            ChartsMissing: matplotlib is not installed.
            RuntimeAdapterError: The file cannot be written.
        """
        draw_page(self.metrics_history(), Path(path), mesh=self._link.mesh, targets=targets)

    def panel(self, *, targets: Targets | None = None) -> Panel:
        """Return the metrics as a panel with sparklines for the terminal: `rich.print(mesh.panel())`."""
        return metrics_panel(self.metrics_history(), mesh=self._link.mesh, targets=targets)

    def events(self) -> list[MeshEvent]:
        """Return events for operators, oldest first: disabled plugins, tuned settings, alarms, lost states, changes of jobs.

        Up to a thousand events since the supervisor started; of an earlier supervisor, only the disabled plugins.
        """
        return self._link.ask(MeshVerbs.recent_events)

    def audit(self) -> MeshAudit:
        """Return violations in the ledgers and in Ray; normally there are none."""
        return self._link.ask(MeshVerbs.audit)
