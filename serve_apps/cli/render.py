"""Views of the root as rich renderables. Pure; every table fits 100 columns."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar

from dag.run.states import RUN_ENDS, NodeState, RunState, StageState
from mesh.core.clock import clock_time
from mesh.core.counting import counted
from serve_apps.cli.output import RoomyTable, Text
from serve_apps.cli.progress_render import ProgressBars
from serve_apps.schemas.audits import AuditView
from serve_apps.schemas.dead_letters import LettersView, LetterView
from serve_apps.schemas.results import NoResultView, OutputView, ResultView
from serve_apps.schemas.runs import ArrayView, FailureView, MeshShare, ProgressView, RunsView, RunView, StageView
from serve_apps.schemas.tenants import QuotaView, TenantsView, TenantView

#: One colour per state of runs, stages and nodes; a state's name always has the same colour.
COLOURS: Mapping[str, str] = {
    RunState.PENDING.value: "bright_black",
    RunState.WAITING.value: "bright_black",
    RunState.BLOCKED.value: "yellow",
    RunState.RUNNING.value: "cyan",
    RunState.CANCELLING.value: "yellow",
    RunState.SUCCEEDED.value: "green",
    RunState.FAILED.value: "red",
    RunState.CANCELLED.value: "magenta",
    StageState.PLANNED.value: "bright_black",
    StageState.QUEUED.value: "yellow",
    StageState.ENDED.value: "green",
    StageState.STOPPED.value: "bright_black",
    StageState.LOST.value: "red",
    NodeState.ASSIGNED.value: "blue",
    NodeState.SKIPPED.value: "magenta",
}

#: Order of counts by state: finished states first, open states last.
_ORDER = (
    NodeState.SUCCEEDED,
    NodeState.FAILED,
    NodeState.SKIPPED,
    NodeState.CANCELLED,
    NodeState.RUNNING,
    NodeState.ASSIGNED,
    NodeState.BLOCKED,
    NodeState.WAITING,
)
#: End states of nodes that did not succeed.
_IN_VAIN = (NodeState.FAILED, NodeState.SKIPPED, NodeState.CANCELLED)
#: End states of stages that ended before their nodes.
_CUT = (StageState.STOPPED.value, StageState.LOST.value)
_SECOND_MS, _MINUTE_MS, _HOUR_MS, _DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000
_BAR_WIDTH = 16
#: Characters of a run's id that fit into one line.
_ID_SHOWN = 40
#: Running nodes whose progress `watch` shows.
PROGRESS_SHOWN = 5
#: Arrays that `watch` shows.
ARRAYS_SHOWN = 20
#: Characters of a value that a summary shows.
_VALUE_SHOWN = 600


def state_text(state: str) -> Text:
    """Return the state in its colour."""
    return Text(state, style=COLOURS[state])


def runs_table(view: RunsView, now_ms: int) -> RenderableType:
    """Render `schedulemesh runs`."""
    older = [Text(f"older runs: the same command with --cursor {view.next}")] if view.next is not None else []
    if not view.runs:
        return older[0] if older else Text("no runs; submit one with `schedulemesh submit FILE.py:graph`")
    table = RoomyTable(box=None, pad_edge=False, header_style="bold")
    whole = all(len(line.id) <= _ID_SHOWN for line in view.runs)  # Users copy ids, so other columns shrink first.
    table.add_column("run", overflow="fold", no_wrap=whole, max_width=_ID_SHOWN)
    table.add_column("tenant", overflow="ellipsis", no_wrap=True, max_width=20)
    table.add_column("state", no_wrap=True)
    table.add_column("nodes", justify="right", no_wrap=True)
    table.add_column("age", justify="right", no_wrap=True)
    table.add_column("took", justify="right", no_wrap=True)
    whys: list[RenderableType] = []
    for line in view.runs:
        took_ms = (line.ended_ms or now_ms) - line.created_ms
        why = ": ".join(part for part in (line.reason, line.detail) if part)
        table.add_row(
            Text(line.id),
            Text(line.tenant),
            state_text(line.state),
            _done_of_all(line.counts),
            duration(now_ms - line.created_ms),
            duration(took_ms),
        )
        described = [*_in_vain(line.counts), *([Text(why.partition("\n")[0])] if why else [])]
        if described:
            whys.append(Text.assemble((line.id, "bold"), ": ", Text("; ").join(described)))
    blank = [Text()] if whys or older else []
    return Group(table, *blank, *whys, *older)


def run_panel(view: RunView, now_ms: int, *, result_follows: bool = False) -> RenderableType:
    """Render `schedulemesh watch`: the run, a bar per stage, and why stages wait.

    Args:
        result_follows: `failure_summary` is printed below, so leave out the failures of an ended run.
    """
    parts: list[RenderableType] = [_headline(view, now_ms)]
    stages = shown_stages(view.stages)
    if stages:
        parts.append(_stages_table(stages))
    shares = [share for share in view.meshes if share.counts]
    if len(shares) > 1:
        parts.append(_shares_line(shares))
    parts += [ProgressBars(view.groups, dict(COLOURS))] if view.groups else []
    parts += [_array_line(array) for array in view.arrays[:ARRAYS_SHOWN]]
    alone = {group.name for group in view.groups if group.total == 1}  # Their bars show the same.
    listed = [node for node in view.progress if node.checkpoint is not None or node.node not in alone]
    parts += [_progress_line(node, now_ms) for node in listed[:PROGRESS_SHOWN]]
    for waiting in view.waiting:
        parts.append(Text.assemble((f"waiting {waiting.reason}", "cyan"), f": {', '.join(waiting.nodes)}: {waiting.detail}"))
    for blocked in view.blocked:
        names = ", ".join(blocked.nodes) + (" …" if blocked.count > len(blocked.nodes) else "")
        parts.append(Text.assemble((f"blocked {blocked.reason}", "yellow"), f": {blocked.count} ({names}): {blocked.detail}"))
    for failure in () if result_follows and RunState(view.state) in RUN_ENDS else view.failures:
        where = f" on {failure.mesh}" if failure.mesh else ""
        parts.append(Text.assemble((f"failed {failure.node}", "red"), f"{where}: {failure.type}: {failure.message}"))
    skipped = view.counts.get(NodeState.SKIPPED.value, 0)
    if skipped:
        parts.append(Text(f"skipped because of another failure: {skipped}", style="magenta"))
    return Group(*parts)


def _array_line(array: ArrayView) -> RenderableType:
    """Return an array as one line: its elements by state, and the indices of those that failed."""
    if array.elements is None:
        words = [f"array of a length that is not known yet, in {counted(array.parts, 'part')}"]
    else:
        words = [counted(array.elements, "element"), *(f"{array.counts[each]} {each.lower()}" for each in _ORDER if array.counts.get(each))]
    line = Text.assemble((array.node, "bold"), " ", state_text(array.state), ": ", ", ".join(words))
    return Text.assemble(line, (f"; failed: {array.failed}", "red")) if array.failed else line


def result_summary(view: ResultView) -> RenderableType:
    """Render the outputs: JSON as text, others by kind and size."""
    return Group(*(_output_text(view.id, name, output) for name, output in view.outputs.items()))


def failure_summary(view: NoResultView) -> RenderableType:
    """Render why the run has no result, with the tracebacks of the tenant's code."""
    words = view.detail.removesuffix(f": {view.run_detail}") if view.failures else view.detail  # Each failure below shows its own detail.
    parts: list[RenderableType] = [Text(words, style=COLOURS[view.state])]
    nodes: dict[tuple[str, str], list[FailureView]] = {}
    for failure in view.failures:
        described = failure.traceback.rstrip() or f"{failure.type}: {failure.message}"
        nodes.setdefault((failure.reason, described), []).append(failure)
    for (reason, described), alike in nodes.items():
        first, others = alike[0], f" and {len(alike) - 1} more" if len(alike) > 1 else ""
        where = f" on {first.mesh}" if first.mesh else ""
        parts.append(Text(f"\n{first.node}{others} (attempt {first.attempt}{where}): {reason}", style="bold"))
        parts.append(Text(described))
        parts.append(Text(f"what to do: schedulemesh code {reason}", style="dim"))
    if view.skipped:
        parts.append(Text(f"\nskipped because of this: {len(view.skipped)}", style="magenta"))
    return Group(*parts)


