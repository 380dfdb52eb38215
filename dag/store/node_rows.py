"""Stored form of a run's nodes: parts of the columns, and rows of what few nodes have.

All rows are fields of one hash:

    c<part>     the columns of `PART_ROWS` nodes; without it these nodes have not begun
    p<number>   a place that nodes share, as JSON
    w<number>   a reason and detail that nodes share, as JSON
    n<row>      what few nodes have, as JSON
    v<number>   the values that one commit stored or removed, by row, as JSON; a later one counts

A column is its least entry (8 bytes), the width of the others in bytes (1), and what each is above the least one; a width of 0 means
that all are equal. So a part of nodes that have much in common is short.

Source: ADR 0052.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dag.run.node_facts import COLUMN_TYPES, PART_ROWS, Place, Rare, Words
from dag.run.node_table import NodeChanges, NodeTable
from mesh.core.ids import NodeId
from mesh.core.values import StoredValue
from mesh.core.wire import decode, encode
from mesh.errors import RuntimeAdapterError

_HEAD = struct.Struct("<qB")
_WIDTHS = (0, 1, 2, 4, 8)
_VALUES = dict[int, StoredValue | None]


def names_row(names: Iterable[NodeId]) -> bytes:
    """Return the names of the nodes, in the order of their rows."""
    return zlib.compress(json.dumps(list(names), ensure_ascii=False, separators=(",", ":")).encode(), 1)


def names_of(row: bytes) -> tuple[NodeId, ...]:
    """Return the names from their stored form.

    Raises:
        RuntimeAdapterError: The bytes are damaged.
    """
    try:
        return tuple(json.loads(zlib.decompress(row)))
    except (zlib.error, ValueError) as broken:
        raise RuntimeAdapterError(f"the stored names of nodes are damaged: {broken}") from None


def changed_rows(nodes: NodeTable, changes: NodeChanges) -> dict[str, bytes]:
    """Return the rows to write for the changes."""
    rows = {f"c{part}": _packed(nodes, part) for part in changes.parts}
    rows.update((f"p{number}", encode(nodes.places[number], Place)) for number in changes.places)
    rows.update((f"w{number}", encode(nodes.words[number], Words)) for number in changes.words)
    rows.update((f"n{row}", encode(nodes.rare[row], sparse=True)) for row in changes.rare)
    if changes.stored:
        rows[f"v{changes.batch}"] = encode({row: nodes.stored.get(row) for row in sorted(changes.stored)}, _VALUES)
    return rows


def table_of(names: Iterable[NodeId], rows: Mapping[str, bytes]) -> NodeTable:
    """Return the nodes from all their rows.

    Raises:
        RuntimeAdapterError: A row is damaged.
    """
    nodes = NodeTable(names)
    batches: dict[int, bytes] = {}
    for name, row in rows.items():
        kind, number = name[0], int(name[1:])
        if kind == "c":
            _unpack(nodes, number, row)
        elif kind == "p":
            nodes.places.restore(number, decode(Place, row))
        elif kind == "w":
            nodes.words.restore(number, decode(Words, row))
        elif kind == "n":
            nodes.rare[number] = decode(Rare, row)
        else:
            batches[number] = row
    for _, row in sorted(batches.items()):
        nodes.stored.update(decode(_VALUES, row))
    nodes.stored = {row: value for row, value in nodes.stored.items() if value is not None}
    nodes.restored(batches=max(batches, default=-1) + 1)
    return nodes


def uris_in(rows: Mapping[str, bytes]) -> tuple[str, ...]:
    """Return the files that the rows name: of values, of pickled exceptions, each once."""
    found: dict[str, None] = {}
    for name, row in rows.items():
        if name[0] == "v":
            values: list[StoredValue | None] = list(decode(_VALUES, row).values())
        elif name[0] == "n":
            rare: Rare = decode(Rare, row)
            values = [rare.failure.pickled if rare.failure is not None else None]
        else:
            continue
        found.update((value.uri, None) for value in values if value is not None and value.uri is not None)
    return tuple(found)


def _packed(nodes: NodeTable, part: int) -> bytes:
    first = part * PART_ROWS
    return b"".join(_packed_column(column[first : first + PART_ROWS]) for column in nodes.columns.each())


def _packed_column(column: NDArray[Any]) -> bytes:
    least, most = int(column.min()), int(column.max())
    width = next(width for width in _WIDTHS if most - least < 1 << 8 * width)
    if not width:
        return _HEAD.pack(least, 0)
    above: bytes = (column - column.dtype.type(least)).astype(f"<u{width}").tobytes()
    return _HEAD.pack(least, width) + above


def _unpack(nodes: NodeTable, part: int, row: bytes) -> None:
    first = part * PART_ROWS
    count = min(PART_ROWS, len(nodes) - first)
    at = 0
    try:
        for column, kind in zip(nodes.columns.each(), COLUMN_TYPES, strict=True):
            least, width = _HEAD.unpack_from(row, at)
            at += _HEAD.size
            column[first : first + count] = least
            if width:
                above = np.frombuffer(row, dtype=f"<u{width}", count=count, offset=at)
                column[first : first + count] += above.astype(kind)
                at += width * count
    except (struct.error, ValueError, TypeError) as broken:
        raise RuntimeAdapterError(f"the stored columns of nodes from row {first} are damaged: {broken}") from None
