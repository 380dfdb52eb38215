"""Start options of a supervisor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mesh.ray.local.store.journal_file import LINES_MAX
from mesh.ray.local.supervisor.driver import DriverSettings
from mesh.ray.local.supervisor.job_reconciler import JobSettings
from mesh.ray.local.supervisor.observing import ObserverSettings
from mesh.tasks.settings import SchedulerSettings


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
    #: Time that a supervisor that could not start, or was stopped, still answers. The client ends it earlier, unless it is gone.
    farewell_s: float = 60.0
    #: Time after which a supervisor that was up, died and could not start is ended, so that Ray starts the next one: the fault may be
    #: transient.
    again_s: float = 5.0
