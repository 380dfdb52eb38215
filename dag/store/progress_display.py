"""Bars of a run that a script waits for: redrawn in place on a terminal, and lines of what has changed elsewhere."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TextIO

from dag.progress.bars import WIDTH_USUAL, bar_lines
from dag.progress.groups import NodeGroup, failed_first

#: Bars that are shown.
BARS_SHOWN = 12
#: Seconds between two looks, on a terminal and elsewhere.
LOOK_S, LOG_LOOK_S = 0.5, 5.0
#: Move the cursor up by so many lines, to the first column, and clear what follows.
_UP_AND_CLEAR = "\x1b[{}F\x1b[J"


class ProgressDisplay:
    """Prints the groups of a run.

    Args:
        out: Where to print.
        columns: Width of the terminal; None: that of this process' terminal.
    """

    def __init__(self, out: TextIO, columns: int | None = None) -> None:
        self._out = out
        self._is_terminal = out.isatty()
        self._columns = columns
        self._shown: list[str] = []

    @property
    def look_s(self) -> float:
        """Seconds between two looks at the run."""
        return LOOK_S if self._is_terminal else LOG_LOOK_S

    def show(self, groups: Sequence[NodeGroup]) -> None:
        """Print the groups in place of the last ones; elsewhere than on a terminal print the lines that differ from the last ones."""
        width = self._columns or shutil.get_terminal_size((WIDTH_USUAL, 24)).columns
        shown = failed_first(groups, BARS_SHOWN)
        # A line as wide as the terminal may wrap there.
        lines = [line.text for line in bar_lines(shown, width - 1 if self._is_terminal else width, with_bars=self._is_terminal)]
        if lines == self._shown:
            return
        if self._is_terminal:
            back = _UP_AND_CLEAR.format(len(self._shown)) if self._shown else ""
            self._out.write(back + "".join(f"{line}\n" for line in lines))
        else:
            self._out.write("".join(f"{line}\n" for line in lines if line not in self._shown))
        self._out.flush()
        self._shown = lines
