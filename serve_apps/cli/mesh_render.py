"""Meshes for a terminal: a table if it fits, else a few lines per mesh. Pure; words break only if longer than a line."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table

from mesh.core.clock import clock_time
from serve_apps.cli.output import Text
from serve_apps.cli.render import duration
from serve_apps.schemas.meshes import AbsentEntry, MeshEntry, MeshesView, PoolView

#: Widths at which states, labels and pools wrap; the second ones if the table is too wide with the first.
_WIDTHS = ((24, 24, 32), (16, 1, 1))
#: Width without a limit.
_ANY_WIDTH = 10_000
_INDENT = 2


def meshes_table(view: MeshesView) -> RenderableType:
    """Render `schedulemesh meshes`."""
    if not view.meshes:
        return Text("no mesh that this key may use has joined")
    return _Meshes(view)


def beside_the_table(view: MeshesView) -> Iterator[str]:
    """Yield the lines below the table: differences from the root's file, and absent meshes."""
    yield from (f"warning: {mesh.mesh}: {words}" for mesh in view.meshes for words in mesh.warnings)
    for state, words, remedy in _AWAY:
        names = [_absent_name(mesh) for mesh in view.absent if mesh.state == state]
        if names:
            yield f"{words}: {', '.join(names)} ({remedy})"


_AWAY = (
    ("not_joined", "not joined yet", "add them with `schedulemesh join`"),
    ("left", "left in good order", "add them again with `schedulemesh join`"),
    ("lost", "lost long ago", "add them again with `schedulemesh join`"),
)


def _absent_name(mesh: AbsentEntry) -> str:
    if not mesh.draining:
        return mesh.mesh
    return f"{mesh.mesh} [drained: {mesh.drain_reason}]" if mesh.drain_reason else f"{mesh.mesh} [drained]"


@dataclass(frozen=True, slots=True)
class _Meshes:
    """Renderable that chooses its form when drawn, because only then the width is known."""

    view: MeshesView

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        anywhere = options.update(width=_ANY_WIDTH)
        tables = (_table(self.view, *widths) for widths in _WIDTHS)
        fitting = (table for table in tables if Measurement.get(console, anywhere, table).maximum <= options.max_width)
        lines = Group(*(_lines(mesh, options.max_width - _INDENT) for mesh in self.view.meshes))
        yield next(fitting, lines)


def _table(view: MeshesView, state_width: int, labels_width: int, pools_width: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("mesh", "state"):
        table.add_column(column, no_wrap=True)
    table.add_column("heartbeat", justify="right", no_wrap=True)
    for column in ("labels", "used/capacity"):
        table.add_column(column, no_wrap=True)
    for column in ("queued", "running", "a stage"):
        table.add_column(column, justify="right", no_wrap=True)
    for mesh in view.meshes:
        folded = (Text(_folded(words, state_width), style) for words, style in _states(mesh))
        table.add_row(
            Text(mesh.mesh),
            Text("\n").join(folded),
            duration(mesh.heartbeat_age_ms),
            Text(_packed(_labels(mesh), labels_width)),
            Text("\n".join(_packed(_pool(pool), pools_width) for pool in mesh.pools)),
            _with_age(mesh.waiting, mesh.oldest_waiting_ms),
            _with_age(mesh.running, mesh.oldest_running_ms),
            "" if mesh.run_ms is None else duration(mesh.run_ms),
        )
    return table


def _lines(mesh: MeshEntry, width: int) -> RenderableType:
    """Render one mesh as lines."""
    state = Text("; ").join(Text(*each) for each in _states(mesh))
    facts = [f"heartbeat {duration(mesh.heartbeat_age_ms)} ago"] if mesh.alive else []
    facts += [_counted(mesh.waiting, "queued", mesh.oldest_waiting_ms), _counted(mesh.running, "running", mesh.oldest_running_ms)]
    facts += [] if mesh.run_ms is None else [f"a stage takes {duration(mesh.run_ms)}"]
    is_long = len(mesh.mesh) + _INDENT + len(state) > width
    head = Text.assemble((mesh.mesh, "bold"), *(() if is_long else (" " * _INDENT, state)))
    below = [_packed(facts, width), *(_packed(_pool(pool), width) for pool in mesh.pools)]
    below += [_packed(_labels(mesh), width)] if mesh.labels else []
    rest = Text("\n").join([*([state] if is_long else []), Text("\n".join(below))])
    return Group(head, Padding(rest, (0, 0, 0, _INDENT), expand=False))


def _states(mesh: MeshEntry) -> list[tuple[str, str]]:
    """Return whether the mesh is alive, what keeps work away from it, and its disabled plugins, each with its colour."""
    described: list[tuple[str, str]] = []
    if not mesh.alive:
        described.append(("unreachable", "red"))
        heard = f" at {clock_time(mesh.last_heard_ms)}" if mesh.last_heard_ms else ""
        described.append((f"last heartbeat {duration(mesh.heartbeat_age_ms)} ago{heard}", "red"))
        if mesh.pid is not None:
            described.append((f"its process {mesh.pid} is running", "red"))
    if not mesh.cluster_answers:
        described.append(("no answer from Ray", "red"))
    if mesh.waiting_for_ray:
        described.append((f"{mesh.waiting_for_ray} wait for Ray", "yellow"))
    if mesh.outside_group:
        described.append((f"{mesh.outside_group} left their groups", "yellow"))
    if mesh.draining:
        described.append((f"draining: {mesh.drain_reason}" if mesh.drain_reason else "draining", "yellow"))
    if not mesh.stable:
        described.append((f"on probation {duration(mesh.stable_in_ms)}", "yellow"))
    fences = [(one.plugin, hook, why) for one in mesh.plugins for hook, why in one.fenced.items()]
    return [
        *(described or [("alive", "green")]),
        *((f"{hook}() of plugin {name} is disabled: {why}", "yellow") for name, hook, why in fences),
    ]


def _labels(mesh: MeshEntry) -> list[str]:
    return [f"{name}={value}" for name, value in sorted(mesh.labels.items())]


def _pool(pool: PoolView) -> list[str]:
    """Return the use of each resource; the pool's name precedes the first."""
    amounts = [f"{name} {pool.used[name].text if name in pool.used else '0'}/{held.text}" for name, held in pool.capacity.items()]
    if pool.groups is not None:
        counts = pool.groups
        amounts.append(f"reserved groups {counts.in_use} in use, {counts.idle} idle of {counts.reserved}, reused {counts.reuse_count}x")
    return [f"{pool.pool}: {amounts[0]}", *amounts[1:]] if amounts else [pool.pool]


def _with_age(count: int, oldest_ms: int) -> str:
    return f"{count}\n{duration(oldest_ms)}" if oldest_ms else str(count)


def _counted(count: int, what: str, oldest_ms: int) -> str:
    return f"{count} {what} (for {duration(oldest_ms)})" if oldest_ms else f"{count} {what}"


def _folded(words: str, width: int) -> str:
    """Wrap the text between words only."""
    return textwrap.fill(words, width, break_long_words=False, break_on_hyphens=False)


def _packed(items: Iterable[str], width: int) -> str:
    """Join as many items per line as fit, none of them broken."""
    lines: list[str] = []
    for item in items:
        if lines and len(lines[-1]) + len(item) + 3 <= width:  # For a comma and a blank between the items, and a comma at the end.
            lines[-1] += f", {item}"
        else:
            lines.append(item)
    return ",\n".join(lines)
