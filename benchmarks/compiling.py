"""Cost of a node on its way from `bind` to the plans at the root and to the stage at its mesh, without a network, Redis or Ray.

Each step is the code of the client, the gateway, the coordinator or the child, called in turn on one graph of functions that do nothing.
Times are this process's processor time, since none of the steps waits for anything.
"""

from __future__ import annotations

import gc
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

import dag
from dag.client.compiling import compile_columns
from dag.client.tasks import Node
from dag.planning import never_placed
from dag.run.node_table import NodeTable
from dag.run.runs import RunRecord, StageRecord
from dag.run.stage_dispatch import spec_of
from dag.spec.plans import empty_gangs, misspelt_resources, nodes_by_kind, plans_of, refused_functions, refused_priorities
from dag.spec.spec import digest, kept_form, load, parse, parse_columns
from dag.store.rows import weight_of
from federation.dispatch import digest_of
from federation.snapshot import FederationSnapshot
from federation.tenants import Tenant, TenantTree
from mesh.core.ids import MeshId, NodeId, RunId, StageId, TenantPath
from mesh.core.wire import decode, encode
from mesh.stages.spec import StageSpec

TURNS = 7
SIZES = (1_000, 10_000)
#: Most milliseconds of each part of the way, for a graph of a thousand nodes.
LIMITS_MS = {"client": 3.0, "door": 3.0, "plans": 3.0}
_TENANT = TenantPath("acme")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Result of one graph; medians over the turns."""

    graph: str
    nodes: int
    bytes_a_node: float  #: Size of the message to the root, without the code.
    us_a_node: dict[str, float]  #: By step.

    @property
    def parts_ms(self) -> dict[str, float]:
        """Return the processor time of each part of the way, in milliseconds."""
        return {part: sum(self.us_a_node[step] for step in steps) * self.nodes / 1_000 for part, steps in _PARTS.items()}

    @property
    def is_within(self) -> bool:
        """Return whether each part takes at most its limit for a thousand nodes, or in proportion."""
        return all(self.parts_ms[part] <= limit * self.nodes / 1_000 for part, limit in LIMITS_MS.items())


_PARTS = {
    "client": ("bind", "compile", "pack"),
    "door": ("parse", "tenant's checks", "digest", "keep"),
    "plans": ("load", "plans", "kinds"),
    "stage": ("stage", "encode stage", "decode stage"),
}


def nothing(*_: Any) -> None:
    """Do nothing."""


_nothing = dag.task(nothing)


def fan(nodes: int) -> Node:
    """Return a source, nodes that read it, and one that reads them all."""
    source = _nothing.bind()
    return _nothing.bind([_nothing.bind(source, number) for number in range(nodes - 2)])


def chain(nodes: int) -> Node:
    """Return nodes that each read the one before."""
    end = _nothing.bind(0)
    for _ in range(nodes - 1):
        end = _nothing.bind(end)
    return end


def layered(nodes: int) -> list[Node]:
    """Return layers of fifty nodes, each of which reads three of the layer before."""
    layer = [_nothing.bind(number) for number in range(50)]
    for _ in range(nodes // 50 - 1):
        layer = [_nothing.bind(layer[place], layer[(place + 7) % 50], layer[(place + 20) % 50]) for place in range(50)]
    return layer


GRAPHS: dict[str, Callable[[int], Any]] = {"fan and reduce": fan, "chain": chain, "layered": layered}


def measure(turns: int = TURNS, *, sizes: Sequence[int] = SIZES) -> list[Found]:
    """Measure every graph in every size."""
    return [_measure(turns, name, build, nodes) for nodes in sizes for name, build in GRAPHS.items()]


def table(found: list[Found]) -> Table:
    """Return the results as a table."""
    shown = Table(title="from bind to plans and stages, µs a node", title_justify="left", box=None, pad_edge=False)
    shown.add_column("step", no_wrap=True)
    for side in found:
        shown.add_column(f"{side.graph}\n{side.nodes:,}", justify="right", no_wrap=True)
    for step in found[0].us_a_node:
        shown.add_row(step, *(f"{side.us_a_node[step]:.2f}" for side in found))
    for part in _PARTS:
        limit = f" (limit {LIMITS_MS[part]:g} a thousand)" if part in LIMITS_MS else ""
        shown.add_row(f"{part}, ms{limit}", *(f"{side.parts_ms[part]:.2f}" for side in found))
    shown.add_row("bytes a node", *(f"{side.bytes_a_node:.1f}" for side in found))
    shown.add_row("within", *("yes" if side.is_within else "NO" for side in found))
    return shown


def as_json(found: list[Found]) -> dict[str, Any]:
    """Return the results as JSON values."""
    names = (*Found.__slots__, "parts_ms", "is_within")
    return {"name": "compile", "sides": [{name: getattr(side, name) for name in names} for side in found]}


def _measure(turns: int, name: str, build: Callable[[int], Any], nodes: int) -> Found:
    times: dict[str, list[float]] = {}
    snapshot = FederationSnapshot(at_ms=1, tree=TenantTree([Tenant(path=_TENANT, parent=None)]), meshes=())

    def timed(step: str, act: Callable[[], Any]) -> Any:
        begun_ns = time.process_time_ns()
        done = act()
        times.setdefault(step, []).append((time.process_time_ns() - begun_ns) / 1_000 / nodes)
        return done

    size = 0
    for _ in range(turns):
        gc.collect()
        outputs = timed("bind", lambda: build(nodes))
        columns = timed("compile", lambda outputs=outputs: compile_columns(outputs, id="r", tenant="acme"))
        body = timed("pack", columns.packed)
        size = len(columns.packed(with_blobs=False))
        spec = timed("parse", lambda body=body: parse_columns(body))
        timed("tenant's checks", lambda spec=spec: _checked(spec, snapshot))
        found = timed("digest", lambda spec=spec: digest(spec))
        kept = timed("keep", lambda spec=spec: kept_form(spec))
        loaded = timed("load", lambda kept=kept: load(kept))
        plans = timed("plans", lambda loaded=loaded: plans_of(loaded))
        timed("kinds", lambda loaded=loaded: nodes_by_kind(loaded))
        timed("every plan", lambda plans=plans: list(plans.values()))
        record = _record(tuple(plans), kept, found)
        timed("weight", lambda record=record, spec=spec: weight_of(record, spec.blob_bytes()))
        sent = timed("stage", lambda record=record, plans=plans: spec_of(record, next(iter(record.stages.values())), plans, {}))
        wire = timed("encode stage", lambda sent=sent: encode(sent))
        got = timed("decode stage", lambda wire=wire: decode(StageSpec, wire))
        timed("digest of stage", lambda got=got: digest_of(got))
        timed("every task", lambda got=got: list(got.tasks))
        text = timed("as JSON", lambda columns=columns: json.dumps(columns.as_json()).encode())
        timed("parse JSON", lambda text=text: parse(text))
    medians = {step: statistics.median(taken) for step, taken in times.items()}
    return Found(graph=name, nodes=nodes, bytes_a_node=size / nodes, us_a_node=medians)


def _checked(spec: Any, snapshot: FederationSnapshot) -> None:
    """Check a graph as the gateway does."""
    refused_functions(spec, (), True)
    refused_priorities(spec, _TENANT, 10)
    misspelt_resources(spec, frozenset())
    empty_gangs(spec)
    never_placed(spec, _TENANT, snapshot)


def _record(nodes: tuple[NodeId, ...], kept: bytes, found: str) -> RunRecord:
    stage = StageRecord(stage=StageId("r.1"), mesh=MeshId("east"), level=0, nodes=nodes, width=len(nodes))
    return RunRecord(run=RunId("r"), tenant=_TENANT, digest=found, spec=kept, nodes=NodeTable(nodes), stages={stage.stage: stage})
