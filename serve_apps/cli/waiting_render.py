"""Waiting work, its reasons and its preemption previews as rich renderables. Pure; every table fits 100 columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table

from mesh.core.clock import clock_time
from mesh.core.counting import counted, times
from mesh.core.reasons import PASSING, Reason
from serve_apps.cli.output import RoomyTable, Text
from serve_apps.cli.render import duration, slots_in_words, state_text
from serve_apps.schemas.explanations import RunExplanation, StageExplanation
from serve_apps.schemas.history import HistoryView, LeaseEventView
from serve_apps.schemas.leases import LeasesView
from serve_apps.schemas.plans import PlannedStageView, PlanView
from serve_apps.schemas.quantities import Quantity
from serve_apps.schemas.queues import ChangeView, KeptBackView, QueueView, UnmetView, VictimView, WaitingView
from serve_apps.schemas.runs import BlockedView

_PASSING = frozenset(reason.value for reason in PASSING)
#: Reasons for preemption without a fault; the work runs again.
_CALL_PREEMPTED = frozenset(
    reason.value
    for reason in (Reason.QUOTA_RECLAIMED, Reason.QUOTA_REDUCED, Reason.FAIR_SHARE, Reason.PREEMPTED_WITHIN_TENANT, Reason.MESH_LEFT)
)
#: Number of stages whose long explanations follow the table.
_REPORTED_BELOW = 5
_PLACES = "place: position in its mesh's queue (among its tenant's, on all meshes), for the same flavor"


def queue_picture(view: QueueView) -> RenderableType:
    """Render `schedulemesh queue`."""
    parts: list[RenderableType] = []
    if view.waiting:
        parts += [_title("waiting at meshes", len(view.waiting)), _waiting_table(view), *_changes_of_first(view.waiting)]
    for mesh, count in view.cut_short.items():
        parts.append(Text(f"{mesh}: {counted(count, 'more stage')} behind the first 1 000 of its queue, not shown", style="yellow"))
    if view.kept_back:
        parts += [*_gap(parts), _title("not sent to any mesh", len(view.kept_back)), _kept_back_table(view.kept_back, view.at_ms)]
    if view.unmet:
        parts += [*_gap(parts), _title("quota that meshes requested and do not get", len(view.unmet)), _unmet_table(view.unmet)]
    whose = "" if view.tenant == "*" else f" of {view.tenant}"
    return Group(*parts) if parts else Text(f"nothing{whose} waits", style="green")


def explanation_picture(view: RunExplanation) -> RenderableType:
    """Render `schedulemesh explain RUN`."""
    parts: list[RenderableType] = [Text.assemble((view.id, "bold"), "  ", state_text(view.state), f"  {view.tenant}  {view.user}")]
    if view.reason and not (view.stages or view.blocked or view.waiting):
        parts.append(_why(view.reason, view.detail))
    if view.stages:
        parts += [Text(), _stages_table(view)]
    for stage in view.stages:
        described = _levers(stage.changes, stage.tenant_position)
        if described:
            parts += [Text(), _if(f"stage {_number(stage.stage)} would start", described), *described]
    parts += [_blocked_text(blocked) for blocked in (*view.blocked, *view.waiting)]
    if not (view.stages or view.blocked or view.waiting):
        parts.append(Text("no stage of it waits", style="green"))
    elif view.stages:
        parts += [
            Text(),
            Text(f"`schedulemesh explain {view.id} STAGE` shows the history of one stage, and what it would preempt", style="dim"),
        ]
    return Group(*parts)


def stage_picture(view: StageExplanation, now_ms: int) -> RenderableType:
    """Render `schedulemesh explain RUN STAGE`."""
    facts = RoomyTable(box=None, pad_edge=False, show_header=False)
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    facts.add_row("stage", Text.assemble((view.stage, "bold"), "  ", state_text(view.state)))
    facts.add_row("at", f"{view.mesh}: {view.why_here}" if view.why_here else view.mesh)
    facts.add_row("for", f"{view.tenant}, submitted by {view.user}" if view.user else view.tenant)
    facts.add_row("needs", f"{_amounts(view.slot)} to start; {counted(view.nodes, 'node')}")
    slots = slots_in_words(view.state, view.slots, view.width)
    if slots:
        more = "; it grows when room and quota come, after work that waits" if view.slots < view.width else ""
        facts.add_row("has", f"{slots}{more}")
    if view.reason:
        facts.add_row("why", _why(view.reason, view.detail))
    if view.position is not None:
        own = f", {view.tenant_position}. of its tenant" if view.tenant_position is not None else ""
        facts.add_row("place", f"{view.position}. in the queue of {view.mesh}{own}")
        facts.add_row("start", _start(view, now_ms))
    parts: list[RenderableType] = [facts]
    if view.changes:
        described = _levers(view.changes, view.tenant_position)
        parts += [Text(), _if("it would start", described), *described]
    if view.victims:
        parts += [Text(), Text("what it would preempt", style="bold"), _victims_table(view.victims)]
    if view.history:
        parts += [Text(), Text("history", style="bold"), _events_table(view)]
    return Group(*parts)


def plan_picture(view: PlanView) -> RenderableType:
    """Render `schedulemesh submit --dry-run`."""
    parts: list[RenderableType] = [Text.assemble("dry run for ", (view.tenant, "bold"), f", as {view.user}: nothing was submitted")]
    if view.reason:
        parts.append(Text.assemble("would wait at once: ", _why(view.reason, view.detail)))
    if view.stages:
        table = RoomyTable(box=None, pad_edge=False, header_style="bold")
        table.add_column("stage", justify="right", no_wrap=True)
        table.add_column("mesh", no_wrap=True, overflow="ellipsis", max_width=14)
        table.add_column("nodes", justify="right", no_wrap=True)
        table.add_column("needs", overflow="fold", max_width=18)
        table.add_column("place", justify="right", no_wrap=True)
        table.add_column("start", justify="right", no_wrap=True)
        table.add_column("why", overflow="fold", max_width=36)
        for stage in view.stages:
            place = f"{stage.position} ({stage.tenant_position})" if stage.goes_first else ""
            start = _start(stage, view.at_ms) if stage.goes_first else ""
            cells = (Text(stage.mesh), str(stage.count), _amounts(stage.slot), place, start, _planned_why(stage))
            table.add_row(_number(stage.stage), *cells)
        table.caption = _PLACES
        table.caption_justify, table.caption_style = "left", "dim"
        parts += [Text(), table]
    for stage in view.stages:
        if stage.goes_first and stage.changes:
            described = _levers(stage.changes, stage.tenant_position)
            parts += [Text(), _if(f"stage {_number(stage.stage)} would start at once", described), *described]
        if stage.victims:
            title = f"what stage {_number(stage.stage)} would preempt"
            parts += [Text(), Text(title, style="bold"), _victims_table(stage.victims)]
    parts += [_blocked_text(blocked) for blocked in view.blocked]
    return Group(*parts)


def leases_table(view: LeasesView) -> RenderableType:
    """Render `schedulemesh leases`."""
    if not view.leases:
        return Text("no leases are held")
    table = RoomyTable(box=None, pad_edge=False, header_style="bold")
    table.add_column("tenant", overflow="fold", max_width=26)
    table.add_column("mesh", overflow="ellipsis", no_wrap=True, max_width=14)
    table.add_column("flavor", overflow="ellipsis", no_wrap=True, max_width=14)
    table.add_column("held", overflow="fold", max_width=20)
    table.add_column("target", overflow="fold", max_width=20)
    table.add_column("priority", justify="right", no_wrap=True)
    table.add_column("age", justify="right", no_wrap=True)
    for lease in sorted(view.leases, key=lambda lease: (lease.tenant, lease.mesh, lease.flavor)):
        table.add_row(
            Text(lease.tenant),
            Text(lease.mesh),
            Text(lease.flavor),
            _amounts(lease.amounts),
            Text("expires", style="yellow") if lease.running_out else _move(lease.amounts, lease.target),
            str(lease.priority),
            duration(view.at_ms - lease.granted_ms) if lease.granted_ms else "",
        )
    return table


def history_table(view: HistoryView) -> RenderableType:
    """Render `schedulemesh history`."""
    if not view.lease_events:
        return Text("no history of leases that this key covers")
    table = RoomyTable(box=None, pad_edge=False, header_style="bold")
    table.add_column("at", no_wrap=True)
    table.add_column("what", no_wrap=True)
    table.add_column("tenant", overflow="fold", max_width=26)
    table.add_column("mesh", overflow="ellipsis", no_wrap=True, max_width=14)
    table.add_column("flavor", overflow="ellipsis", no_wrap=True, max_width=12)
    table.add_column("held", overflow="fold", max_width=14)
    table.add_column("target", overflow="fold", max_width=14)
    for lease_event in view.lease_events:
        table.add_row(*_lease_event_cells(lease_event))
    return table


def _waiting_table(view: QueueView) -> Table:
    table = RoomyTable(box=None, pad_edge=False, header_style="bold")
    table.add_column("stage", overflow="fold", max_width=26)
    table.add_column("tenant", overflow="ellipsis", no_wrap=True, max_width=20)
    table.add_column("mesh", overflow="ellipsis", no_wrap=True, max_width=10)
    table.add_column("place", justify="right", no_wrap=True)
    table.add_column("needs", overflow="fold", max_width=12)
    table.add_column("start", justify="right", no_wrap=True)
    table.add_column("why", no_wrap=True, overflow="ellipsis")
    for one in view.waiting:
        place = f"{one.position}" if one.tenant_position is None else f"{one.position} ({one.tenant_position})"
        why = Text(one.reason, style=_style(one.reason))
        table.add_row(Text(one.stage), Text(one.tenant), Text(one.mesh), place, _amounts(one.slot), _start(one, view.at_ms), why)
    table.caption = _PLACES
    table.caption_justify, table.caption_style = "left", "dim"
    return table


def _changes_of_first(waiting: Sequence[WaitingView]) -> list[RenderableType]:
    described: list[RenderableType] = []
    for one in [one for one in waiting if one.changes][:_REPORTED_BELOW]:
        levers = _levers(one.changes, one.tenant_position)
        described += [Text(), _if(f"{one.stage} would start", levers), *levers]
    return described


def _kept_back_table(kept_back: Sequence[KeptBackView], now_ms: int) -> Table:
    table = RoomyTable(box=None, pad_edge=False, header_style="bold")
    table.add_column("run", overflow="fold", max_width=24)
    table.add_column("tenant", overflow="ellipsis", no_wrap=True, max_width=20)
    table.add_column("place", justify="right", no_wrap=True)
    table.add_column("age", justify="right", no_wrap=True)
    table.add_column("why", overflow="fold", ratio=1)
    for one in kept_back:
        table.add_row(Text(one.run), Text(one.tenant), str(one.position), duration(now_ms - one.created_ms), _why(one.reason, one.detail))
    table.caption = "place: position among runs that wait for the same reason"
    table.caption_justify, table.caption_style = "left", "dim"
    return table


def _unmet_table(unmet: Sequence[UnmetView]) -> Table:
    table = RoomyTable(box=None, pad_edge=False, header_style="bold")
    table.add_column("mesh", overflow="ellipsis", no_wrap=True, max_width=14)
    table.add_column("tenant", overflow="ellipsis", no_wrap=True, max_width=20)
    table.add_column("requests", overflow="fold", max_width=18)
    table.add_column("since", justify="right", no_wrap=True)
    table.add_column("why", overflow="fold", ratio=1)
    for one in unmet:
        demands = _amounts(one.slot) if one.slots == 1 else f"{times(one.slots)} {_amounts(one.slot)}"
        demands += f", {one.beyond} more wait" if one.beyond else ""
        table.add_row(Text(one.mesh), Text(one.tenant), demands, duration(one.waiting_ms), _why(one.reason, one.detail))
    return table


def _stages_table(view: RunExplanation) -> Table:
    table = RoomyTable(box=None, pad_edge=False, header_style="bold")
    table.add_column("stage", justify="right", no_wrap=True)
    table.add_column("mesh", overflow="ellipsis", no_wrap=True, max_width=14)
    table.add_column("state", no_wrap=True)
    table.add_column("needs", overflow="fold", max_width=16)
    table.add_column("place", justify="right", no_wrap=True)
    table.add_column("start", justify="right", no_wrap=True)
    table.add_column("why", overflow="fold", ratio=1)
    for stage in view.stages:
        in_queue = stage.position is not None
        table.add_row(
            _number(stage.stage),
            Text(stage.mesh),
            state_text(stage.state),
            _needs(stage),
            f"{stage.position} ({stage.tenant_position})" if in_queue else "",
            _start(stage, view.at_ms) if in_queue else "",
            _why(stage.reason, stage.detail) if stage.reason else Text(),
        )
    if any(stage.position is not None for stage in view.stages):
        table.caption = _PLACES
        table.caption_justify, table.caption_style = "left", "dim"
    return table


def _needs(stage: StageExplanation) -> str:
    slots = slots_in_words(stage.state, stage.slots, stage.width)
    return f"{_amounts(stage.slot)}; has {slots}" if slots else _amounts(stage.slot)


def _victims_table(victim_leases: Sequence[VictimView]) -> RenderableType:
    table = RoomyTable(box=None, pad_edge=False, header_style="dim")
    for column in ("tenant", "mesh", "flavor", "amount", "because"):
        table.add_column(column, no_wrap=column not in ("tenant", "because"), overflow="fold")
    for one in victim_leases:
        tenant = Text(one.tenant) if one.tenant is not None else Text("another tenant", style="italic")
        because = Text(one.reason, style=_style(one.reason))
        preempted = ((one.stages, "would stop"), (one.shrinking, "would give slots back"))
        if ends := ", ".join(f"{', '.join(stages)} {verb}" for stages, verb in preempted if stages):
            because.append(f": {ends}", style="dim")
        table.add_row(tenant, Text(one.mesh), Text(one.flavor), _amounts(one.amounts), because)
    return Padding(table, (0, 0, 0, 2), expand=False)


def _events_table(view: StageExplanation) -> RenderableType:
    table = RoomyTable(box=None, pad_edge=False, show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    for event in view.history:
        described = ": ".join(part for part in (event.reason, event.detail) if part)
        table.add_row(clock_time(event.at_ms), state_text(event.after), Text(described))
    return Padding(table, (0, 0, 0, 2), expand=False)


def _lease_event_cells(lease_event: LeaseEventView) -> tuple[RenderableType, ...]:
    what = f"{lease_event.verb} ({lease_event.why})" if lease_event.why else lease_event.verb
    return (
        clock_time(lease_event.at_ms),
        Text(what),
        Text(lease_event.tenant or ""),
        Text(lease_event.mesh or ""),
        Text(lease_event.flavor or ""),
        _amounts(lease_event.held) if lease_event.lease else "",
        _move(lease_event.held, lease_event.target) if lease_event.lease else Text(),
    )


def _planned_why(stage: PlannedStageView) -> Text:
    if stage.reason is None:
        return Text("starts at once", style="green")
    if not stage.goes_first:
        return Text("after the stages before it", style="dim")
    return Text(stage.reason, style=_style(stage.reason))


def _blocked_text(blocked: BlockedView) -> RenderableType:
    names = ", ".join(blocked.nodes) + (" …" if blocked.count > len(blocked.nodes) else "")
    described = Text.assemble((blocked.reason, _style(blocked.reason)), f"  {counted(blocked.count, 'node')}: {names}")
    return Group(Text(), described, Padding(Text(blocked.detail), (0, 0, 0, 2), expand=False))


def _if(what: str, levers: Sequence[RenderableType]) -> Text:
    """Introduce the changes; if there are several, only all of them together suffice."""
    return Text(f"{what} if all of these were true" if len(levers) > 1 else f"{what} if", style="bold")


def _levers(changes: Sequence[ChangeView], place: int | None) -> list[RenderableType]:
    described = [change.words for change in changes]
    if described and place is not None and place > 1:
        described.insert(0, f"the {counted(place - 1, 'stage')} of its tenant before it had started")
    return [Padding(Text(f"• {words}"), (0, 0, 0, 2), expand=False) for words in described]


def _why(reason: str, detail: str) -> Text:
    return Text.assemble((reason, _style(reason)), f": {detail}" if detail else "")


def _style(reason: str) -> str:
    """Return yellow for reasons that pass by themselves, red for those that need a change."""
    return "yellow" if reason in _PASSING | _CALL_PREEMPTED else "red"


def _start(one: WaitingView | StageExplanation | PlannedStageView, now_ms: int) -> str:
    """Return the estimated start, or how long the work that must end first is overdue."""
    if one.overdue_ms:
        return f"overdue by {duration(one.overdue_ms)}"
    if one.start_ms is None:
        return "not known yet"
    return "now" if one.start_ms <= now_ms else f"in ~{duration(one.start_ms - now_ms)}"


def _move(held: Mapping[str, Quantity], target: Mapping[str, Quantity]) -> Text:
    """Return the target of the lease if it differs from the held amounts."""
    if {name: one.units for name, one in held.items()} == {name: one.units for name, one in target.items()}:
        return Text()
    is_less = any(one.units > (target[name].units if name in target else 0) for name, one in held.items())
    return Text(_amounts(target) or "nothing", style="yellow" if is_less else "green")


def _amounts(amounts: Mapping[str, Quantity]) -> str:
    return ", ".join(f"{one.text} {name}" for name, one in sorted(amounts.items()) if one.units)


def _number(stage: str) -> str:
    return stage.rpartition(".")[2]


def _title(words: str, count: int) -> Text:
    return Text.assemble((words, "bold underline"), f"  {count}")


def _gap(parts: Sequence[RenderableType]) -> list[RenderableType]:
    return [Text()] if parts else []
