"""A day of three teams on two flavors. Start the federation first, then this, from the same folder:

    schedulemesh up configs/three_teams.yaml
    python -m examples.teams.day

At night `nightly`, which owns nothing, borrows all four CPUs. In the morning `speech` takes back what it owns; work of `nightly` gives
way on both meshes, keeps its place, and runs again later. Then `vision` has something urgent. In the evening everybody is done, nothing
was lost, and each piece of the nightly work has counted exactly once. docs/three_teams.md explains every moment.
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
from dag.store.remote import Client, Run
from mesh.errors import MeshError

VISION, SPEECH, NIGHTLY = "acme/vision", "acme/speech", "acme/nightly"
STANDARD, FAST = {"tier": "standard"}, {"tier": "fast"}
WAIT_S = 60.0
ALL_CPUS, OWN_CPUS = 4, 2


def work(seconds: float, number: int) -> int:
    """Something that keeps one CPU for a while; its number, so that nothing can be lost or counted twice unseen."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.05)
    return number


def one(seconds: float, number: int, labels: dict[str, str], priority: int = 0) -> dag.Node:
    """A run of one task on one flavor."""
    return dag.task(work, labels=labels, priority=priority, name="work").bind(seconds, number)


@dataclass
class Day:
    """Submits, waits for moments, and writes down who holds what at each."""

    client: Client
    console: Console
    began: float = field(default_factory=time.monotonic)
    runs: dict[str, list[Run]] = field(default_factory=dict)

    def submit(self, tenant: str, *nodes: dag.Node) -> None:
        """A run for each node."""
        mine = self.runs.setdefault(tenant, [])
        mine += [self.client.submit(node, tenant=tenant, by_value=(sys.modules[work.__module__],)) for node in nodes]

    def held(self) -> dict[str, int]:
        """CPUs that each team holds now, over all meshes and flavors."""
        tenants = self.client.ask("/v1/tenants")["tenants"]
        used = {row["tenant"]: sum(quota["used"]["amount"] for quota in row["quotas"] if quota["resource"] == "cpu") for row in tenants}
        return {team: int(used.get(team, 0)) for team in (VISION, SPEECH, NIGHTLY)}

    def until(self, moment: str, holds: Callable[[dict[str, int]], bool]) -> None:
        """Wait for the moment, and tell it."""
        waiting = Retrying(retry=retry_if_not_result(bool), stop=stop_after_delay(WAIT_S), wait=wait_fixed(0.2))
        waiting(lambda: holds(self.held()))
        self.notify(moment)

    def notify(self, moment: str) -> None:
        """A line: when, what, who holds how much."""
        bars = "  ".join(f"{team.rpartition('/')[2]} {'█' * cpus}{'·' * (ALL_CPUS - cpus)}" for team, cpus in self.held().items())
        self.console.print(f"{time.monotonic() - self.began:5.1f} s  {bars}  {moment}")


def main() -> None:
    """The day, from night to evening."""
    console = Console(highlight=False)
    with dag.connect() as client:
        day = Day(client, console)
        day.submit(NIGHTLY, *(one(8, number, STANDARD if number % 2 else FAST) for number in range(6)))
        day.until("night: nightly owns nothing and borrows everything", lambda held: held[NIGHTLY] == ALL_CPUS)
        time.sleep(2.5)  # It has run for a while: a lease is not taken back in its first seconds.
        day.submit(SPEECH, one(4, 0, STANDARD), one(4, 1, FAST))
        day.until("morning: speech takes back what it owns, on both meshes", lambda held: held[SPEECH] == OWN_CPUS)
        day.submit(VISION, one(2, 0, FAST, priority=9))
        day.until("an urgent job of vision: nightly gives way once more", lambda held: held[VISION] == 1)
        results = {team: sorted(run.result(WAIT_S) for run in runs) for team, runs in day.runs.items()}
        day.until("evening: all is done, everything is given back", lambda held: not any(held.values()))
        _print_runs(day, results)


def _print_runs(day: Day, results: dict[str, list[int]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold", title="\nwhat became of the runs", title_justify="left")
    for column in ("team", "results", "gave way", "because"):
        table.add_column(column, justify="right" if column == "gave way" else "left")
    for team, runs in day.runs.items():
        lost = [event for run in runs for event in run.events() if event.kind == "stage" and event.after == "STOPPED"]
        reasons = ", ".join(sorted({event.reason.value for event in lost if event.reason is not None}))
        table.add_row(team, " ".join(map(str, results[team])), str(len(lost)), reasons)
    day.console.print(table)


if __name__ == "__main__":
    try:
        main()
    except MeshError as reported:
        sys.exit(f"{reported}\nis the federation up? schedulemesh up configs/three_teams.yaml")
    except KeyboardInterrupt:
        sys.exit(130)
