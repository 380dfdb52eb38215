"""Rendering of use: a table for people, lines for spreadsheets."""

import csv
import io
from datetime import date

import pytest

from serve_apps.cli.output import SafeConsole
from serve_apps.cli.usage_render import usage_lines, usage_table
from serve_apps.schemas.tenants import UsageRowView, UsageView


def a_row(**fields) -> UsageRowView:
    return UsageRowView(**{"resource": "cpu", "unit": "h", "used": 1.5, "borrowed": 0.0, "lost": 0.00001, **fields})


def view(*rows) -> UsageView:
    return UsageView(at_ms=1, first=date(2026, 11, 1), last=date(2026, 11, 30), rows=list(rows), total=[a_row(used=4.5)])


def printed(renderable) -> str:
    console = SafeConsole(file=io.StringIO(), width=100, color_system=None)
    console.print(renderable)
    return console.file.getvalue()


def test_a_table_shows_the_columns_that_differ():
    shown = printed(usage_table(view(a_row(tenant="acme", user=""), a_row(tenant="rival", user="bob"))))
    assert shown.split("\n")[0].split() == ["tenant", "user", "resource", "used", "borrowed", "lost"]
    assert "acme    (none)" in shown
    assert "total" in shown
    assert "4.500" in shown
    assert "<0.001" in shown


def test_a_table_of_nothing_says_so():
    assert "nothing was used from 2026-11-01 to 2026-11-30" in printed(usage_table(view()))


def test_lines_have_all_columns_and_exact_amounts():
    lines = list(csv.reader(io.StringIO(usage_lines(view(a_row(day=date(2026, 11, 2), tenant="acme", used=1 / 3))))))
    assert lines == [
        ["day", "tenant", "user", "flavor", "resource", "unit", "used", "borrowed", "lost"],
        ["2026-11-02", "acme", "", "", "cpu", "h", "0.333333333", "0", "0.00001"],
    ]


@pytest.mark.parametrize("user", ["=1+1", "+1", "-1", "@x", "\t=1"])
def test_no_name_is_a_formula(user):
    (_, line) = csv.reader(io.StringIO(usage_lines(view(a_row(user=user)))))
    assert line[2][0] in "'\\"
