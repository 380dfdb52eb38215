"""Outputs of a run: their nodes and how their values are encoded. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from dag.run.node_facts import CacheState
from dag.run.runs import RunRecord
from dag.spec.spec import outputs_of as outputs_in
from mesh.core.ids import NodeId
from mesh.core.values import Encoding, StoredValue
from serve_apps.requests.errors import CorruptValue, ValueNotThere
from serve_apps.schemas.results import OutputView


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Output of a graph: a node's value, or the part of the value at the path."""

    name: str
    node: NodeId
    path: tuple[str | int, ...] = ()


def outputs_of(record: RunRecord) -> tuple[Output, ...]:
    """Return the outputs in the order of the spec, which was validated on submission."""
    listed = outputs_in(record.spec)
    return tuple(Output(name=name, node=NodeId(output.node), path=tuple(output.path)) for name, output in listed.items())


def stored_of(record: RunRecord, output: Output) -> StoredValue:
    """Return where the output's value is stored.

    Raises:
        ValueNotThere: The value was not stored.
    """
    node = record.nodes.get(output.node)
    stored = node.stored if node is not None else None
    if stored is None:
        raise ValueNotThere(f"run {record.run} has no value for its output {output.name}")
    return stored


def output_view(record: RunRecord, output: Output, small: Mapping[str, bytes]) -> OutputView:
    """Return the output, with its value if `small` (by SHA-256) has the bytes.

    Raises:
        ValueNotThere: The value was not stored, or has nothing at the path.
        CorruptValue: The value is marked as JSON but is not JSON.
    """
    stored = stored_of(record, output)
    view = OutputView(
        encoding="json" if stored.encoding is Encoding.JSON else "pickle",
        sha256=stored.sha256,
        size_bytes=stored.size_bytes,
        href=f"/v1/runs/{quote(record.run, safe='')}/result/{quote(output.name, safe='')}",
        inline=False,
        uri=stored.uri,
        cached=_is_hit(record, output.node),
        path=list(output.path),
    )
    data = small.get(stored.sha256)
    if data is None:
        return view
    if stored.encoding is Encoding.PICKLE:
        return view.model_copy(update={"inline": True, "data": base64.b64encode(data).decode()})
    try:
        value = json.loads(data)
    except RecursionError:
        return view  # JSON nested too deep for another body; `href` still returns its bytes.
    except ValueError:
        raise CorruptValue(f"output {output.name} of run {record.run} is corrupt: it is not JSON") from None
    return view.model_copy(update={"inline": True, "value": part_of(value, output)})


def _is_hit(record: RunRecord, node: NodeId) -> bool:
    use = record.nodes[node].cache
    return use is not None and use.state is CacheState.HIT


def part_of(value: object, output: Output) -> object:
    """Return the part of a value at the output's path.

    Raises:
        ValueNotThere: The value has nothing at the path.
    """
    part: Any = value
    try:
        for step in output.path:
            part = part[step]
    except (KeyError, IndexError, TypeError):
        raise ValueNotThere(f"output {output.name}: the value of {output.node} has nothing at {list(output.path)}") from None
    return part
