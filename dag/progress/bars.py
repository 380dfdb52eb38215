"""Groups of nodes as lines of text: `train   37/100  ######----------  1 failed, 4 running`. No line is wider than asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dag.progress.groups import NodeGroup
from dag.run.states import NodeState
from mesh.core.printable import escaped

#: Columns of a bar, and of a terminal of unknown width.
BAR_WIDTH, WIDTH_USUAL = 16, 80
#: Least columns of a name before the bars become shorter.
_NAME_MIN = 12
#: States that a line names beside what has succeeded, the worst first.
_NAMED: Mapping[NodeState, str] = {
    NodeState.FAILED: "failed",
    NodeState.CANCELLED: "cancelled",
    NodeState.SKIPPED: "skipped",
    NodeState.BLOCKED: "blocked",
    NodeState.RUNNING: "running",
}


class BarLine(NamedTuple):
    """A line, with the state whose colour it has."""

    text: str
    state: NodeState


def bar_lines(groups: Sequence[NodeGroup], width: int = WIDTH_USUAL, *, with_bars: bool = True) -> list[BarLine]:
    """Return a line for each group, none wider than `width`; without bars for a file or a pipe."""
    if not groups:
        return []
    names = [escaped(group.name) for group in groups]
    counts = [_count(group) for group in groups]
    room = max(len(count) for count in counts)
    bar = min(BAR_WIDTH, max(0, width - _NAME_MIN - room - 4)) if with_bars else 0
    name_width = max(1, min(max(map(len, names)), max(_NAME_MIN, width // 3), width - room - bar - 4))
    lines = []
    for group, name, count in zip(groups, names, counts, strict=True):
        parts = [_cut(name, name_width).ljust(name_width), count.rjust(room), *([_bar(group, bar)] if bar else []), _rest(group)]
        lines.append(BarLine(_cut("  ".join(part for part in parts if part), width).rstrip(), _state(group)))
    return lines


def _count(group: NodeGroup) -> str:
    done = group.counts.get(NodeState.SUCCEEDED, 0)
    return f"{done}/?" if group.total is None else f"{done}/{group.total}"


def _bar(group: NodeGroup, width: int) -> str:
    filled = int(width * min(1.0, group.done / group.total)) if group.total else 0
    return "#" * filled + "-" * (width - filled)


def _rest(group: NodeGroup) -> str:
    words = [f"{group.counts[state]} {word}" for state, word in _NAMED.items() if group.counts.get(state)]
    if group.total == 1 and not group.is_array:
        words = [word.removeprefix("1 ") for word in words]
        words += [f"{group.part:.0%}"] if group.part else []
    return ", ".join(words)


def _state(group: NodeGroup) -> NodeState:
    named = next((state for state in _NAMED if group.counts.get(state)), None)
    if named is not None:
        return named
    return NodeState.SUCCEEDED if group.has_ended else NodeState.WAITING


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
