"""`dag.schedule`: a graph that the root submits by cron, while no program of its user runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any
from urllib.parse import quote

from dag.client.compiling import Outputs
from dag.client.tasks import named_call
from dag.errors import GraphTypeError
from dag.schedules.schedule import NAME, NAME_RULE
from dag.store.remote import Client, Run, connect
from mesh.core.ids import RunId


class ScheduleHandle:
    """A schedule at the root, by its name and tenant."""

    def __init__(self, name: str, tenant: str | None, client: Client) -> None:
        if not NAME.fullmatch(name):  # A slash in it would name another route.
            raise GraphTypeError(f"{name!r} is no name of a schedule; use {NAME_RULE}")
        self.name = name
        self.tenant = tenant
        self._client = client

    def show(self) -> dict[str, Any]:
        """Return the schedule as `GET /v1/schedules/{name}` describes it. Raises UnknownSchedule, ApiError, as the other calls."""
        shown: dict[str, Any] = self._client.ask(self.path())
        return shown

    def trigger(self) -> Run:
        """Start a run now, beside earlier ones."""
        return Run(RunId(self._client.post_once(self.path("/trigger"))["id"]), self._client)

    def pause(self) -> None:
        """Start nothing by cron until `resume`."""
        self._client.post(self.path("/pause"), {})

    def resume(self) -> None:
        """Start by cron again, from the next time on."""
        self._client.post(self.path("/resume"), {})

    def delete(self) -> None:
        """Delete the schedule; its runs go on."""
        self._client.delete(self.path())

    def path(self, verb: str = "") -> str:
        """Return the path of the schedule at the root."""
        owner = f"?tenant={quote(self.tenant, safe='')}" if self.tenant is not None else ""
        return f"/v1/schedules/{quote(self.name, safe='')}{verb}{owner}"

    def __repr__(self) -> str:
        return f"ScheduleHandle({self.name!r}, tenant={self.tenant!r})"


def request_of(
    graph: Mapping[str, Any],
    *,
    cron: str,
    timezone: str,
    overlap: str,
    starts_within_ms: int | None,
    labels: Mapping[str, str] | None,
    wait_for_capacity: bool,
) -> dict[str, Any]:
    """Return the body of `PUT /v1/schedules/{name}`.

    Args:
        labels: Further labels of the graph; they replace those of the same name.
    """
    given = {**graph, "labels": {**graph.get("labels", {}), **labels}} if labels else dict(graph)
    given |= {"wait_for_capacity": True} if wait_for_capacity else {}
    rules: dict[str, Any] = {"cron": cron, "timezone": timezone, "overlap": overlap}
    rules |= {"starts_within_ms": starts_within_ms} if starts_within_ms is not None else {}
    return {**rules, "graph": given}


@named_call
def schedule(
    outputs: Outputs,
    *,
    name: str,
    cron: str,
    timezone: str = "UTC",
    overlap: str = "skip",
    starts_within_s: float | None = None,
    tenant: str | None = None,
    user: str | None = None,
    labels: Mapping[str, str] | None = None,
    params: Mapping[str, Any] | None = None,
    on_error: str = "fail_fast",
    by_value: Sequence[ModuleType] = (),
    wait_for_capacity: bool = False,
    client: Client | None = None,
) -> ScheduleHandle:
    """Let the root submit the graph by cron: `dag.schedule(report.bind(), name="nightly", cron="0 3 * * 1-5", timezone="Europe/Berlin")`.

    The same call again changes nothing; another graph or other rules replace those of the schedule. A parameter
    `dag.param("SCHEDULED_AT", default="")` of the graph gets the time of the firing, as RFC 3339 text.

    Args:
        name: Name of the schedule in its tenant, and value of the label `schedule` of its runs.
        cron: Minute, hour, day of month, month and day of week.
        timezone: Time zone of the IANA database.
        overlap: While an earlier run goes on: `skip` the firing, `queue` one, `replace` the run, or `allow` both.
        starts_within_s: Longest delay of a firing in seconds, after which it is missed. None: no limit.
        tenant: As for `submit`, like `user`, `labels`, `params`, `on_error`, `by_value` and `wait_for_capacity`.

    Raises:
        SpecError: The graph is wrong; nothing was sent.
        TooManySchedules: The tenant has reached a limit.
        ApiError: The root refused the schedule, or does not answer.
    """
    client = client or connect()
    graph = client.spec_of(outputs, tenant=tenant, user=user, params=params, on_error=on_error, by_value=by_value)
    handle = ScheduleHandle(name, graph.get("tenant"), client)
    body = request_of(
        graph,
        cron=cron,
        timezone=timezone,
        overlap=overlap,
        starts_within_ms=round(starts_within_s * 1000) if starts_within_s is not None else None,
        labels=labels,
        wait_for_capacity=wait_for_capacity,
    )
    client.put(handle.path(), body)
    return handle