def tenants_table(view: TenantsView, waiting: Mapping[str, int] | None = None) -> RenderableType:
    """Render `schedulemesh tenants`: quota of each tenant by flavor. Counts of waiting work replace the available quota, and the note."""
    table = RoomyTable(box=None, pad_edge=False, header_style="bold")
    table.add_column("tenant", overflow="fold", max_width=26)
    table.add_column("flavor", overflow="ellipsis", no_wrap=True, max_width=12)
    table.add_column("resource", overflow="ellipsis", no_wrap=True, max_width=10)
    table.add_column("", no_wrap=True)
    for column in ("nominal", "used", "borrowed", "available" if waiting is None else "waiting"):
        table.add_column(column, justify="right", no_wrap=True)
    for level, tenant in _as_tree(view.tenants):
        name = Text.assemble(_indented(tenant, level), *_held(tenant))
        count = str(waiting.get(tenant.tenant, 0)) if waiting is not None else ""
        if not tenant.quotas:
            table.add_row(name, "", "", "", "", "", "", count)
        for row, quota in enumerate(tenant.quotas):
            *cells, available = _quota_cells(quota)
            last = available if waiting is None else count if row == 0 else ""
            table.add_row(name if row == 0 else Text(), *cells, last)
    if waiting is not None:
        return table
    note = "nominal: the tenant's own quota; used and borrowed include the tenants below; borrowed: use above the nominal of all of them"
    return Group(table, Text(note, style="dim"))


