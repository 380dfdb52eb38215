"""Pages of runs, newest first, by filters; the runs are read in batches until a page is full or enough were looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dag.run.runs import NO_LABELS, RunPlace, RunSummary
from dag.run.states import RunState
from mesh.core.ids import TenantPath
from serve_apps.requests.dependencies import Dependencies
from serve_apps.snapshot_cache.waits import with_reasons

#: Runs of one read, if a filter may leave some of them out.
READ_AT_ONCE = 500
#: Most runs that one request looks at. A page may then be short, and its cursor leads on.
LOOKED_AT_MAX = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Runs that a reader wants; an empty or None field wants all."""

    states: frozenset[RunState] = frozenset()
    user: str | None = None
    mesh: str | None = None
    text: str = ""  #: Part of the id, the user, a label or the detail, in any case.
    labels: Mapping[str, str] = field(default_factory=lambda: NO_LABELS)
    since_ms: int = 0

    @property
    def is_open(self) -> bool:
        """Return whether the filter wants all runs that have its labels."""
        return not (self.states or self.user is not None or self.mesh is not None or self.text)

    def wants(self, run: RunSummary) -> bool:
        """Return whether the reader wants the run; labels and time are checked by the caller."""
        return (
            (not self.states or run.state in self.states)
            and self.user in (None, run.user)
            and (self.mesh is None or self.mesh in run.meshes)
            and (not self.text or self.text.casefold() in _words_of(run))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage:
    """Runs of one request."""

    runs: Sequence[RunSummary]
    last: RunPlace | None  #: Place after which the list goes on; None: this is its end.


def run_page(ports: Dependencies, tenants: Sequence[TenantPath], wanted: RunFilter, below: RunPlace | None, limit: int) -> RunPage:
    """Return up to `limit` wanted runs of the tenants and the tenants below them, after the place `below`."""
    found: list[RunSummary] = []
    count = limit + 1 if wanted.is_open else READ_AT_ONCE
    for _ in range(0, LOOKED_AT_MAX, count):
        listed = [run for path in tenants for run in ports.runs.list(path, count, wanted.labels, below=below)]
        batch = sorted(listed, key=lambda run: run.place, reverse=True)[:count]
        recent = [run for run in batch if run.created_ms >= wanted.since_ms]
        for run in with_reasons(recent, ports.waits):  # The reason may decide whether a run is blocked.
            if wanted.wants(run):
                found.append(run)
            if len(found) > limit:
                return RunPage(runs=found[:limit], last=found[limit - 1].place)
        if len(batch) < count or len(recent) < len(batch):
            return RunPage(runs=found, last=None)
        below = batch[-1].place
    return RunPage(runs=found, last=below)


def _words_of(run: RunSummary) -> str:
    labels = [f"{name}={value}" for name, value in run.labels.items()]
    return "\n".join((run.run, run.user, run.detail, *labels)).casefold()
