"""Commands `dead` (nodes that failed for good) and `audit` (disagreements between stores).

Both need an operator. The owner of this state folder's stack is an operator; anyone else needs a key of all tenants.
"""

from __future__ import annotations

from typing import Annotated, TypeVar
from urllib.parse import quote

import typer
from pydantic import BaseModel
from rich.console import RenderableType

from dag.errors import UnknownLetter
from dag.requeueing import requeue
from federation.api_keys import EVERYBODY
from mesh.core.clock import SystemClock
from mesh.core.ids import TenantPath
from serve_apps.cli.output import console_for, print_json
from serve_apps.cli.recording import recorded
from serve_apps.cli.render import audit_page, letter_page, letters_table
from serve_apps.cli.session import AddressOption, JsonOption, is_elsewhere, open_session, read_view
from serve_apps.cli.state import STATE, StateOption, running_stores
from serve_apps.processes.stores import Stores
from serve_apps.schemas.audits import AuditView
from serve_apps.schemas.dead_letters import DroppedView, LettersView, LetterView, RequeuedView
from serve_apps.views.dead_letters import audit_view, letter_view, letters_view

V = TypeVar("V", bound=BaseModel)

LetterArgument = Annotated[str, typer.Argument(help="Name of the dead letter, RUN:NODE.", metavar="LETTER")]

dead_app = typer.Typer(help="Dead letters: nodes that failed for good.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(dead_app, name="dead")
    app.command()(audit)


@dead_app.command("list")
def list_letters(
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most this many.")] = 100,
    address: AddressOption = None,
    state: StateOption = STATE,
    as_json: JsonOption = False,
) -> None:
    """List the dead letters, newest first."""
    if is_elsewhere(address):
        view = _asked(LettersView, f"/v1/dead?limit={limit}", address)
    else:
        view = letters_view(running_stores(state).runs.dead(limit))
    _show(view, letters_table(view), as_json=as_json)


@dead_app.command("show")
def show_letter(letter: LetterArgument, address: AddressOption = None, state: StateOption = STATE, as_json: JsonOption = False) -> None:
    """Show one dead letter in full."""
    if is_elsewhere(address):
        view = _asked(LetterView, _path(letter), address)
    else:
        found = running_stores(state).runs.dead_letter(letter)
        if found is None:
            raise UnknownLetter(f"there is no dead letter {letter}")
        view = letter_view(found)
    _show(view, letter_page(view), as_json=as_json)


@dead_app.command("requeue")
def requeue_letter(letter: LetterArgument, address: AddressOption = None, state: StateOption = STATE, as_json: JsonOption = False) -> None:
    """Submit the whole run of the dead letter again, as a new run, and drop all dead letters of the old run."""
    if is_elsewhere(address):
        view = _described(RequeuedView, f"{_path(letter)}/requeue", address)
    else:
        stores = running_stores(state)
        with recorded(stores, "dead requeue", letter, tenant=_tenant_of(stores, letter)) as details:
            run = requeue(stores.runs, stores.blobs, letter, SystemClock().wall_ms())
            details["run"] = run
        view = RequeuedView(letter=letter, run=run)
    _show(view, f"submitted again as {view.run}", as_json=as_json)


@dead_app.command("drop")
def drop_letter(letter: LetterArgument, address: AddressOption = None, state: StateOption = STATE, as_json: JsonOption = False) -> None:
    """Remove the dead letter. Its run does not change."""
    if is_elsewhere(address):
        view = _described(DroppedView, f"{_path(letter)}/drop", address)
    else:
        stores = running_stores(state)
        with recorded(stores, "dead drop", letter, tenant=_tenant_of(stores, letter)):
            view = DroppedView(letters=stores.runs.drop_dead((letter,)))
    _show(view, f"dropped {view.letters}", as_json=as_json)


def audit(address: AddressOption = None, state: StateOption = STATE, as_json: JsonOption = False) -> None:
    """Check that stages and queues agree, and leases and their sums. Exit code 1 if they do not."""
    if is_elsewhere(address):
        view = _asked(AuditView, "/v1/audit", address)
    else:
        stores = running_stores(state)
        view = audit_view(stores.queue.orphans(), stores.ledger.audit())
    _show(view, audit_page(view), as_json=as_json)
    if view.orphans or view.mismatches:
        raise typer.Exit(1)


def _tenant_of(stores: Stores, letter: str) -> TenantPath:
    """Return the tenant of the letter; `*` if there is no such letter."""
    found = stores.runs.dead_letter(letter)
    return found.tenant if found is not None else EVERYBODY


def _path(letter: str) -> str:
    return f"/v1/dead/{quote(letter, safe='')}"


def _asked(kind: type[V], path: str, address: str | None) -> V:
    return read_view(kind, open_session(address, as_json=False).client.ask(path))


def _described(kind: type[V], path: str, address: str | None) -> V:
    return read_view(kind, open_session(address, as_json=False).client.post(path, {}))


def _show(view: BaseModel, shown: RenderableType, *, as_json: bool) -> None:
    if as_json:
        print_json(view.model_dump_json(indent=2))
    else:
        console_for().print(shown)
