"""The commands that start and stop processes: `up`, `down`, `load-verbs`, `keys`, `demo`."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, TextIO, cast

import psutil
import typer
from rich.console import Console

from federation.config.loading import FederationConfig
from federation.store.redis_client import connect
from federation.store.redis_key_ring import RedisKeyRing
from federation.store.redis_scripts import load_verbs
from mesh.clock import SystemClock
from mesh.errors import MeshError
from mesh.ids import MeshId, TenantPath
from mesh.printable import check_printable
from serve_apps.cli.demo import show_demo
from serve_apps.cli.interrupt import Interrupt, ignore_signals
from serve_apps.cli.output import RoomyTable, Text, console_for, print_json
from serve_apps.cli.session import JsonOption
from serve_apps.cli.stack_log import FILE, StackLog, without_time
from serve_apps.cli.state import STATE, ConfigOrDefault, StateOption, named_or_default, read_told, root_settings, running_stores
from serve_apps.one_machine.stack import Stack
from serve_apps.one_machine.state_folder import StateFolder
from serve_apps.one_machine.taken_at_start import refuse_another
from serve_apps.processes.process import configure_logging, stop_on_signals
from serve_apps.processes.stores import ANSWER_MS_MAX, VERB_FOLDERS
from serve_apps.requests.access import EVERYBODY
from serve_apps.requests.auth import id_of, issue, issue_for_mesh

WATCH_S = 1.0
UP_S_MAX = 240.0
DOWN_S_MAX = 60.0

#: What is told of a key beside its id.
KEY_FIELDS = ("tenant", "mesh", "user", "created_ms", "revoked")

keys_app = typer.Typer(help="API keys of tenants and of meshes: made, listed, revoked.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(up)
    app.command()(down)
    app.command("load-verbs")(load_redis_verbs)
    app.command()(demo)
    app.add_typer(keys_app, name="keys")


def up(
    config: ConfigOrDefault = None,
    state: StateOption = STATE,
    foreground: Annotated[bool, typer.Option("--foreground", help="Stay in the foreground; Ctrl-C stops everything.")] = False,
    rebuild_ledger: Annotated[
        bool, typer.Option("--rebuild-ledger", help="The server of `redis.url` was emptied on purpose: found its ledger again.")
    ] = False,
) -> None:
    """Start a federation on this machine: Redis, Ray clusters, the root mesh, child meshes."""
    console = console_for()
    file = named_or_default(config)
    checked = read_told(file)
    refuse_another(StateFolder(state), checked, file)
    if foreground:
        _up_here(checked, state, console, rebuild_ledger=rebuild_ledger)
    else:
        _up_detached(file, state, console, rebuild_ledger=rebuild_ledger)


def _up_here(config: FederationConfig, state: Path, console: Console, *, rebuild_ledger: bool) -> None:
    log = StackLog(console)
    configure_logging(cast("TextIO", log))
    with contextlib.closing(log), _stack(config, state, log, rebuild_ledger=rebuild_ledger) as stack:
        log.say(f"up: {stack.address}  (docs at {stack.address}/docs); Ctrl-C stops everything", style="bold")
        stop = stop_on_signals()
        while not stop.wait(WATCH_S):
            stack.watch()
        log.say("stopping")


def _up_detached(config: Path, state: Path, console: Console, *, rebuild_ledger: bool) -> None:
    folder = StateFolder(state)
    with folder:
        pass  # Nobody else owns it; otherwise this says who.
    log = folder.path / FILE
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "serve_apps.cli", "up", str(config), "--state", str(folder.path), "--foreground"]
    command += ["--rebuild-ledger"] if rebuild_ledger else []
    asked = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: asked.set())  # Until there is something that could be ended.
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # Ends the start as Ctrl-C does: with all that it has begun.
        if asked.is_set():
            signal.raise_signal(signal.SIGTERM)
        _follow_start(process, folder, log, console)
    except KeyboardInterrupt:
        console.print("stopping what was started")
        process.terminate()
        process.wait(DOWN_S_MAX)
        raise typer.Exit(130) from None
    facts = folder.read("client.json")
    console.print(Text.assemble(("up", "bold"), f": {facts['address']}  (docs at {facts['address']}/docs)"))
    console.print(f"submits go to tenant {facts['tenant']}; address and key are in {folder.path / 'client.json'}")
    console.print("next: schedulemesh submit FILE.py:graph | schedulemesh runs | schedulemesh down")


def _follow_start(process: subprocess.Popen[bytes], folder: StateFolder, log: Path, console: Console) -> None:
    """Show what the stack says of itself until it is up.

    Raises:
        typer.Exit: It ended or did not come up in time.
    """
    deadline = time.monotonic() + UP_S_MAX
    with log.open() as lines:
        while time.monotonic() < deadline:
            ended = process.poll() is not None
            for line in map(without_time, lines):
                if not line.startswith(("up: ", "warning: ")):  # They are said here.
                    console.print(line.rstrip())
            if folder.read("stack.json").get("state") == "up":
                return
            if ended:
                raise typer.Exit(1)
            time.sleep(0.1)
    process.terminate()
    console.print(f"not up within {UP_S_MAX:.0f} s; see {log}", style="red")
    raise typer.Exit(1)


def down(state: StateOption = STATE) -> None:
    """Stop the federation that runs with this state folder. Runs and results stay in the folder."""
    console = console_for()
    owner = StateFolder(state).owner()
    if owner is None:
        console.print(f"nothing runs with the state folder {state}")
        return
    owner.terminate()
    try:
        owner.wait(DOWN_S_MAX)
    except psutil.TimeoutExpired:
        console.print(f"process {owner.pid} did not stop within {DOWN_S_MAX:.0f} s; killing it and what it started", style="red")
        for process in (*owner.children(recursive=True), owner):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        raise typer.Exit(1) from None
    console.print(f"down: nothing runs any more; runs and results are kept in {state}, open runs go on at the next `up`")


def load_redis_verbs(
    url: Annotated[
        str,
        typer.Option(
            "--url",
            envvar="SCHEDULEMESH_REDIS_URL",
            show_envvar=True,
            help="The server, with a user who may load them. Best by the variable.",
        ),
    ],
) -> None:
    """Bring this version's verbs of the ledger to a Redis whose root may only call them; once per version."""
    with connect(url, timeout_ms=ANSWER_MS_MAX) as client:
        number = load_verbs(client, VERB_FOLDERS)
    console_for().print(f"loaded: {number} verbs")


