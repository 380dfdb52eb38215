"""A day of three teams on two flavors. Start the federation first, then this, from the same folder:

    schedulemesh up configs/three_teams.yaml
    python -m examples.teams.day

At night `nightly`, which has no quota, borrows all four CPUs. In the morning `speech` reclaims its own quota: work of `nightly` is
preempted on both meshes, returns to its position in the queue, and runs again later. Then `vision` submits an urgent run. In the evening
all runs have ended, and each piece of the nightly work has counted exactly once. docs/three_teams.md explains every moment.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table
from tenacity import Retrying, retry_if_not_result, stop_after_delay, wait_fixed

import dag
from mesh.errors import MeshError

VISION, SPEECH, NIGHTLY = "acme/vision", "acme/speech", "acme/nightly"
STANDARD, FAST = {"tier": "standard"}, {"tier": "fast"}
WAIT_S = 60.0
ALL_CPUS, OWN_CPUS = 4, 2


def work(seconds: float, number: int) -> int:
    """Occupy one CPU for a while, and return the number: a lost or repeated result would show."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.05)
    return number


def one(seconds: float, number: int, labels: dict[str, str], priority: int = 0) -> dag.Node:
    """Return a graph of one task on one flavor."""
    return dag.task(work, labels=labels, priority=priority, name="work").bind(seconds, number)


@dataclass
class Day:
    """Submits runs, waits for moments, and prints each team's use at each."""

    client: dag.Client
    console: Console
    began: float = field(default_factory=time.monotonic)
    runs: dict[str, list[dag.Run]] = field(default_factory=dict)

    def submit(self, tenant: str, *nodes: dag.Node) -> None:
        """Submit a run for each node."""
        mine = self.runs.setdefault(tenant, [])
        mine += [self.client.submit(node, tenant=tenant, by_value=(sys.modules[work.__module__],)) for node in nodes]

    def held(self) -> dict[str, int]:
        """Return the CPUs that each team uses now, over all meshes and flavors."""
        tenants = self.client.ask("/v1/tenants")["tenants"]
        used = {row["tenant"]: sum(quota["used"]["amount"] for quota in row["quotas"] if quota["resource"] == "cpu") for row in tenants}
        return {team: int(used.get(team, 0)) for team in (VISION, SPEECH, NIGHTLY)}

    def until(self, moment: str, holds: Callable[[dict[str, int]], bool]) -> None:
        """Wait for the moment, and print it."""
        waiting = Retrying(retry=retry_if_not_result(bool), stop=stop_after_delay(WAIT_S), wait=wait_fixed(0.2))
        waiting(lambda: holds(self.held()))
        self.print_moment(moment)

    def print_moment(self, moment: str) -> None:
        """Print a line: time, each team's use, moment."""
        bars = "  ".join(f"{team.rpartition('/')[2]} {'█' * cpus}{'·' * (ALL_CPUS - cpus)}" for team, cpus in self.held().items())
        self.console.print(f"{time.monotonic() - self.began:5.1f} s  {bars}  {moment}")


def main() -> None:
    """Run the day, from night to evening."""
    console = Console(highlight=False)
    with dag.connect() as client:
        day = Day(client, console)
        day.submit(NIGHTLY, *(one(8, number, STANDARD if number % 2 else FAST) for number in range(6)))
        day.until("night: nightly has no quota and borrows everything", lambda held: held[NIGHTLY] == ALL_CPUS)
        time.sleep(2.5)  # Longer than `quota.min_run`: younger work is not preempted.
        day.submit(SPEECH, one(4, 0, STANDARD), one(4, 1, FAST))
        day.until("morning: speech reclaims its own quota, on both meshes", lambda held: held[SPEECH] == OWN_CPUS)
        day.submit(VISION, one(2, 0, FAST, priority=9))
        day.until("an urgent run of vision: nightly is preempted once more", lambda held: held[VISION] == 1)
        results = {team: sorted(run.result(WAIT_S) for run in runs) for team, runs in day.runs.items()}
        day.until("evening: all runs have ended, all quota is free", lambda held: not any(held.values()))
        _print_runs(day, results)


def _print_runs(day: Day, results: dict[str, list[int]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold", title="\nresults", title_justify="left")
    for column in ("team", "results", "preempted", "reasons"):
        table.add_column(column, justify="right" if column == "preempted" else "left")
    for team, runs in day.runs.items():
        stopped = [event for run in runs for event in run.events() if event.kind == "stage" and event.after == "STOPPED"]
        reasons = ", ".join(sorted({event.reason.value for event in stopped if event.reason is not None}))
        table.add_row(team, " ".join(map(str, results[team])), str(len(stopped)), reasons)
    day.console.print(table)


if __name__ == "__main__":
    try:
        main()
    except MeshError as error:
        sys.exit(f"{error}\nis the federation up? schedulemesh up configs/three_teams.yaml")
    except KeyboardInterrupt:
        sys.exit(130)
