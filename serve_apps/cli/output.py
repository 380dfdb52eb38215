"""The terminal: all that is printed passes here, so that no text of a tenant is an order to it.

`Text` and the console show unprintable characters escaped, and read no markup in any string: what is bold is a `Text` that says so.
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

from mesh.printable import escaped, escaped_json

#: A pipe has no width: nothing that goes into one is cut short.
PIPE_COLUMNS = 10_000


def console_for(*, stderr: bool = False) -> Console:
    """As wide as `COLUMNS` says; else as the terminal is; else nothing is cut."""
    stream = sys.stderr if stderr else sys.stdout
    is_told = stream.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return SafeConsole(stderr=stderr, width=None if is_told else PIPE_COLUMNS)


def print_json(document: str) -> None:
    """Print a JSON document for programs."""
    typer.echo(escaped_json(document))


class Text(rich.text.Text):
    """rich's, of text that anybody may have written."""

    def __init__(self, text: str = "", style: str | Style = "", **options: Any) -> None:
        super().__init__(escaped(text), style, **options)

    @classmethod
    def assemble(cls, *parts: str | rich.text.Text | tuple[str, StyleType], **options: Any) -> Text:
        """See `rich.text.Text`."""
        return cast("Text", super().assemble(*parts, **options))

    def join(self, lines: Iterable[rich.text.Text]) -> Text:
        """See `rich.text.Text`."""
        return cast("Text", super().join(lines))

    def append(self, text: rich.text.Text | str, style: str | Style | None = None) -> Text:
        """See `rich.text.Text`."""
        super().append(escaped(text) if isinstance(text, str) else text, style)
        return self


class SafeConsole(Console):
    """rich's, where a string is nothing but its characters.

    Args:
        options: As rich's.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> rich.text.Text:
        """As rich asks for it, of every string that it prints."""
        return super().render_str(escaped(text), **options)


class RoomyTable(Table):
    """A table whose columns keep to their `max_width` only where it would be too wide without."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """As rich asks for it."""
        narrow = self.columns
        self.columns = [replace(column, max_width=None) for column in narrow]
        try:
            if Measurement.get(console, options.update(width=PIPE_COLUMNS), self).maximum > options.max_width:
                self.columns = narrow
            yield from super().__rich_console__(console, options)
        finally:
            self.columns = narrow