def demo(
    config: ConfigOrDefault = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave everything up, and print the address.")] = False,
    out: Annotated[Path, typer.Option("--out", help="Where the report's picture goes.")] = Path("digits-report"),
) -> None:
    """Start a federation, run a real workflow over two meshes, show what happened where and why, and stop everything."""
    console = console_for()
    checked = read_told(named_or_default(config))
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="schedulemesh-demo-") as folder, _stack(checked, Path(folder), StackLog(console)) as stack:
        started = time.monotonic()
        show_demo(stack.address, stack.api_key, console, out)
        console.print(f"\nstart {started - begun:.1f} s, run {time.monotonic() - started:.1f} s")
        if keep:
            _keep(stack, console)
        console.print("stopping")
    console.print(f"in all {time.monotonic() - begun:.1f} s")


def _keep(stack: Stack, console: Console) -> None:
    console.print(Text.assemble(("up", "bold"), f": {stack.address}  (docs at {stack.address}/docs); Ctrl-C stops everything"))
    console.print(f"in another terminal: export SCHEDULEMESH_ADDRESS={stack.address} SCHEDULEMESH_API_KEY={stack.api_key}", soft_wrap=True)
    stop = stop_on_signals()
    while not stop.wait(WATCH_S):
        stack.watch()


# -- keys --------------------------------------------------------------------------------------------------------------


def _printable(name: str) -> str:
    """The name, for typer. Raises typer.BadParameter."""
    try:
        return check_printable(name)
    except ValueError as wrong:
        raise typer.BadParameter(str(wrong)) from None