def letters_table(view: LettersView) -> RenderableType:
    """Render `schedulemesh dead list`."""
    if not view.letters:
        return Text("no dead letters")
    table = RoomyTable(box=None, pad_edge=False, header_style="bold")
    table.add_column("letter", no_wrap=True)  # Users copy the name, so other columns shrink first.
    table.add_column("tenant", overflow="fold", max_width=16)
    table.add_column("reason", overflow="fold", max_width=18)
    table.add_column("tries", justify="right", no_wrap=True)
    table.add_column("died", no_wrap=True)
    table.add_column("message", overflow="fold", max_width=24)
    for letter in view.letters:
        message = Text(letter.message.partition("\n")[0])
        reason, tries = Text(letter.reason, style="red"), str(letter.attempts)
        table.add_row(Text(letter.letter), Text(letter.tenant), reason, tries, clock_time(letter.at_ms), message)
    return table


def letter_page(letter: LetterView) -> RenderableType:
    """Render `schedulemesh dead show`."""
    lines = (f"{name}: {value}" for name, value in letter.model_dump().items() if name not in ("message", "at"))
    return Text("\n".join((*lines, f"died: {clock_time(letter.at_ms)}", letter.message)))


def audit_page(view: AuditView) -> RenderableType:
    """Render `schedulemesh audit`: one line per disagreement."""
    lines = [f"{orphan.kind} {orphan.stage} at {orphan.mesh}: {orphan.detail}" for orphan in view.orphans]
    lines += [
        f"SUM_DIFFERS {sums.tenant} {sums.flavor}/{sums.resource}: {sums.kept} kept, {sums.counted} counted" for sums in view.mismatches
    ]
    return Text("\n".join(lines), style="red") if lines else Text("records, queues, leases and sums agree", style="green")


def duration(span_ms: int) -> str:
    """Format a duration: `120ms`, `3.4s`, `2m05s`, `3h07m`, `4d02h`."""
    if span_ms < _SECOND_MS:
        return f"{max(0, span_ms)}ms"
    if span_ms < _MINUTE_MS:
        return f"{span_ms // 100 / 10:.1f}s"
    if span_ms < _HOUR_MS:
        return f"{span_ms // _MINUTE_MS}m{span_ms % _MINUTE_MS // _SECOND_MS:02d}s"
    if span_ms < _DAY_MS:
        return f"{span_ms // _HOUR_MS}h{span_ms % _HOUR_MS // _MINUTE_MS:02d}m"
    return f"{span_ms // _DAY_MS}d{span_ms % _DAY_MS // _HOUR_MS:02d}h"


