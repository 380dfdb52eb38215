"""Client, console and output format of a command that talks to the root."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from pydantic import BaseModel, ValidationError
from rich.console import Console

from dag.errors import UnknownRun
from dag.store.client_access import ADDRESS_VARIABLE, CLIENT_FILE, IN_TERMINAL, STATE_VARIABLE, find_access
from dag.store.http_calls import Params
from dag.store.remote import Client, Run
from mesh.core.clock import date_of, ms_of
from mesh.core.counting import counted
from mesh.core.near_names import nearest
from mesh.errors import MeshError, RuntimeAdapterError
from serve_apps.cli.output import console_for, print_json
from serve_apps.schemas.runs import RunsView

#: Newest runs among which a near id is looked for: as many as one answer holds.
NEAR_RUNS = 1000

V = TypeVar("V", bound=BaseModel)
T = TypeVar("T")

JsonOption = Annotated[bool, typer.Option("--json", help="Print only JSON.")]
AddressOption = Annotated[
    str | None,
    typer.Option(
        "--address",
        help="Address of the root, like http://127.0.0.1:8000; the key comes from SCHEDULEMESH_API_KEY. Default: the stack of this folder.",
    ),
]
StateDirOption = Annotated[
    Path | None,
    typer.Option("--state-dir", help=f"State folder whose stack is asked. Default: {STATE_VARIABLE}, or the stack of this folder."),
]


def checked_time(text: str | None) -> str | None:
    """Return the text of an option if it is a time. Raises typer.BadParameter."""
    return _checked(text, ms_of)


def checked_day(text: str | None) -> str | None:
    """Return the text of an option if it is a day. Raises typer.BadParameter."""
    return _checked(text, date_of)


def _checked(text: str | None, read: Callable[[str], object]) -> str | None:
    try:
        if text is not None:
            read(text)
    except ValueError as wrong:
        raise typer.BadParameter(str(wrong)) from None
    return text


def followed(look: Callable[[], T], pause: Callable[[], object] | None = None) -> Iterator[T]:
    """Yield what each look returns, without end.

    Args:
        pause: Called between two looks; None: a look itself waits for something new.
    """
    while True:
        yield look()
        if pause is not None:
            pause()


class CliSession:
    """Connection of one command to the root and to the terminal.

    Args:
        state_folder: State folder of the root's stack on this machine; None if unknown.
    """

    def __init__(self, client: Client, console: Console, *, as_json: bool, state_folder: Path | None = None) -> None:
        self.client = client
        self.console = console
        self.as_json = as_json
        self.state_folder = state_folder

    def view(self, kind: type[V], path: str, params: Params | None = None, *, patience_s: float | None = None) -> V:
        """Fetch a path of the root and return the validated view; `patience_s` as for `Client.ask`.

        Raises:
            UnknownRun, ApiError: As `Client.run`.
            RuntimeAdapterError: The root has another version and its response cannot be read.
        """
        return read_view(kind, self.client.ask(path, params, patience_s=patience_s))

    def run(self, run_id: str) -> Run:
        """Return a run by its id. Raises UnknownRun, which suggests a near id if there is one, and ApiError."""
        try:
            return self.client.run(run_id)
        except UnknownRun as unknown:
            raise UnknownRun(f"{unknown}{self.near_run(run_id)}") from None

    def near_run(self, run_id: str) -> str:
        """Return `; did you mean night?` for a recent run that the text begins or resembles; else an empty text."""
        try:
            recent = self.client.ask("/v1/runs", {"limit": NEAR_RUNS})
            ids = [one.id for one in read_view(RunsView, recent).runs]
        except MeshError:
            return ""
        begun = next((one for one in ids if run_id and one.startswith(run_id)), None)
        return nearest(begun, (begun,)) if begun is not None else nearest(run_id, ids)

    @property
    def is_owner(self) -> bool:
        """Whether the user reads the state folder of the root's stack, and has named no key."""
        return self.state_folder is not None and self.client.access.key_from == CLIENT_FILE

    def print_json_view(self, view: BaseModel) -> None:
        """Print the view as JSON."""
        print_json(view.model_dump_json(indent=2))


def open_session(address: str | None, state_dir: Path | None = None, *, as_json: bool) -> CliSession:
    """Open a session with the root at `address`, or of the stack of `state_dir`, or that the environment or the folder names.

    Raises:
        ApiError: No root is named, or none runs with the named state folder.
    """
    access = find_access(address, None, environment=os.environ, folder=Path.cwd(), state_dir=state_dir, asked=IN_TERMINAL)
    console = console_for()
    return CliSession(Client(access), console, as_json=as_json, state_folder=access.state_folder)


def is_elsewhere(address: str | None) -> bool:
    """Return whether the user named the root's address; otherwise the root is that of the state folder."""
    return address is not None or bool(os.environ.get(ADDRESS_VARIABLE))


def read_view(kind: type[V], answer: object) -> V:
    """Parse the response as a view. Raises RuntimeAdapterError."""
    try:
        return kind.model_validate(answer)
    except ValidationError as strange:
        raise RuntimeAdapterError(
            f"the root's answer is not a {kind.__name__} ({counted(strange.error_count(), 'difference')}); is it another version?"
        ) from None
