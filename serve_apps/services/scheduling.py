"""Creates, lists, changes and triggers schedules, as far as a key covers them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import uuid
from collections.abc import Callable
from dataclasses import replace

from dag.errors import RunConflict, SpecError, UnknownSchedule
from dag.run.node_table import NodeTable
from dag.run.runs import RunRecord, RunSummary
from dag.schedules.cron import problem_of_cron, problem_of_timezone
from dag.schedules.firing import FIRINGS_KEPT, LABEL, SCHEDULED_AT, at_time, paused, recorded, restarted, run_of
from dag.schedules.schedule import NAME, NAME_RULE, Firing, Outcome, Rules, Schedule, Template, place_of
from dag.spec.forms import used_params
from dag.spec.run_labels import LABELS_MAX
from dag.spec.spec import DagSpec, digest, kept_form, parse
from federation.api_keys import EVERYBODY
from mesh.core.ids import NodeId, RunId, TenantPath
from mesh.core.near_names import nearest
from serve_apps.requests.access import reaches
from serve_apps.requests.auth import Principal
from serve_apps.requests.dependencies import Dependencies
from serve_apps.requests.errors import ScheduleBusy
from serve_apps.schemas.runs import SubmittedView
from serve_apps.schemas.schedules import ScheduleRequest
from serve_apps.services.stopping import check_covered, check_reach, paths_in
from serve_apps.services.submission import check_against, check_runnable, tenant_of, user_of

#: Attempts to change a schedule that others change at the same time.
TRIES_MAX = 5
#: Schedules among which a similar name is looked for.
LISTED_MAX = 1_000


def put_schedule(ports: Dependencies, principal: Principal, name: str, tenant: str | None, asked: ScheduleRequest) -> tuple[Schedule, bool]:
    """Create the schedule, or give it these rules; return it and whether it is new. The same request again changes nothing.

    Raises:
        SpecError: The name, the rules or the graph are wrong; lists every problem found.
        OutOfReach, UnknownTenant, NoMeshFits: As for a submission.
        TooManySchedules: The tenant has reached a limit.
        ScheduleBusy: Others change it at the same time.
        StoreUnavailable: The store does not answer; safe to repeat.
    """
    spec = _template_spec(name, asked, tenant)
    owner, user = tenant_of(spec, principal), user_of(spec, principal)
    snapshot, filed, now_ms = ports.ledger.snapshot(), ports.tenant_policies.in_force().filed, ports.clock.wall_ms()
    check_against(spec, snapshot, owner, ports.configured_meshes, filed)
    template = Template(spec=kept_form(spec), blobs=spec.blob_bytes())
    sample = RunRecord(
        run=RunId(f"{name}-{uuid.uuid4().hex}"),
        tenant=owner,
        digest=digest(spec),
        spec=template.spec,
        nodes=NodeTable(map(NodeId, spec.nodes)),
    )
    check_runnable(ports, spec, sample, snapshot, filed)
    rules = Rules(
        cron=asked.cron,
        timezone=asked.timezone,
        overlap=asked.overlap,
        starts_within_ms=asked.starts_within_ms,
        user=user,
        digest=hashlib.sha256(template.spec).hexdigest(),
    )
    for _ in range(TRIES_MAX):
        known = ports.schedules.load(owner, name)
        if known is not None and known.rules == rules:
            ports.durable.confirm(ports.durability)  # An earlier try may have ended before its confirmation.
            return known, False
        if known is None:
            uid = hashlib.sha256(f"{place_of(owner, name)}|{now_ms}".encode()).hexdigest()[:8]
            made = Schedule(tenant=owner, name=name, uid=uid, rules=rules, created_ms=now_ms, cursor_ms=now_ms)
        else:
            made = replace(known, rules=rules)
        is_same_time = known is not None and (known.rules.cron, known.rules.timezone) == (rules.cron, rules.timezone)
        stored = ports.schedules.put(made if is_same_time else restarted(made, now_ms), template)
        if stored is not None:
            ports.durable.confirm(ports.durability)
            return stored, known is None
    raise _busy(name)


def _template_spec(name: str, asked: ScheduleRequest, tenant: str | None) -> DagSpec:
    """Return the checked graph of a template. Raises SpecError with all problems of the request."""
    graph = dict(asked.graph)
    wrong = [("/cron", problem_of_cron(asked.cron)), ("/timezone", problem_of_timezone(asked.timezone))]
    if not NAME.fullmatch(name):
        wrong.append(("/name", f"{name[:200]!r} is no name of a schedule; use {NAME_RULE}"))
    if graph.get("id") is not None:
        wrong.append(("/graph/id", "each run of a schedule has an id of its own; leave it out"))
    labels = graph.get("labels")
    if isinstance(labels, dict) and (labels.get(LABEL, name) != name or len({*labels, LABEL}) > LABELS_MAX):
        wrong.append(("/graph/labels", f"the label `{LABEL}` is the name of the schedule, and one of {LABELS_MAX} at most"))
    if tenant is not None and graph.get("tenant") is None:
        graph["tenant"] = tenant
    if tenant is not None and graph["tenant"] != tenant:
        wrong.append(("/graph/tenant", f"is not {tenant}, the tenant of the schedule; leave it out"))
    problems = [(place, problem) for place, problem in wrong if problem is not None]
    if isinstance(graph.get("params", {}), dict) and SCHEDULED_AT in used_params(graph.get("nodes")):
        graph["params"] = {**graph.get("params", {}), SCHEDULED_AT: ""}
    try:
        spec = parse(json.dumps(graph).encode())
    except RecursionError:
        raise SpecError((*problems, ("/graph", "is nested too deeply"))) from None
    except SpecError as refused:
        raise SpecError((*problems, *((f"/graph{place}", problem) for place, problem in refused.problems))) from None
    if problems:
        raise SpecError(tuple(problems))
    return at_time(spec, 0)


def list_schedules(
    ports: Dependencies, principal: Principal, tenant: str | None, after: str, limit: int
) -> tuple[list[Schedule], str | None]:
    """Return schedules that the key covers, of a tenant and the tenants below it or of all; and the place after which the list goes on.

    Raises:
        OutOfReach: The key does not cover the tenant, or there is none.
    """
    within = TenantPath(tenant) if tenant is not None else None if principal.tenant == EVERYBODY else principal.tenant
    if within is not None:
        check_covered(principal, within)
    listed = list(ports.schedules.list(within, after, limit + 1))
    if tenant is not None and not listed:
        check_reach(principal, TenantPath(tenant), paths_in(ports.shown().tree))
    is_more = len(listed) > limit
    return listed[:limit], place_of(listed[limit - 1].tenant, listed[limit - 1].name) if is_more else None


def schedule_within(ports: Dependencies, principal: Principal, name: str, tenant: str | None) -> Schedule:
    """Return the schedule. Without a tenant, that of the key's tenant.

    Raises:
        UnknownSchedule: There is none within reach.
    """
    owner = TenantPath(tenant) if tenant is not None else principal.tenant
    found = ports.schedules.load(owner, name) if reaches(principal, owner) else None
    if found is None:
        words = "; this API key covers every tenant, so name the schedule's (`tenant`)" if owner == EVERYBODY else f" of {owner}"
        near = _near_schedule(ports, name, owner) if reaches(principal, owner) else ""
        raise UnknownSchedule(f"there is no schedule {name}{words}{near}; `schedulemesh schedule ls` lists those that the key covers")
    return found


def _near_schedule(ports: Dependencies, name: str, owner: TenantPath) -> str:
    """Return the suggestion of a schedule of the tenant, or of any tenant for a key of all; else an empty text."""
    within = None if owner == EVERYBODY else owner
    return nearest(name, {known.name for known in ports.schedules.list(within, limit=LISTED_MAX) if within in (None, known.tenant)})


def runs_of(ports: Dependencies, schedule: Schedule) -> tuple[RunSummary, ...]:
    """Return the last runs of a schedule that are kept, newest first; also those of an earlier one of its name."""
    fired = dict.fromkeys((*(firing.run for firing in schedule.firings if firing.run is not None), *schedule.active))
    listed = ports.runs.list(schedule.tenant, FIRINGS_KEPT, {LABEL: schedule.name})  # Those of tenants below count too.
    known = [run for run in (*ports.runs.summaries(tuple(fired)), *listed) if run is not None and run.tenant == schedule.tenant]
    newest = sorted({run.run: run for run in known}.values(), key=lambda run: run.created_ms, reverse=True)
    return tuple(newest[:FIRINGS_KEPT])


def pause(ports: Dependencies, schedule: Schedule, *, is_paused: bool) -> Schedule:
    """Pause or resume the schedule; a resumed one does not make up for what it missed.

    Raises:
        UnknownSchedule: It was deleted meanwhile.
        ScheduleBusy: Others change it at the same time.
    """
    now_ms = ports.clock.wall_ms()

    def change(known: Schedule) -> Schedule:
        if known.is_paused == is_paused:
            return known
        return paused(known) if is_paused else restarted(replace(known, is_paused=False), now_ms)

    changed = _changed(ports, schedule, change)
    ports.durable.confirm(ports.durability)
    return changed


def delete(ports: Dependencies, schedule: Schedule) -> None:
    """Delete the schedule; its runs go on. Raises StoreUnavailable; safe to repeat."""
    ports.schedules.drop(schedule.tenant, schedule.name)
    ports.durable.confirm(ports.durability)


def trigger(ports: Dependencies, principal: Principal, schedule: Schedule, key: str | None) -> SubmittedView:
    """Start a run now, whatever the cron expression, the overlap rule and a pause say.

    Args:
        principal: A key with a user starts the run as this user.
        key: Idempotency key: a repeated call with it returns the same run.

    Raises:
        UnknownTenant: The tenant was removed.
        BacklogFull, StoreFull: Too much work is open.
        UnknownSchedule: It was deleted meanwhile.
    """
    snapshot, now_ms = ports.ledger.snapshot(), ports.clock.wall_ms()
    snapshot.tree.tenant(schedule.tenant)
    ending = hashlib.sha256(f"{schedule.uid}|{key}".encode()).hexdigest() if key is not None else uuid.uuid4().hex
    run = RunId(f"{schedule.name}-{schedule.uid}-{ending[:16]}")
    known, template = ports.runs.summary(run), ports.schedules.template(schedule.tenant, schedule.name)
    if template is None:
        raise UnknownSchedule(f"schedule {schedule.name} was deleted")
    if known is None:
        record = run_of(schedule, template, run, due_ms=now_ms, now_ms=now_ms)
        record = replace(record, user=principal.user or record.user)
        try:
            ports.accepted.create(record, dict(template.blobs), epoch=snapshot.epoch)
        except RunConflict:  # A call with the same key was faster: its time of the firing differs.
            known = ports.runs.summary(run)
            if known is None or known.tenant != schedule.tenant:
                raise
    reached = ports.durable.confirm(ports.durability)

    def change(found: Schedule) -> Schedule:
        firing = Firing(due_ms=now_ms, at_ms=now_ms, outcome=Outcome.STARTED, run=run, is_triggered=True)
        return found if any(fired.run == run for fired in found.firings) else recorded(found, firing)

    with contextlib.suppress(ScheduleBusy, UnknownSchedule):  # The run is there, whether the list of firings has it or not.
        _changed(ports, schedule, change)
    state = known.state.value if known is not None else "PENDING"
    return SubmittedView(id=run, tenant=schedule.tenant, state=state, created=known is None, durability=reached.value)


def _changed(ports: Dependencies, schedule: Schedule, change: Callable[[Schedule], Schedule]) -> Schedule:
    for _ in range(TRIES_MAX):
        known = ports.schedules.load(schedule.tenant, schedule.name)
        if known is None or known.uid != schedule.uid:
            raise UnknownSchedule(f"schedule {schedule.name} was deleted")
        changed = change(known)
        stored = known if changed is known else ports.schedules.put(changed)
        if stored is not None:
            return stored
    raise _busy(schedule.name)


def _busy(name: str) -> ScheduleBusy:
    return ScheduleBusy(f"schedule {name} is being changed by others; repeat the call")