def counts_text(counts: Mapping[str, int]) -> Text:
    """Return `3 SUCCEEDED  1 RUNNING`, in the colours of the states."""
    described = [Text(f"{counts[state.value]} {state.value}", style=COLOURS[state.value]) for state in _ORDER if counts.get(state.value)]
    return Text("  ").join(described)


def _headline(view: RunView, now_ms: int) -> RenderableType:
    took = duration((view.ended_ms or now_ms) - view.created_ms)
    described = Text.assemble(
        (view.id, "bold"), "  ", state_text(view.state), f"  {view.tenant}  since {clock_time(view.created_ms)}  {took}  "
    )
    lines = [described, Text.assemble(counts_text(view.counts), _end_text(view, now_ms))]
    if view.detail and not view.failures:
        lines.append(Text(view.detail.partition("\n")[0], overflow="ellipsis", no_wrap=True))
    return Group(*lines)


def _end_text(view: RunView, now_ms: int) -> str:
    """Return when a running run ends, or a dash if that is unknown; nothing for other runs."""
    if view.state != RunState.RUNNING.value:
        return ""
    if not view.estimated_end_ms:
        return "  ends about -"
    return f"  ends about {clock_time(view.estimated_end_ms)}, in {duration(view.estimated_end_ms - now_ms)}"


def _stages_table(stages: Sequence[StageView]) -> RenderableType:
    table = RoomyTable(box=None, pad_edge=False, header_style="bold")
    table.add_column("stage", no_wrap=True)
    table.add_column("mesh", overflow="ellipsis", no_wrap=True, max_width=14)
    table.add_column("state", no_wrap=True)
    table.add_column("", width=_BAR_WIDTH, no_wrap=True)
    table.add_column("tasks", justify="right", no_wrap=True)
    table.add_column("slots", justify="right", no_wrap=True)
    table.add_column("why", overflow="fold", max_width=34)
    for stage in stages:
        total, done = sum(stage.counts.values()), stage.counts.get(NodeState.SUCCEEDED.value, 0)
        went_on = not total and stage.state in _CUT  # Its nodes count in the stages that took them over.
        table.add_row(
            Text(stage.id.rpartition(".")[2]),
            Text(stage.mesh),
            state_text(stage.state),
            Text() if went_on else _stage_bar(stage.state, done, total),
            Text() if went_on else Text("\n").join([Text(_done_of_all(stage.counts)), *_in_vain(stage.counts)]),
            slots_text(stage.state, stage.slots, stage.width),
            _why_stage(stage),
        )
    return table


def shown_stages(stages: Sequence[StageView]) -> list[StageView]:
    """Leave out stages that have ended without nodes: they were replanned before they were sent, or their nodes ran again elsewhere."""
    return [stage for stage in stages if stage.counts or stage.state != StageState.ENDED.value]


def _stage_bar(state: str, done: int, total: int) -> ProgressBar:
    """Return a bar of the succeeded nodes. The state sets the colour, because rich's default red looks like a fault."""
    return ProgressBar(total=max(1, total), completed=done, width=_BAR_WIDTH, complete_style=COLOURS[state], finished_style="green")


def _why_stage(stage: StageView) -> Text:
    """Return why the stage ended early, or why it waits, or else why it is on its mesh."""
    return cut_text(stage) or Text(": ".join(part for part in (stage.reason, stage.detail) if part) if stage.reason else stage.why_here)


def cut_text(stage: StageView) -> Text:
    """Return why the stage was stopped or lost, or an empty text. Only faults are red: a preempted stage stopped on purpose."""
    if stage.state not in _CUT:
        return Text()
    described = ": ".join(part for part in (stage.reason, stage.detail) if part)
    if stage.state == StageState.LOST.value:
        return Text(f"lost: {described}" if described else "lost", style=COLOURS[stage.state])
    word = "preempted" if stage.started_ms else "recalled"  # Only a stage that has started held resources.
    return Text(f"{word}: {described}" if described else word)


def slots_text(state: str, slots: int, width: int) -> str:
    """Return the slots of a stage; while it runs, also how many it could use."""
    if not slots:
        return ""
    return f"{slots} of {width}" if state == StageState.RUNNING.value and slots < width else str(slots)


