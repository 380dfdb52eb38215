"""Command `top`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated

import typer
from rich.live import Live

from dag.errors import ApiError
from dag.store.http_calls import UNREACHABLE
from serve_apps.cli.session import AddressOption, CliSession, JsonOption, StateDirOption, open_session
from serve_apps.cli.top_render import TopView, top_frame
from serve_apps.schemas.leases import LeasesView
from serve_apps.schemas.meshes import MeshesView
from serve_apps.schemas.queues import QueueView
from serve_apps.schemas.tenants import TenantsView

#: Seconds between two frames.
FRAME_S = 1.0
#: Lines of a frame beside the rows of its four sections: titles, headers, counts of what is left out.
_LINES_BESIDE = 18
#: Fewest rows of a section, however low the terminal is.
_ROWS_MIN = 2


def register(app: typer.Typer) -> None:
    app.command()(top)


def top(
    once: Annotated[bool, typer.Option("--once", help="Print one frame and end, as without a terminal.")] = False,
    address: AddressOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show tenants, leases, queues and meshes, every second anew until Ctrl-C, also over restarts. With --json: one object, once."""
    session = open_session(address, state_dir, as_json=as_json)
    if as_json:
        session.print_json_view(_look(session))
        return
    if once or not session.console.is_terminal:
        session.console.print(top_frame(_look(session)))
        return
    with Live(console=session.console, auto_refresh=False) as live:
        for view, is_away in looks(partial(_look, session, patience_s=0.0)):
            rows = max(_ROWS_MIN, (session.console.height - _LINES_BESIDE) // 4)
            live.update(top_frame(view, rows, is_away=is_away), refresh=True)
            time.sleep(FRAME_S)


def looks(look: Callable[[], TopView]) -> Iterator[tuple[TopView, bool]]:
    """Yield what each look returns, without end; while the root does not answer, the last view, and True.

    Raises:
        ApiError: The root refused, or did not answer the first look.
    """
    view = look()
    yield view, False
    while True:
        try:
            view, is_away = look(), False
        except ApiError as gone:
            if gone.code != UNREACHABLE:
                raise
            is_away = True
        yield view, is_away


def _look(session: CliSession, patience_s: float | None = None) -> TopView:
    """Fetch what one frame shows. `patience_s` as for `Client.ask`."""
    return TopView(
        tenants=session.view(TenantsView, "/v1/tenants", patience_s=patience_s),
        leases=session.view(LeasesView, "/v1/leases", patience_s=patience_s),
        queue=session.view(QueueView, "/v1/queues", {"limit": 0}, patience_s=patience_s),
        meshes=session.view(MeshesView, "/v1/meshes", patience_s=patience_s),
    )