@keys_app.command("create")
def create_key(
    tenant: Annotated[
        str | None, typer.Argument(help="Path of the tenant; the key reaches it and all below. `*`: an operator's key.")
    ] = None,
    mesh: Annotated[str | None, typer.Option("--mesh", help="Make a mesh's key instead: it joins with it and reaches no tenant.")] = None,
    user: Annotated[str, typer.Option(callback=_printable, help="Whose key it is: what is submitted with it counts as this user's.")] = "",
    state: StateOption = STATE,
    as_json: JsonOption = False,
) -> None:
    """Make an API key and print it: the only time that it can be seen."""
    if (tenant is None) == (mesh is None):
        raise typer.BadParameter("name either a tenant or, with --mesh, a mesh")
    if mesh is not None and user:
        raise typer.BadParameter("a mesh's key is no user's; --user goes with a tenant")
    stores, settings = running_stores(state), root_settings(state)
    ring, now_ms = RedisKeyRing(stores.client, stores.keys), SystemClock().wall_ms()
    if mesh is not None:
        if mesh not in settings.roster.meshes:
            raise MeshError(f"the configuration names no mesh {mesh}; it has {', '.join(settings.roster.meshes)}")
        _show_key(issue_for_mesh(ring, MeshId(mesh), now_ms), as_json=as_json)
        return
    path = TenantPath(str(tenant))
    if path != EVERYBODY:
        stores.ledger.snapshot().tree.tenant(path)
    _show_key(issue(ring, path, now_ms, user), as_json=as_json)


def _show_key(key: str, *, as_json: bool) -> None:
    typer.echo(json.dumps({"id": id_of(key), "key": key}, indent=2) if as_json else key)


@keys_app.command("list")
def list_keys(state: StateOption = STATE, as_json: JsonOption = False) -> None:
    """The keys by id; secrets are not kept."""
    stores = running_stores(state)
    if as_json:
        listed = RedisKeyRing(stores.client, stores.keys).list()
        print_json(json.dumps({"keys": [{"id": key.key, **{name: getattr(key, name) for name in KEY_FIELDS}} for key in listed]}, indent=2))
        return
    table = RoomyTable("id", "of", "user", "created", "revoked", box=None, pad_edge=False, header_style="bold")
    for key in RedisKeyRing(stores.client, stores.keys).list():
        created = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(key.created_ms / 1000))
        table.add_row(key.key, f"mesh {key.mesh}" if key.mesh else key.tenant, key.user, created, "yes" if key.revoked else "")
    console_for().print(table)


@keys_app.command("revoke")
def revoke_key(key: Annotated[str, typer.Argument(help="The id of the key.")], state: StateOption = STATE) -> None:
    """Make a key useless from now on."""
    stores = running_stores(state)
    if not RedisKeyRing(stores.client, stores.keys).revoke(key):
        raise MeshError(f"there is no key {key}; `schedulemesh keys list` shows them")
    typer.echo(f"revoked {key}")


# -- what they share ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _stack(config: FederationConfig, state: Path, log: StackLog, *, rebuild_ledger: bool = False) -> Iterator[Stack]:
    """A stack that is up; whatever ends the block, SIGTERM and Ctrl-C included, it is stopped whole before anything else happens."""
    interrupt = Interrupt(log.say)
    interrupt.listen()
    with StateFolder(state) as folder:
        log.attach(folder.path)
        stack = Stack(config, folder, say=log.say, rebuild_ledger=rebuild_ledger, is_wanted=interrupt.is_wanted)
        try:
            stack.start()
            log.say("all parts are up")
            interrupt.raise_from_now_on()
            stack.check_wanted()  # It may have come just before.
            yield stack
        except Exception as error:
            if interrupt.came:  # Code in between has made an error of its own of it.
                raise KeyboardInterrupt from error
            raise
        finally:
            failure = sys.exc_info()[1]
            if isinstance(failure, KeyboardInterrupt):
                interrupt.tell()
            elif failure is not None:
                log.say("it does not come up: stopping everything that was started …")
            ignore_signals()
            stack.stop()
            if failure is None or isinstance(failure, KeyboardInterrupt):
                log.say("nothing is left running")  # An error is told after this, and is to be the last word.