def slots_in_words(state: str, slots: int, width: int) -> str:
    """Return the slots with their unit: `1 slot`, `1 of 2 slots`."""
    described = slots_text(state, slots, width)
    return described and (
        f"{described.removesuffix(str(width))}{counted(width, 'slot')}" if " of " in described else counted(slots, "slot")
    )


def _shares_line(shares: Sequence[MeshShare]) -> RenderableType:
    described = [Text.assemble((share.mesh, "bold"), f" {_done_of_all(share.counts)}") for share in shares]
    return Text.assemble("tasks by mesh: ", Text("  ").join(described))


def _progress_line(node: ProgressView, now_ms: int) -> RenderableType:
    """Return `train: 40 %, checkpoint 3.2s ago`."""
    described = [] if node.progress is None else [f"{node.progress:.0%}"]
    if node.checkpoint is not None:
        described.append(f"checkpoint {duration(now_ms - node.checkpoint.saved_ms)} ago")
    return Text.assemble((node.node, "bold"), ": ", ", ".join(described))


def _output_text(run: str, name: str, output: OutputView) -> RenderableType:
    if output.inline and output.encoding == "json":
        described = json.dumps(output.value, indent=2, ensure_ascii=False)
        more = f"\n… {counted(len(described) - _VALUE_SHOWN, 'more character')}" if len(described) > _VALUE_SHOWN else ""
        return Text.assemble((f"{name}: ", "bold"), described[:_VALUE_SHOWN] + more)
    kind = "JSON" if output.encoding == "json" else "pickled Python"
    size = f"{counted(output.size_bytes, 'byte')} of {kind}"
    return Text.assemble((f"{name}: ", "bold"), f"{size}; save it with `--out DIR`, or load it with `dag.get_run({run!r}).result()`")


def _as_tree(tenants: Sequence[TenantView]) -> Iterator[tuple[int, TenantView]]:
    """Yield each tenant with its depth, below its parent; a tenant whose parent is not shown is at the top."""
    paths = {tenant.tenant for tenant in tenants}
    below: defaultdict[str | None, list[TenantView]] = defaultdict(list)
    for tenant in tenants:
        below[tenant.parent if tenant.parent in paths else None].append(tenant)
    rest = [(0, tenant) for tenant in reversed(below[None])]
    while rest:
        level, tenant = rest.pop()
        yield level, tenant
        rest += [(level + 1, child) for child in reversed(below[tenant.tenant])]


def _indented(tenant: TenantView, level: int) -> Text:
    """Return the last part of the path below its path's parent, or else the whole path."""
    above, _, name = tenant.tenant.rpartition("/")
    return Text("  " * level + (name if level and above == tenant.parent else tenant.tenant))


def _held(tenant: TenantView) -> list[Text]:
    """Mark a tenant that starts no new work."""
    return [] if tenant.stop == "none" else [Text(f" ({tenant.stop})", style="yellow")]


def _quota_cells(quota: QuotaView) -> tuple[RenderableType, ...]:
    own, used = quota.nominal.units, quota.used.units
    colour = "yellow" if quota.borrowed.units else "green"
    bar = ProgressBar(total=max(1, own, used), completed=used, width=8, complete_style=colour, finished_style=colour)
    borrowed = Text(quota.borrowed.text if quota.borrowed.units else "", style="yellow")
    available = Text(quota.available.text, style="red" if quota.available.units < 0 else "")
    return (quota.flavor, quota.resource, bar, quota.nominal.text, quota.used.text, borrowed, available)


def _done_of_all(counts: Mapping[str, int]) -> str:
    """Return succeeded/total."""
    return f"{counts.get(NodeState.SUCCEEDED.value, 0)}/{sum(counts.values())}"


def _in_vain(counts: Mapping[str, int]) -> list[Text]:
    """Return the counts of nodes that ended without success, one text per state."""
    ways = [(state.value, counts.get(state.value, 0)) for state in _IN_VAIN]
    return [Text(f"{count} {state.lower()}", style=COLOURS[state]) for state, count in ways if count]
