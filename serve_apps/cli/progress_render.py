"""Bars of a run by the names of its nodes. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, RenderResult

from dag.progress.bars import BarLine, bar_lines
from dag.progress.groups import NodeGroup, failed_first
from dag.run.states import NodeState
from serve_apps.cli.output import UNBOUNDED_COLUMNS, Text
from serve_apps.schemas.runs import GroupView

#: Bars that `watch` shows.
BARS_SHOWN = 12


class ProgressBars:
    """Bars as wide as the terminal; in a pipe the same lines without bars.

    Args:
        colours: Style of each state.
    """

    def __init__(self, groups: Sequence[GroupView], colours: dict[str, str]) -> None:
        self._groups = list(map(group_of, groups))
        self._colours = colours

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown = failed_first(self._groups, BARS_SHOWN)
        width = options.max_width if console.is_terminal else UNBOUNDED_COLUMNS
        lines = bar_lines(shown, width, with_bars=console.is_terminal)
        yield from (self._coloured(line, "ellipsis" if console.is_terminal else "ignore") for line in lines)
        if len(self._groups) > len(shown):
            yield Text(f"and {len(self._groups) - len(shown)} more names of nodes", style="dim")

    def _coloured(self, line: BarLine, overflow: str) -> Text:
        return Text(line.text, style=self._colours[line.state.value], no_wrap=True, overflow=overflow)


class ProgressLines:
    """Lines of a run for a log or a pipe: those that have changed since the last look.

    Args:
        console: Where to print.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown: list[str] = []

    def show(self, groups: Sequence[GroupView]) -> None:
        """Print the lines that differ from the last ones."""
        shown = failed_first(list(map(group_of, groups)), BARS_SHOWN)
        lines = [line.text for line in bar_lines(shown, UNBOUNDED_COLUMNS, with_bars=False)]
        for line in lines:
            if line not in self._shown:
                self._console.print(Text(line))
        self._shown = lines


def group_of(view: GroupView) -> NodeGroup:
    """Return the group of a view."""
    counts = {state: view.counts[state.value] for state in NodeState if state.value in view.counts}  # A newer root may know others.
    return NodeGroup(name=view.name, is_array=view.is_array, total=view.total, counts=counts, part=view.part)
