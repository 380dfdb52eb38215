"""Command `top`."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer
from rich.live import Live

from dag.errors import ApiError
from dag.store.http_calls import UNREACHABLE
from serve_apps.cli.session import AddressOption, CliSession, JsonOption, StateDirOption, followed, open_session
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
        for view, is_away in followed(lasting(partial(_look, session, patience_s=0.0)), lambda: time.sleep(FRAME_S)):
            rows = max(_ROWS_MIN, (session.console.height - _LINES_BESIDE) // 4)
            live.update(top_frame(view, rows, is_away=is_away), refresh=True)


def lasting(look: Callable[[], TopView]) -> Callable[[], tuple[TopView, bool]]:
    """Return a look that outlasts restarts of the root: while the root does not answer, it returns the last view, and True.

    The look raises ApiError if the root refused, or did not answer the first time.
    """
    views: deque[TopView] = deque(maxlen=1)

    def again() -> tuple[TopView, bool]:
        try:
            views.append(look())
        except ApiError as gone:
            if gone.code != UNREACHABLE or not views:
                raise
            return views[-1], True
        return views[-1], False

    return again


def _look(session: CliSession, patience_s: float | None = None) -> TopView:
    """Fetch what one frame shows. `patience_s` as for `Client.ask`."""
    return TopView(
        tenants=session.view(TenantsView, "/v1/tenants", patience_s=patience_s),
        leases=session.view(LeasesView, "/v1/leases", patience_s=patience_s),
        queue=session.view(QueueView, "/v1/queues", {"limit": 0}, patience_s=patience_s),
        meshes=session.view(MeshesView, "/v1/meshes", patience_s=patience_s),
    )
