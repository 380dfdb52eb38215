"""Use by day, tenant, user and flavor as a table, and as lines for spreadsheets. Pure."""

from __future__ import annotations

import csv
import io

from rich.console import Group, RenderableType

from mesh.core.counting import counted
from mesh.core.printable import escaped
from serve_apps.cli.output import RoomyTable, Text
from serve_apps.schemas.tenants import UsageRowView, UsageView

COLUMNS = ("day", "tenant", "user", "flavor")
AMOUNTS = ("used", "borrowed", "lost")
#: First characters that a spreadsheet takes for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_NOTE = (
    "used: what stages held, times hours; borrowed: the part beyond the tenant's own quota; lost: work that preemptions ended, since its "
    "last checkpoint"
)


def usage_table(view: UsageView) -> RenderableType:
    """Render `schedulemesh usage`."""
    if not view.rows:
        return Text(f"nothing was used from {view.first} to {view.last}")
    shown = [name for name in COLUMNS if any(getattr(row, name) is not None for row in view.rows)]
    table = RoomyTable(box=None, pad_edge=False, header_style="bold")
    for name in shown:
        table.add_column(name, overflow="fold", max_width=26)
    for name in ("resource", ""):
        table.add_column(name, no_wrap=True)
    for name in AMOUNTS:
        table.add_column(name, justify="right", no_wrap=True)
    for row in view.rows:
        table.add_row(*(Text(_shown(getattr(row, name))) for name in shown), *_cells(row))
    for place, row in enumerate(view.total if len(view.rows) > len(view.total) else ()):
        table.add_row(Text("total" if place == 0 else ""), *(Text() for _ in shown[1:]), *_cells(row), style="bold")
    notes = [Text(f"{view.first} to {view.last}, UTC; {_NOTE}", style="dim")]
    if view.left_out:
        notes.append(Text(f"{counted(view.left_out, 'report')} found no room while no coordinator ran, and count nowhere", style="yellow"))
    return Group(table, *notes)


def _shown(value: object) -> str:
    return "" if value is None else str(value) or "(none)"


def _cells(row: UsageRowView) -> tuple[Text, ...]:
    return Text(row.resource), Text(row.unit), *(Text(_hours(getattr(row, name))) for name in AMOUNTS)


def _hours(amount: float) -> str:
    """Return hours with as many digits as a bill needs; `<0.001` for what rounds to nothing."""
    shown = f"{amount:.3f}"
    return "<0.001" if amount and not float(shown) else shown if amount else "0"


def usage_lines(view: UsageView) -> str:
    """Return the rows as CSV with a header, all columns in each line.

    Names that a spreadsheet would take for a formula begin with an apostrophe, since tenants choose the names of their users.
    """
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow((*COLUMNS, "resource", "unit", *AMOUNTS))
    for row in view.rows:
        names = [_harmless(getattr(row, name)) for name in (*COLUMNS, "resource", "unit")]
        lines.writerow((*names, *(_exact(getattr(row, name)) for name in AMOUNTS)))
    return out.getvalue()


def _exact(amount: float) -> str:
    return f"{amount:.9f}".rstrip("0").rstrip(".") or "0"


def _harmless(value: object) -> str:
    text = "" if value is None else escaped(str(value))
    return f"'{text}" if text.startswith(_FORMULA) else text
