"""The bed: a federation of its own, and this process as a plain driver of the same Ray cluster.

The cluster has two nodes alike: one is the mesh's slice, the other is plain Ray's, by node label. So neither side has the
worker processes or the placement groups of the other before its feet, and plain Ray is measured as its users have it.
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
from serve_apps.one_machine.stack import Stack
from serve_apps.one_machine.state_folder import StateFolder
from serve_apps.processes.process import configure_logging

ROOT = Path(__file__).resolve().parents[1]
TEMPLATE = Path(__file__).with_name("federation.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bed:
    """What is measured on."""

    client: Client
    redis_url: str  #: Of the federation.
    cpus: int  #: Of each side.
    startup: dict[str, float]  #: Milliseconds: of each step of the start, of all of it, and, once the bed is closed, of the stop.

    def plain(self, function: Any) -> Any:
        """The function as a remote function of plain Ray, on its own node, one CPU each."""
        return ray.remote(num_cpus=1)(function).options(label_selector={"side": "plain"})


@contextmanager
def open_bed(cpus: int) -> Iterator[Bed]:
    """A bed; whatever ends the block, nothing is left running. `startup` is complete when the block is left."""
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
    """A federation that runs, made from a template in a temporary folder; whatever ends the block, nothing is left of it.

    Args:
        startup: Takes the milliseconds of each step, and, at the end of the block, those of the stop.
    """
    configure_logging()
    took: dict[str, float] = {} if startup is None else startup
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="schedulemesh-bench-")))
        owned = opened.enter_context(StateFolder(folder / "state"))
        steps = _Steps()
        stack = Stack(_config(template, cpus, folder), owned, say=steps.begin)
        opened.callback(_stop, stack, took)
        stack.start()
        took.update(steps.durations_ms())
        yield stack


class _Steps:
    """The steps of a start, each from its own words to the next one's."""

    def __init__(self) -> None:
        self._begun = [("before the first words", time.perf_counter())]

    def begin(self, words: str) -> None:
        self._begun.append((words, time.perf_counter()))

    def durations_ms(self) -> dict[str, float]:
        """All until now, and their sum."""
        ends = [at for _, at in self._begun[1:]] + [time.perf_counter()]
        steps = {words: (end - at) * 1000 for (words, at), end in zip(self._begun, ends, strict=True)}
        return {**steps, WALL: sum(steps.values())}


def let_sigterm_interrupt() -> None:
    """SIGTERM ends this process as Ctrl-C does, so that what was started is stopped.

    `ray.init` takes SIGTERM for itself, so this is called again after it.
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
