"""Beds for the rows, and the table that is printed when they are over."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from faults.bed import LAB, Bed
from faults.nursery import Nursery
from faults.server import Server

_ROW = re.compile(r"test_fault_(?P<number>\d\d)_(?P<what>\w+)")


@dataclass(slots=True)
class Row:
    """What a row has seen, for the table."""

    name: str
    seen: list[str] = field(default_factory=list)
    seconds: float = 0.0
    outcome: str = ""

    def held(self, said: str) -> None:
        """Note what held, after it was asserted."""
        self.seen.append(said)


_ROWS: dict[str, Row] = {}


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """Everything that starts processes."""
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture
def row(request: pytest.FixtureRequest) -> Row:
    """For the table."""
    return _ROWS.setdefault(request.node.nodeid, Row(request.node.name))


@pytest.fixture
def make_bed(tmp_path: Path, nursery: Nursery, row: Row) -> Iterator[Callable[..., Bed]]:
    """Make the row's bed: tenants with their slots, by default `lab` with two. It is judged when the row is over."""
    beds: list[Bed] = []

    def make(server: Server | None = None, limits: dict[str, int] | None = None, **quota: int) -> Bed:
        beds.append(Bed(tmp_path, nursery, quota=quota or {LAB: 2}, limits=limits, server=server))
        return beds[-1]

    yield make
    for bed in beds:
        bed.close()


@pytest.fixture
def bed(make_bed: Callable[..., Bed]) -> Bed:
    """Two slots of one tenant, and a root."""
    return make_bed()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A Redis of its own."""
    server = Server(tmp_path / "redis")
    yield server
    server.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    """Measure the row with its bed."""
    since = time.monotonic()
    done = yield
    if item.nodeid in _ROWS:
        _ROWS[item.nodeid].seconds = time.monotonic() - since
    return done


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """The worst of the phases counts."""
    if report.nodeid in _ROWS and (report.failed or not _ROWS[report.nodeid].outcome):
        _ROWS[report.nodeid].outcome = report.outcome


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The table: row, fault, what held, seconds."""
    rows = [(match, row) for row in _ROWS.values() if (match := _ROW.match(row.name))]
    if not rows:
        return
    terminalreporter.section("faults")
    for match, row in sorted(rows, key=lambda found: found[1].name):
        told = "; ".join(row.seen) if row.outcome == "passed" else row.outcome.upper()
        terminalreporter.write_line(f"{match['number']}  {match['what'].replace('_', ' '):<72} {row.seconds:5.1f} s  {told}")
