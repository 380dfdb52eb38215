"""Start options of a supervisor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mesh.runtime.supervision.driver import DriverSettings
from mesh.runtime.supervision.job_reconciler import JobSettings
from mesh.runtime.supervision.journal_file import LINES_MAX
from mesh.runtime.supervision.observing import ObserverSettings
from mesh.scheduling.settings import SchedulerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorOptions:
    """Start options of one mesh's supervisor."""

    mesh: str
    namespace: str
    state_dir: str
    settings: SchedulerSettings = field(default_factory=SchedulerSettings)
    driver: DriverSettings = field(default_factory=DriverSettings)
    node_labels: Mapping[str, str] = field(default_factory=dict)  #: Labels of this mesh's nodes; empty: all nodes.
    observing: ObserverSettings = field(default_factory=ObserverSettings)
    jobs: JobSettings = field(default_factory=JobSettings)
    plugins: Mapping[str, str] = field(default_factory=dict)  #: By name: `module:attribute`, or a WebAssembly file.
    journal_lines_max: int = LINES_MAX  #: Number of lines after which a snapshot replaces the journal.
    seed: int = 0
