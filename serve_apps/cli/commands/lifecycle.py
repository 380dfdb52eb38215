"""Commands that start and stop processes: `up`, `down`, `load-scripts`, `demo`."""

from __future__ import annotations

import contextlib
import shlex
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

from dag.store.client_access import STATE_VARIABLE
from federation.config.loading import FederationConfig
from federation.store.redis.client import connect
from federation.store.redis.scripts import load_scripts
from serve_apps.cli.commands.demo import show_demo
from serve_apps.cli.interrupt import Interrupt, ignore_signals
from serve_apps.cli.output import INTERRUPTED, Text, console_for
from serve_apps.cli.stack_log import FILE, StackLog, without_time
from serve_apps.cli.state import (
    STATE,
    ConfigOrDefault,
    StateOption,
    named_or_default,
    read_config_with_warnings,
    startable,
)
from serve_apps.configuration.initial_config import INITIAL_FILE
from serve_apps.processes.process import configure_logging, stop_on_signals
from serve_apps.processes.stores import ANSWER_MS_MAX, VERB_FOLDERS
from serve_apps.standalone.stack import Stack
from serve_apps.standalone.stack_folder import StackFolder
from serve_apps.standalone.startup_config import refuse_another

WATCH_S = 1.0
UP_S_MAX = 240.0
DOWN_S_MAX = 60.0


def register(app: typer.Typer) -> None:
    app.command()(up)
    app.command()(down)
    app.command("load-scripts")(load_redis_scripts)
    app.command()(demo)


def up(
    config: Annotated[
        Path | None,
        typer.Argument(
            help=f"Federation file. Default: {INITIAL_FILE} in this folder, else what `init` would write.",
            metavar="CONFIG",
            show_default=False,
        ),
    ] = None,
    state: StateOption = STATE,
    foreground: Annotated[bool, typer.Option("--foreground", help="Stay in the foreground; Ctrl-C stops everything.")] = False,
    rebuild_ledger: Annotated[
        bool, typer.Option("--rebuild-ledger", help="Create the ledger again on a Redis at `redis.url` that was emptied on purpose.")
    ] = False,
) -> None:
    """Start a federation on this machine: Redis, Ray clusters, the root mesh, child meshes."""
    console = console_for()
    checked = startable(config)
    refuse_another(StackFolder(state), checked, config or (INITIAL_FILE if INITIAL_FILE.exists() else "the initial configuration"))
    if foreground:
        _up_here(checked, state, console, rebuild_ledger=rebuild_ledger)
    else:
        _up_detached(config, state, console, rebuild_ledger=rebuild_ledger)


def _up_here(config: FederationConfig, state: Path, console: Console, *, rebuild_ledger: bool) -> None:
    log = StackLog(console)
    configure_logging(cast("TextIO", log))
    with contextlib.closing(log), _stack(config, state, log, rebuild_ledger=rebuild_ledger) as stack:
        log.say(f"up: {stack.address}  (docs at {stack.address}/docs); Ctrl-C stops everything", style="bold")
        stop = stop_on_signals()
        while not stop.wait(WATCH_S):
            stack.watch()
        log.say("stopping")
    if stop.is_interrupt:
        raise typer.Exit(INTERRUPTED)


def _up_detached(config: Path | None, state: Path, console: Console, *, rebuild_ledger: bool) -> None:
    folder = StackFolder(state)
    with folder:
        pass  # Raises, with the owner's pid, if another process owns the folder.
    log = folder.path / FILE
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable,
        "-m",
        "serve_apps.cli",
        "up",
        *([str(config)] if config else []),
        "--state-dir",
        str(folder.path),
        "--foreground",
    ]
    command += ["--rebuild-ledger"] if rebuild_ledger else []
    asked = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: asked.set())  # Until the process exists that must be stopped.
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM stops the start and its processes, as Ctrl-C does.
        if asked.is_set():
            signal.raise_signal(signal.SIGTERM)
        _follow_start(process, folder, log, console)
    except KeyboardInterrupt:
        console.print("stopping the processes that were started")
        process.terminate()
        process.wait(DOWN_S_MAX)
        raise typer.Exit(INTERRUPTED) from None
    facts = folder.read("client.json")
    console.print(Text.assemble(("up", "bold"), f": {facts['address']}  (docs at {facts['address']}/docs)"))
    console.print(f"page: {facts['address']}/")
    console.print(f"runs are submitted to tenant {facts['tenant']}; address and key are in {folder.path / 'client.json'}")
    if folder.path != STATE.resolve():
        console.print(f"first: export {STATE_VARIABLE}={shlex.quote(str(folder.path))}, so that commands and programs find this federation")
    console.print("next: schedulemesh submit FILE.py:graph | schedulemesh runs | schedulemesh down")


