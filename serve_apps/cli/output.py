"""How wide what is printed may be, and tables that use it."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table

#: A pipe has no width: nothing that goes into one is cut short.
PIPE_COLUMNS = 10_000


def console_for(*, stderr: bool = False) -> Console:
    """As wide as `COLUMNS` says; else as the terminal is; else nothing is cut."""
    stream = sys.stderr if stderr else sys.stdout
    is_told = stream.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return Console(highlight=False, stderr=stderr, width=None if is_told else PIPE_COLUMNS)


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
