"""Changes that people made, in words, as a table and as lines. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import RenderableType

from federation.api_keys import EVERYBODY
from federation.change_log import Outcome
from mesh.core.clock import moment
from serve_apps.cli.output import RoomyTable, Text
from serve_apps.schemas.history import RecordedChangesView, RecordedChangeView

_COLOURS = {Outcome.ALLOWED: "green", Outcome.REFUSED: "yellow", Outcome.FAILED: "red"}
#: Verb and object by operation; `{}`: the parts of the target, which otherwise follow.
WORDS: Mapping[str, str] = {
    "POST /v1/runs": "submit a run",
    "POST /v1/runs/{run_id}/cancel": "cancel run",
    "POST /v1/runs/{run_id}/resume": "resume run",
    "POST /v1/runs/{run_id}/signals/{name}": "signal run {}: {}",
    "DELETE /v1/runs/{run_id}": "delete run",
    "PUT /v1/schedules/{name}": "write schedule",
    "DELETE /v1/schedules/{name}": "delete schedule",
    "POST /v1/schedules/{name}/pause": "pause schedule",
    "POST /v1/schedules/{name}/resume": "resume schedule",
    "POST /v1/schedules/{name}/trigger": "trigger schedule",
    "POST /v1/cache/drop": "drop cached values",
    "POST /v1/dead/{letter}/drop": "drop dead letter",
    "POST /v1/dead/{letter}/requeue": "requeue dead letter",
    "POST /v1/meshes/{mesh}/drain": "drain mesh",
    "POST /v1/meshes/{mesh}/undrain": "undrain mesh",
    "POST /v1/tenants/{tenant}/drain": "drain tenant",
    "POST /v1/tenants/{tenant}/resume": "resume tenant",
    "POST /v1/tenants/{tenant}/suspend": "suspend tenant",
    "POST /v1/keys/{key}/revoke": "revoke key",
    "schedulemesh apply": "apply file",
    "schedulemesh keys create": "create a key",
    "schedulemesh keys rotate": "rotate key",
    "schedulemesh keys revoke": "revoke key",
    "schedulemesh suspend": "suspend tenant",
    "schedulemesh resume": "resume tenant",
    "schedulemesh undrain": "undrain mesh",
    "schedulemesh dead requeue": "requeue dead letter",
    "schedulemesh dead drop": "drop dead letter",
}


def changes_table(view: RecordedChangesView) -> RenderableType:
    """Render `schedulemesh changes`."""
    if not view.changes:
        return Text("no changes that this key covers")
    table = RoomyTable(box=None, pad_edge=False, header_style="bold")
    table.add_column("at", no_wrap=True)
    table.add_column("by", overflow="fold", max_width=16)
    table.add_column("outcome", no_wrap=True)
    table.add_column("what", overflow="fold")
    for change in view.changes:
        table.add_row(Text(moment(change.at_ms)), Text(_by(change)), _outcome(change), Text(in_words(change)))
    return table


def change_line(change: RecordedChangeView) -> Text:
    """Return one change as a line, in the order of the columns."""
    words = " ".join(in_words(change).splitlines())
    return Text.assemble(f"{moment(change.at_ms)}  {_by(change)}  ", _outcome(change), f"  {words}")


def in_words(change: RecordedChangeView) -> str:
    """Return what was done: verb and object, the tenant if the object is none, the fields of the request, and the code of a refusal."""
    known = WORDS.get(change.operation, change.operation.removeprefix("schedulemesh "))  # A newer root may know more.
    parts = change.target.split("/", known.count("{}") - 1) if "{}" in known else []
    done = known.format(*parts) if parts and len(parts) == known.count("{}") else f"{known} {change.target}".rstrip()
    is_of_tenant = change.tenant != EVERYBODY and not known.endswith("tenant")
    details = [f"{name.replace('_', ' ')}: {text}" for name, text in change.details.items() if text != change.tenant]
    refusal = [f"code: {change.code}"] if change.code else []
    return "; ".join((f"{done} of {change.tenant}" if is_of_tenant else done, *details, *refusal))


def _by(change: RecordedChangeView) -> str:
    return f"{change.user} ({change.key})" if change.user else change.key


def _outcome(change: RecordedChangeView) -> Text:
    return Text(str.__str__(change.outcome), style=_COLOURS.get(change.outcome, ""))
