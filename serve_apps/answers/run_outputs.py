"""The outputs of a run: which node each is, and how its value is told. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from dag.runs import NodeRecord, RunRecord
from mesh.ids import NodeId
from mesh.values import Encoding, StoredValue
from serve_apps.requests.errors import CorruptValue, ValueNotThere
from serve_apps.schemas.results import OutputView


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """An output of a graph: a node's value, or the part of it that the path leads to."""

    name: str
    node: NodeId
    path: tuple[str | int, ...] = ()


def outputs_of(record: RunRecord) -> tuple[Output, ...]:
    """In the order of the spec, which was checked when it was accepted."""
    listed: dict[str, dict[str, object]] = json.loads(record.spec)["outputs"]
    return tuple(Output(name=name, node=NodeId(str(form["$ref"])), path=_path(form.get("path"))) for name, form in listed.items())


def stored_of(record: RunRecord, output: Output) -> StoredValue:
    """Where the output's value is.

    Raises:
        ValueNotThere: It was not stored.
    """
    stored = record.nodes.get(output.node, NodeRecord(node=output.node)).stored
    if stored is None:
        raise ValueNotThere(f"the run {record.run} has no value for its output {output.name}")
    return stored


def output_view(record: RunRecord, output: Output, small: Mapping[str, bytes]) -> OutputView:
    """The output, with its value when the bytes are among the small ones (by SHA-256).

    Raises:
        ValueNotThere: It was not stored, or its path leads nowhere.
        CorruptValue: It is said to be JSON, and is not.
    """
    stored = stored_of(record, output)
    view = OutputView(
        encoding=stored.encoding.value,
        sha256=stored.sha256,
        size_bytes=stored.size_bytes,
        href=f"/v1/runs/{quote(record.run, safe='')}/result/{quote(output.name, safe='')}",
        inline=False,
        uri=stored.uri,
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
        return view  # Deeper than can be told inside another body; its own bytes are told as they are.
    except ValueError:
        raise CorruptValue(f"output {output.name} of run {record.run} is not the JSON that it should be") from None
    return view.model_copy(update={"inline": True, "value": part_of(value, output)})


def part_of(value: object, output: Output) -> object:
    """The part of a value that the output's path leads to.

    Raises:
        ValueNotThere: Nowhere.
    """
    part: Any = value
    try:
        for step in output.path:
            part = part[step]
    except (KeyError, IndexError, TypeError):
        raise ValueNotThere(f"output {output.name}: the value of {output.node} has nothing at {list(output.path)}") from None
    return part


def _path(form: object) -> tuple[str | int, ...]:
    return tuple(form) if isinstance(form, list) else ()
