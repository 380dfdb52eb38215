"""The bed: a federation of its own, and this process as a plain driver of the same Ray cluster.

The node has twice the CPUs that are measured with. The mesh's pool is one half, a placement group for plain Ray is the other:
the mesh keeps its own group between runs, so both sides hold their half all the time, and take turns at using it. Both
sides' tasks run on the same raylet, from the same pool of worker processes.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from benchmarks.measuring import WALL, Sample
from dag.store.client_access import Access
from dag.store.remote import Client
from federation.config import FederationConfig
from serve_apps.config_file import read_config
from serve_apps.process import configure_logging
from serve_apps.stack import Stack
from serve_apps.state_folder import StateFolder

ROOT = Path(__file__).resolve().parents[1]
TEMPLATE = Path(__file__).with_name("federation.yaml")
GROUP_READY_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bed:
    """What is measured on."""

    client: Client
    cpus: int  #: Of each side.
    group: PlacementGroup  #: The half of plain Ray.
    marks: dict[str, float]  #: Each step of the start, as the stack tells it, in milliseconds since its begin; then the stop's own time.

    def plain(self, function: Any) -> Any:
        """The function as a remote function of plain Ray, one CPU of its half each."""
        strategy = PlacementGroupSchedulingStrategy(self.group)
        return ray.remote(num_cpus=1)(function).options(scheduling_strategy=strategy)

    def startup(self) -> Sample:
        """The marks as a sample, once the bed is closed."""
        return {**self.marks, WALL: next(reversed([at for words, at in self.marks.items() if words != STOP]))}


#: What the mark of the stop is called.
STOP = "stop, to the end of the last process"


@contextmanager
def open_bed(cpus: int) -> Iterator[Bed]:
    """A bed; whatever ends the block, nothing is left running. `marks` is complete when the block is left."""
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # As the stack's own clusters; read by `ray.init`.
    configure_logging()
    marks: dict[str, float] = {}
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="schedulemesh-bench-")))
        owned = opened.enter_context(StateFolder(folder / "state"))
        begun = time.perf_counter()
        stack = Stack(_config(cpus, folder), owned, say=lambda words: marks.setdefault(words, _since(begun)))
        opened.callback(_stop, stack, marks)
        stack.start()
        ray.init(address=stack.clusters["bed"].address, namespace="benchmarks", log_to_driver=False, logging_level="ERROR")
        opened.callback(ray.shutdown)
        group = placement_group([{"CPU": 1}] * cpus)
        if not group.wait(GROUP_READY_S):
            raise TimeoutError(f"Ray has no {cpus} CPUs for the plain side within {GROUP_READY_S:.0f} s")
        access = Access(address=stack.address, api_key=stack.api_key, tenant=stack.default_tenant)
        client = opened.enter_context(Client(access))
        yield Bed(client=client, cpus=cpus, group=group, marks=marks)


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does, so that what was started is stopped."""

    def interrupt(_number: int, _frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _config(cpus: int, folder: Path) -> FederationConfig:
    file = folder / "federation.yaml"
    file.write_text(Template(TEMPLATE.read_text()).substitute(cpus=cpus, cpus_of_both=2 * cpus, root=ROOT))
    return read_config(file)


def _stop(stack: Stack, marks: dict[str, float]) -> None:
    begun = time.perf_counter()
    stack.stop()
    marks[STOP] = _since(begun)


def _since(begun: float) -> float:
    return (time.perf_counter() - begun) * 1000
