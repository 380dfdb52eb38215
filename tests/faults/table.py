"""Result table of the fault rows, printed at the end: a plugin loaded by tests/conftest.py.

Observations travel with a row's reports, so the table is complete with any number of test processes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

_ROW = re.compile(r"test_fault_(?P<number>\d\d)_(?P<what>\w+)")
_HELD = "held"


@dataclass(frozen=True, slots=True)
class Row:
    """Observations of one row."""

    properties: list[tuple[str, object]]  #: Result of the test, as in its reports.

    def held(self, said: str) -> None:
        """Note an assertion that held."""
        self.properties.append((_HELD, said))


@dataclass(slots=True)
class _Line:
    """Line of the table."""

    seen: list[str] = field(default_factory=list)
    seconds: float = 0.0
    outcome: str = ""

    def add(self, report: pytest.TestReport) -> None:
        """Add a phase: the worst outcome counts, and the latest has all observations."""
        seen = [str(said) for name, said in report.user_properties if name == _HELD]
        self.seen = max(self.seen, seen, key=len)
        self.seconds += report.duration
        if report.failed or not self.outcome:
            self.outcome = report.outcome


@pytest.fixture
def row(request: pytest.FixtureRequest) -> Row:
    """Fixture that collects a row's observations."""
    return Row(request.node.user_properties)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table: row, fault, what held, seconds."""
    lines: dict[str, _Line] = {}
    for report in _reports(terminalreporter):
        lines.setdefault(_name_of(report), _Line()).add(report)
    if not lines:
        return
    terminalreporter.section("faults")
    for name, line in sorted(lines.items()):
        match = _ROW.match(name)
        assert match is not None
        words = "; ".join(line.seen) if line.outcome == "passed" else line.outcome.upper()
        terminalreporter.write_line(f"{match['number']}  {match['what'].replace('_', ' '):<72} {line.seconds:5.1f} s  {words}")


def _reports(terminalreporter: pytest.TerminalReporter) -> Iterator[pytest.TestReport]:
    """Return the reports of all phases of rows."""
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport) and _ROW.match(_name_of(report)):
                yield report


def _name_of(report: pytest.TestReport) -> str:
    return report.nodeid.partition("::")[2]
