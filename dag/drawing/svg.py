"""SVG of a picture and of a timeline: boxes by level from left to right, bars by mesh from top to bottom."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from xml.sax.saxutils import escape, quoteattr

from dag.drawing.picture import Picture
from dag.drawing.text import words_of
from dag.drawing.timeline import Timeline
from mesh.core.counting import counted

#: Colors of meshes, in the order of their names; light, so that black text is readable.
_COLORS = ("#a6cee3", "#b2df8a", "#fdbf6f", "#cab2d6", "#fb9a99", "#ffff99", "#d9d9d9", "#8dd3c7")
_NO_MESH, _FAILED = "#eeeeee", "#e31a1c"
#: Sizes in pixels.
_BOX, _LEVEL, _ROW, _MARGIN, _HEAD = (190, 34), 260, 48, 20, 56
_BAR, _BAR_WIDTH, _NAME = 14, 900, 120
_LABEL_CHARS, _TITLE_CHARS = 30, 120


def graph_svg(picture: Picture) -> str:
    """Return the picture as SVG: a column for each level, boxes in the color of their mesh."""
    of_level: defaultdict[int, int] = defaultdict(int)
    place: dict[str, tuple[int, int]] = {}
    for box in sorted(picture.boxes, key=lambda box: (box.level, box.mesh, box.label)):
        place[box.id] = (_MARGIN + box.level * _LEVEL, _HEAD + _MARGIN + of_level[box.level] * _ROW)
        of_level[box.level] += 1
    colors = _colors(picture.meshes)
    lines = []
    for source, target, count in picture.arrows:
        (left, top), (right, bottom) = place[source], place[target]
        start, middle = (left + _BOX[0], top + _BOX[1] // 2), (left + _BOX[0] + right) // 2
        end = (right, bottom + _BOX[1] // 2)
        lines.append(
            f'<path d="M{start[0]},{start[1]} C{middle},{start[1]} {middle},{end[1]} {end[0]},{end[1]}" fill="none" stroke="#777" '
            f'stroke-width="{1 if count == 1 else 2}"><title>{escape(counted(count, "edge"))}</title></path>'
        )
    for box in picture.boxes:
        x, y = place[box.id]
        has_failed = any(state in ("FAILED", "CANCELLED") for state, _ in box.states)
        about = " · ".join(part for part in (words_of(box), box.mesh, box.stage) if part)
        lines.append(
            f'<g><title>{escape(about)}</title><rect x="{x}" y="{y}" width="{_BOX[0]}" height="{_BOX[1]}" rx="5" '
            f'fill="{colors.get(box.mesh, _NO_MESH)}" stroke="{_FAILED if has_failed else "#555"}"/>'
            f'<text x="{x + 8}" y="{y + 21}">{escape(_cut(words_of(box), _LABEL_CHARS))}</text></g>'
        )
    width = 2 * _MARGIN + max([x for x, _ in place.values()], default=0) + _BOX[0]
    height = 2 * _MARGIN + max([y for _, y in place.values()], default=_HEAD) + _BOX[1]
    title = f"{picture.title}: {counted(picture.nodes, 'node')}, {counted(picture.edges, 'edge')}"
    return _document(title, width, height, [*_legend(picture.meshes), *lines])


def timeline_svg(timeline: Timeline) -> str:
    """Return the timeline as SVG: a row of bars for each slot that was in use, with seconds below."""
    meshes = tuple(sorted({mesh for mesh, _ in timeline.rows}))
    colors, span_ms = _colors(meshes), max(1, timeline.span_ms)
    lines, before = [], None
    for number, (mesh, row) in enumerate(timeline.rows):
        y = _HEAD + _MARGIN + number * (_BAR + 4)
        if mesh != before:
            lines.append(f'<text x="{_MARGIN}" y="{y + _BAR - 2}">{escape(_cut(mesh or "no mesh", 14))}</text>')
        before = mesh
        for bar in row:
            x = _NAME + bar.start_ms * _BAR_WIDTH / span_ms
            width = max(1.0, (bar.end_ms - bar.start_ms) * _BAR_WIDTH / span_ms)
            about = f"{bar.label}: {bar.start_ms / 1000:g} s to {bar.end_ms / 1000:g} s {bar.state}".strip()
            about = f"{about}, {counted(bar.nodes, 'node')}" if bar.nodes > 1 else about
            stroke = _FAILED if bar.state in ("FAILED", "CANCELLED") else "#555"
            lines.append(
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_BAR}" fill="{colors[mesh]}" stroke="{stroke}" '
                f'stroke-width="0.5"><title>{escape(about)}</title></rect>'
            )
    bottom = _HEAD + 2 * _MARGIN + len(timeline.rows) * (_BAR + 4)
    for part in range(5):
        x = _NAME + part * _BAR_WIDTH // 4
        lines.append(f'<text x="{x}" y="{bottom}" text-anchor="middle">{round(span_ms * part / 4000, 3):g} s</text>')
    return _document(timeline.title, _NAME + _BAR_WIDTH + 2 * _MARGIN, bottom + _MARGIN, [*_legend(meshes), *lines])


def _colors(meshes: Sequence[str]) -> dict[str, str]:
    return {mesh: _COLORS[number % len(_COLORS)] for number, mesh in enumerate(meshes)}


def _legend(meshes: Sequence[str]) -> list[str]:
    lines = []
    for number, (mesh, color) in enumerate(_colors(meshes).items()):
        x = _MARGIN + number * 130
        lines.append(f'<rect x="{x}" y="38" width="12" height="12" fill="{color}" stroke="#555"/>')
        lines.append(f'<text x="{x + 18}" y="49">{escape(_cut(mesh or "no mesh", 14))}</text>')
    return lines


def _document(title: str, width: int, height: int, lines: Iterable[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label={quoteattr(title)} font-family="sans-serif" font-size="11">'
    )
    background = f'<rect width="{width}" height="{height}" fill="white"/>'
    named = f'<text x="{_MARGIN}" y="24" font-size="14">{escape(_cut(title, _TITLE_CHARS))}</text>'
    return "\n".join([head, background, named, *lines, "</svg>"]) + "\n"


def _cut(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[: chars - 1]}…"