def _follow_start(process: subprocess.Popen[bytes], folder: StackFolder, log: Path, console: Console) -> None:
    """Print the log of the stack until the stack is up.

    Raises:
        typer.Exit: The stack ended, or did not come up within `UP_S_MAX` seconds.
    """
    deadline = time.monotonic() + UP_S_MAX
    with log.open() as lines:
        while time.monotonic() < deadline:
            ended = process.poll() is not None
            for line in map(without_time, lines):
                if not line.startswith(("up: ", "warning: ")):  # This process prints those itself.
                    console.print(line.rstrip())
            if folder.read("stack.json").get("state") == "up":
                return
            if ended:
                raise typer.Exit(1)
            time.sleep(0.1)
    process.terminate()
    console.print(f"the stack did not come up within {UP_S_MAX:.0f} s; see {log}", style="red")
    raise typer.Exit(1)


def down(state: StateOption = STATE) -> None:
    """Stop the federation of this state folder. Runs and results stay in the folder."""
    console = console_for()
    owner = StackFolder(state).owner()
    if owner is None:
        console.print(f"no federation runs with the state folder {state}")
        return
    owner.terminate()
    try:
        owner.wait(DOWN_S_MAX)
    except psutil.TimeoutExpired:
        console.print(f"process {owner.pid} did not stop within {DOWN_S_MAX:.0f} s; killing the process and its children", style="red")
        for process in (*owner.children(recursive=True), owner):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        raise typer.Exit(1) from None
    console.print(f"down: all processes have stopped; runs and results are kept in {state}, open runs continue at the next `up`")


def load_redis_scripts(
    url: Annotated[
        str,
        typer.Option(
            "--url",
            envvar="SCHEDULEMESH_REDIS_URL",
            show_envvar=True,
            help="URL of the Redis server, with a user that may load functions. Prefer the environment variable.",
        ),
    ],
) -> None:
    """Load this version's ledger functions into Redis. Needed once per version where the root's Redis user may only call functions."""
    with connect(url, timeout_ms=ANSWER_MS_MAX) as client:
        number = load_scripts(client, VERB_FOLDERS)
    console_for().print(f"loaded: {number} verbs")


def demo(
    config: ConfigOrDefault = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep everything running and print the address.")] = False,
    out: Annotated[Path, typer.Option("--out", help="Folder for the picture of the report.")] = Path("digits-report"),
) -> None:
    """Start a federation, run a real workflow over two meshes, show where each stage ran and why, and stop everything."""
    console = console_for()
    checked = read_config_with_warnings(named_or_default(config))
    begun = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="schedulemesh-demo-") as folder,
        contextlib.closing(StackLog(console)) as log,
        _stack(checked, Path(folder), log) as stack,
    ):
        started = time.monotonic()
        show_demo(stack.address, stack.api_key, console, out)
        console.print(f"\nstart {started - begun:.1f} s, run {time.monotonic() - started:.1f} s")
        is_interrupted = keep and _keep(stack, console)
        console.print("stopping")
    console.print(f"total {time.monotonic() - begun:.1f} s")
    if is_interrupted:
        raise typer.Exit(INTERRUPTED)


def _keep(stack: Stack, console: Console) -> bool:
    """Keep the stack up until SIGTERM or Ctrl-C, and return whether it was Ctrl-C."""
    console.print(Text.assemble(("up", "bold"), f": {stack.address}  (docs at {stack.address}/docs); Ctrl-C stops everything"))
    console.print(f"in another terminal: export SCHEDULEMESH_ADDRESS={stack.address} SCHEDULEMESH_API_KEY={stack.api_key}", soft_wrap=True)
    stop = stop_on_signals()
    while not stop.wait(WATCH_S):
        stack.watch()
    return stop.is_interrupt


# -- what they share ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _stack(config: FederationConfig, state: Path, log: StackLog, *, rebuild_ledger: bool = False) -> Iterator[Stack]:
    """Yield a stack that is up. However the block ends, SIGTERM and Ctrl-C included, the whole stack is stopped first."""
    interrupt = Interrupt(log.say)
    interrupt.listen()
    with StackFolder(state) as folder:
        log.attach(folder.path)
        stack = Stack(config, folder, say=log.say, rebuild_ledger=rebuild_ledger, is_wanted=interrupt.is_wanted)
        try:
            stack.start()
            log.say("all parts are up")
            interrupt.raise_from_now_on()
            stack.check_wanted()  # A signal may have come just before `raise_from_now_on`.
            yield stack
        except Exception as error:
            if interrupt.came:  # Code in between may have wrapped the interrupt in its own error.
                raise KeyboardInterrupt from error
            raise
        finally:
            failure = sys.exc_info()[1]
            if isinstance(failure, KeyboardInterrupt):
                interrupt.post()
            elif failure is not None:
                log.say("the stack failed: stopping everything that was started …")
            ignore_signals()
            stack.stop()
            if failure is None or isinstance(failure, KeyboardInterrupt):
                log.say("all processes have stopped")  # After a failure the error is the last line instead.
