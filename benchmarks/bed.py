"""Test bed: a federation, and this process as a plain driver of the same Ray cluster.

The cluster has two equal nodes: by node label one is the mesh's slice, the other is plain Ray's. So neither side is disturbed by the
other's worker processes or placement groups, and plain Ray runs as its users run it.
"""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from string import Template
from types import FrameType
from typing import Any

import ray

from benchmarks.measuring import WALL
from dag.store.client_access import Access
from dag.store.remote import Client
from federation.config.loading import FederationConfig
from serve_apps.configuration.config_file import read_config
from serve_apps.processes.process import configure_logging
from serve_apps.standalone.stack import Stack
from serve_apps.standalone.stack_folder import StackFolder

ROOT = Path(__file__).resolve().parents[1]
TEMPLATE = Path(__file__).with_name("federation.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bed:
    """Handle of the test bed."""

    client: Client
    redis_url: str  #: URL of the federation's Redis.
    cpus: int  #: CPUs per side.
    startup: dict[str, float]  #: Milliseconds of each step of the start, of the whole start, and, once the bed is closed, of the stop.

    def plain(self, function: Any) -> Any:
        """Return the function as a remote function of plain Ray, on plain Ray's node, with one CPU per call."""
        return ray.remote(num_cpus=1)(function).options(label_selector={"side": "plain"})


@contextmanager
def open_bed(cpus: int) -> Iterator[Bed]:
    """Open a bed; however the block ends, all processes are stopped. `startup` is complete after the block."""
    startup: dict[str, float] = {}
    with ExitStack() as opened:
        stack = opened.enter_context(open_stack(TEMPLATE, cpus=cpus, startup=startup))
        stack.clusters["bed"].connect(namespace="benchmarks")
        let_sigterm_interrupt()
        opened.callback(ray.shutdown)
        access = Access(address=stack.address, api_key=stack.api_key, tenant=stack.default_tenant)
        client = opened.enter_context(Client(access))
        yield Bed(client=client, redis_url=stack.redis_url, cpus=cpus, startup=startup)


@contextmanager
def open_stack(template: Path, *, cpus: int, startup: dict[str, float] | None = None) -> Iterator[Stack]:
    """Start a federation from a template in a temporary folder; however the block ends, processes and folder are removed.

    Args:
        startup: Receives the milliseconds of each step, and, at the end of the block, of the stop.
    """
    configure_logging()
    took: dict[str, float] = {} if startup is None else startup
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="schedulemesh-bench-")))
        owned = opened.enter_context(StackFolder(folder / "state"))
        steps = _Steps()
        stack = Stack(_config(template, cpus, folder), owned, say=steps.begin)
        opened.callback(_stop, stack, took)
        stack.start()
        took.update(steps.durations_ms())
        yield stack


class _Steps:
    """Steps of a start, each from its message to the next one's."""

    def __init__(self) -> None:
        self._begun = [("before the first message", time.perf_counter())]

    def begin(self, words: str) -> None:
        self._begun.append((words, time.perf_counter()))

    def durations_ms(self) -> dict[str, float]:
        """Return the duration of all steps until now, and their sum."""
        ends = [at for _, at in self._begun[1:]] + [time.perf_counter()]
        steps = {words: (end - at) * 1000 for (words, at), end in zip(self._begun, ends, strict=True)}
        return {**steps, WALL: sum(steps.values())}


def let_sigterm_interrupt() -> None:
    """Make SIGTERM end this process as Ctrl-C does, so that its children are stopped.

    `ray.init` installs its own SIGTERM handler, so call this again after it.
    """

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGINT, interrupt)


def _config(template: Path, cpus: int, folder: Path) -> FederationConfig:
    file = folder / "federation.yaml"
    file.write_text(Template(template.read_text()).substitute(cpus=cpus, root=ROOT))
    return read_config(file)


def _stop(stack: Stack, startup: dict[str, float]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # A second one must not cut the stop short.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    begun = time.perf_counter()
    stack.stop()
    let_sigterm_interrupt()
    startup["the stop, to the end of the last process"] = (time.perf_counter() - begun) * 1000
