"""Mermaid of a picture, and plain text of a picture and of a timeline for a terminal."""

from __future__ import annotations

from dag.drawing.picture import Box, Picture
from dag.drawing.timeline import Bar, Timeline
from mesh.core.counting import counted

#: Columns of a timeline, if the caller knows no width.
COLUMNS = 80
#: Fewest columns of its bars.
_BARS_MIN = 8
_NAME_WIDTH = 14
#: Signs of what the root does itself.
_SIGNS = {"cond": "◇ ", "sleep": "◷ ", "wait_signal": "✉ "}
#: Brackets of a box in Mermaid: a rhombus decides, the others have round ends.
_SHAPES = {"cond": ("{", "}"), "sleep": ("([", "])"), "wait_signal": ("([", "])")}


def words_of(box: Box) -> str:
    """Return what a box says: its label, the number of its nodes, and their states."""
    label = f"{box.count:,} {box.label}" if box.count > 1 else box.label
    label = f"{_SIGNS.get(box.control, '')}{label}"
    states = ", ".join(state if count == box.count else f"{state} {count:,}" for state, count in box.states)
    return f"{label} ({states})" if states else label


def mermaid(picture: Picture) -> str:
    """Return the picture as a Mermaid flowchart, with a subgraph for each mesh."""
    numbers = {box.id: f"n{number}" for number, box in enumerate(picture.boxes)}
    lines = ["flowchart LR"]
    for mesh in (*picture.meshes, ""):
        boxes = [box for box in picture.boxes if box.mesh == mesh]
        indent = "    " if mesh else ""
        lines += [f'    subgraph mesh_{picture.meshes.index(mesh)}["{_quoted(mesh)}"]'] if mesh else []
        for box in boxes:
            stage = f"<br/>{_quoted(box.stage)}" if box.stage else ""
            begin, end = _SHAPES.get(box.control, ("[", "]"))
            lines.append(f'    {indent}{numbers[box.id]}{begin}"{_quoted(words_of(box))}{stage}"{end}')
        lines += ["    end"] if mesh else []
    for source, target, count in picture.arrows:
        label = f"|{count:,}|" if count > 1 else ""
        lines.append(f"    {numbers[source]} -->{label} {numbers[target]}")
    return "\n".join(lines) + "\n"


def plain(picture: Picture) -> str:
    """Return the picture as lines: the boxes of each level, with their mesh and stage."""
    lines = [f"{picture.title}: {counted(picture.nodes, 'node')}, {counted(picture.edges, 'edge')}"]
    for level in sorted({box.level for box in picture.boxes}):
        lines.append(f"level {level}")
        for box in picture.boxes:
            if box.level == level:
                where = " ".join(part for part in (box.mesh and f"on {box.mesh}", box.stage and f"in {box.stage}") if part)
                lines.append(f"  {words_of(box)}{f'  {where}' if where else ''}")
    return "\n".join(lines) + "\n"


def bars(timeline: Timeline, columns: int = COLUMNS) -> str:
    """Return the timeline as lines of a terminal, with `█` where a bar runs; the rows fit into the columns, and cut long labels."""
    labels = [_row_words(row) for _, row in timeline.rows]
    label_width = min(max(map(len, labels), default=0), columns // 3)
    width = max(_BARS_MIN, columns - _NAME_WIDTH - len("││ ") - label_width)
    lines = [f"{timeline.title}: {timeline.span_ms / 1000:g} s"]
    before = None
    for (mesh, row), label in zip(timeline.rows, labels, strict=True):
        cells = [" "] * width
        for bar in row:
            first, last = _columns(bar, timeline.span_ms, width)
            cells[first : last + 1] = ["▒" if bar.state in ("FAILED", "CANCELLED") else "█"] * (last + 1 - first)
        name = mesh if mesh != before else ""
        lines.append(f"{name[:_NAME_WIDTH]:{_NAME_WIDTH}}│{''.join(cells)}│ {_cut(label, label_width)}")
        before = mesh
    return "\n".join(lines) + "\n"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _row_words(row: tuple[Bar, ...]) -> str:
    first = row[0]
    if len(row) > 1:
        return counted(sum(bar.nodes for bar in row), "node")
    return f"{first.label} ({counted(first.nodes, 'node')})" if first.nodes > 1 else first.label


def _columns(bar: Bar, span_ms: int, width: int) -> tuple[int, int]:
    """Return the first and last column of a bar; each bar has one at least."""
    span_ms = max(1, span_ms)
    first = min(width - 1, bar.start_ms * width // span_ms)
    return first, max(first, min(width - 1, (bar.end_ms * width - 1) // span_ms))


def _quoted(text: str) -> str:
    """Return text that Mermaid shows as it is."""
    return "".join(f"#{ord(letter)};" if letter in '"#<>&`[]{}()|' else letter for letter in text)
