"""Terminal output. Everything printed passes through here, so that no tenant's text can control the terminal.

`Text` and the console escape unprintable characters and interpret no markup in strings; bold text is an explicit `Text`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from typing import Any, cast

import rich.text
import typer
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.measure import Measurement
from rich.style import Style, StyleType
from rich.table import Column, Table

from mesh.core.printable import escaped, escaped_json

#: Exit code after Ctrl-C, by shell convention.
INTERRUPTED = 130
#: Width at which every table fits.
UNBOUNDED_COLUMNS = 10_000


def console_for(*, stderr: bool = False) -> Console:
    """Return a console as wide as `COLUMNS` or the terminal of this process; without either, 80 columns."""
    return SafeConsole(stderr=stderr)


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

    def print(self, *objects: Any, **options: Any) -> None:
        """Print; in a pipe, text is whole lines, however long, also beside tables: scripts read ids in it, people search it."""
        if self.is_terminal:
            super().print(*objects, **options)
        elif all(isinstance(each, str | rich.text.Text) for each in objects):
            super().print(*map(_whole, objects), **{"soft_wrap": True, **options})
        elif any(isinstance(each, Group) for each in objects):
            for part in chain.from_iterable(each.renderables if isinstance(each, Group) else (each,) for each in objects):
                self.print(part, **options)
        else:
            super().print(*objects, **{"crop": False, **options})

    def render_str(self, text: str, **options: Any) -> rich.text.Text:
        """Return the string as plain, escaped `Text`. rich calls this for every string that it prints."""
        return super().render_str(escaped(text), **options)


def _whole(text: str | rich.text.Text) -> str | rich.text.Text:
    """Return the text without a rule of its own to cut it."""
    if isinstance(text, rich.text.Text):
        text = text.copy()
        text.overflow = text.no_wrap = None
    return text


class RoomyTable(Table):
    """Table that limits columns to their `max_width` only if it would otherwise be too wide. In a pipe it folds cells and cuts none."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = self.columns
        self.columns = [replace(column, max_width=None) for column in columns]
        try:
            if not self._fits(console, options):
                self.columns = columns if console.is_terminal else self._uncut(columns, console, options)
            yield from super().__rich_console__(console, options)
        finally:
            self.columns = columns

    def _fits(self, console: Console, options: ConsoleOptions) -> bool:
        return Measurement.get(console, options.update(width=UNBOUNDED_COLUMNS), self).maximum <= options.max_width

    def _uncut(self, columns: list[Column], console: Console, options: ConsoleOptions) -> list[Column]:
        """Return columns that fold what they would cut: those that may be cut, or all if the whole ones need too much room."""
        some = [_folded(column) if column.max_width else column for column in columns]
        self.columns = [column if column.no_wrap else replace(column, max_width=1) for column in some]
        return some if self._fits(console, options) else list(map(_folded, columns))


def _folded(column: Column) -> Column:
    return replace(column, overflow="fold", no_wrap=False) if column.no_wrap or column.overflow == "ellipsis" else column
