"""Changes that people made, as a table and as lines. Pure."""

from __future__ import annotations

from rich.console import RenderableType

from federation.change_log import Outcome
from mesh.core.clock import moment
from serve_apps.cli.output import RoomyTable, Text
from serve_apps.schemas.history import RecordedChangesView, RecordedChangeView

_COLOURS = {Outcome.ALLOWED: "green", Outcome.REFUSED: "yellow", Outcome.FAILED: "red"}


def changes_table(view: RecordedChangesView) -> RenderableType:
    """Render `schedulemesh changes`."""
    if not view.changes:
        return Text("no changes that this key covers")
    table = RoomyTable(box=None, pad_edge=False, header_style="bold")
    for name in ("at", "by", "outcome"):
        table.add_column(name, no_wrap=True)
    table.add_column("what", overflow="fold")
    table.add_column("tenant", overflow="fold", max_width=20)
    table.add_column("target", overflow="fold", max_width=24)
    for change in view.changes:
        what = Text(" ".join((change.operation, *_details(change))))
        table.add_row(Text(moment(change.at_ms)), Text(_by(change)), _outcome(change), what, Text(change.tenant), Text(change.target))
    return table


def change_line(change: RecordedChangeView) -> Text:
    """Return one change as a line."""
    words = (moment(change.at_ms), _by(change), change.operation, change.tenant, change.target, *_details(change))
    return Text.assemble(Text(" ".join(word for word in words if word)), " ", _outcome(change))


def _by(change: RecordedChangeView) -> str:
    return f"{change.user} ({change.key})" if change.user else change.key


def _outcome(change: RecordedChangeView) -> Text:
    return Text(change.code or change.outcome.value, style=_COLOURS.get(change.outcome, ""))


def _details(change: RecordedChangeView) -> list[str]:
    return [f"{name}={text!r}" for name, text in change.details.items()]
