"""Terminal output. Everything printed passes through here, so that no tenant's text can control the terminal.

`Text` and the console escape unprintable characters and interpret no markup in strings; bold text is an explicit `Text`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

import rich.text
import typer
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.style import Style, StyleType
from rich.table import Table

from mesh.core.printable import escaped, escaped_json

#: A pipe has no width: text that goes into a pipe is not cut.
PIPE_COLUMNS = 10_000


def console_for(*, stderr: bool = False) -> Console:
    """Return a console as wide as `COLUMNS` or the terminal; without either, lines are not cut."""
    stream = sys.stderr if stderr else sys.stdout
    has_width = stream.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return SafeConsole(stderr=stderr, width=None if has_width else PIPE_COLUMNS)


def print_json(document: str) -> None:
    """Print a JSON document."""
    typer.echo(escaped_json(document))


class Text(rich.text.Text):
    """rich's `Text` with unprintable characters escaped, for text from any user."""

    def __init__(self, text: str = "", style: str | Style = "", **options: Any) -> None:
        super().__init__(escaped(text), style, **options)

    @classmethod
    def assemble(cls, *parts: str | rich.text.Text | tuple[str, StyleType], **options: Any) -> Text:
        return cast("Text", super().assemble(*parts, **options))

    def join(self, lines: Iterable[rich.text.Text]) -> Text:
        return cast("Text", super().join(lines))

    def append(self, text: rich.text.Text | str, style: str | Style | None = None) -> Text:
        super().append(escaped(text) if isinstance(text, str) else text, style)
        return self


class SafeConsole(Console):
    """rich's `Console` without markup, emoji codes and highlighting in strings.

    Args:
        options: Options of rich's `Console`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> rich.text.Text:
        """Return the string as plain, escaped `Text`. rich calls this for every string that it prints."""
        return super().render_str(escaped(text), **options)


class RoomyTable(Table):
    """Table that limits columns to their `max_width` only if it would otherwise be too wide."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        narrow = self.columns
        self.columns = [replace(column, max_width=None) for column in narrow]
        try:
            if Measurement.get(console, options.update(width=PIPE_COLUMNS), self).maximum > options.max_width:
                self.columns = narrow
            yield from super().__rich_console__(console, options)
        finally:
            self.columns = narrow
