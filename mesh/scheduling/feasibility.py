"""Which nodes could run a demand, which can now, and for people: why not.

A node is feasible when its totals cover the demand and its labels suit; then it is available or unavailable, by what is free.
The masks are for the scheduler's hot path: one sweep over all rows, no words. `explain` says the words, and is only called when
somebody asks.

Source:
    Seed 003: feasible (available, unavailable) and infeasible nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from mesh.ids import NodeName
from mesh.labels import meets, mismatch, wishes_of
from mesh.nodes import NodeTable, Units
from mesh.reasons import Reason
from mesh.resources import ResourceSet, format_units
from mesh.scheduling.tasks import NO_LABELS

RowMask = NDArray[np.bool_]  #: [rows], one per entry of `NodeTable.names`.


class NodeFit(str, Enum):
    """What a node is for a demand. Available and unavailable nodes are both feasible."""

    AVAILABLE = "AVAILABLE"
    """Feasible, and has the room now."""
    UNAVAILABLE = "UNAVAILABLE"
    """Feasible, and others use the room now."""
    INFEASIBLE = "INFEASIBLE"
    """Could not run it even when empty, or is not wanted by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeVerdict:
    """What one node is for the demand, and why."""

    node: NodeName
    fit: NodeFit
    reason: Reason | None  #: None when it is available.
    words: str  #: For people; empty when it is available.


def label_rows(table: NodeTable, selector: Mapping[str, str]) -> RowMask:
    """Nodes whose labels suit; rows without a node do not. Changes only with `NodeTable.shape_version`, so it can be kept.

    Raises:
        SelectorError: The selector cannot be read.
    """
    if not selector:
        return np.array([name is not None for name in table.names], dtype=bool)
    wishes, rows = wishes_of(selector), zip(table.names, table.labels, strict=True)
    return np.array([name is not None and meets(wishes, labels) for name, labels in rows], dtype=bool)


def feasible_rows(table: NodeTable, wanted: Units, selector: Mapping[str, str] = NO_LABELS) -> RowMask:
    """Nodes that could run it when empty.

    Raises:
        SelectorError: The selector cannot be read.
    """
    columns = np.flatnonzero(wanted)
    covers = np.all(table.total[: len(table.names), columns] >= wanted[columns], axis=1)
    return np.logical_and(covers, label_rows(table, selector))


def available_rows(table: NodeTable, wanted: Units, feasible: RowMask) -> RowMask:
    """Of the feasible nodes, those with the room now: available, less what is promised."""
    columns, rows = np.flatnonzero(wanted), slice(0, len(table.names))
    free = table.total[rows, columns] - table.used[rows, columns] - table.load[rows, columns]
    return np.logical_and(np.all(free >= wanted[columns], axis=1), feasible)


def explain(
    table: NodeTable, wanted: ResourceSet, selector: Mapping[str, str] = NO_LABELS, *, node: NodeName | None = None
) -> tuple[NodeVerdict, ...]:
    """The verdict of every node, in the table's order. With `node`, only that one is wanted, and told of even when unknown.

    Raises:
        SelectorError: The selector cannot be read.
    """
    vector = table.vector(wanted)  # First, as it may add a column.
    columns = np.flatnonzero(vector)
    names = [table.resources[column] for column in columns]
    total, free = table.total[:, columns].tolist(), table.free(slice(None))[:, columns].tolist()
    asked = vector[columns].tolist()
    verdicts = []
    for row, name in enumerate(table.names):
        if name is not None:
            unwanted = _unwanted(table, row, name, selector, node)
            verdicts.append(unwanted or _by_room(name, [*zip(names, asked, free[row], total[row], strict=True)]))
    if node is not None and node not in table:
        words = f"node {node} is named, and there is no such node"
        verdicts.append(NodeVerdict(node=node, fit=NodeFit.INFEASIBLE, reason=Reason.NAMED_NODE_GONE, words=words))
    return tuple(verdicts)


def summarise(verdicts: Sequence[NodeVerdict], *, is_named: bool = False) -> tuple[Reason, str]:
    """Why the demand waits, in one sentence: the words of the first node of each kind, and how many more are like it; busy ones first.

    Args:
        verdicts: Of `explain`.
        is_named: `explain` was given a node; then only that one speaks.
    """
    asked = [verdict for verdict in verdicts if verdict.reason is not Reason.NODE_NOT_NAMED]
    if not asked:
        return Reason.NO_NODE_FITS, "the mesh has no nodes"
    if any(verdict.fit is NodeFit.AVAILABLE for verdict in asked):
        return Reason.WAITING_IN_QUEUE, "a node has room now"
    first = {verdict.reason: verdict.words for verdict in reversed(asked)}
    counts = Counter(verdict.reason for verdict in asked)
    kinds = sorted(counts, key=lambda reason: reason is not Reason.NODE_BUSY)
    told = [first[reason] if counts[reason] == 1 else f"{first[reason]} (and {counts[reason] - 1} more like it)" for reason in kinds]
    return _reason_for_all(asked, is_named), "; ".join(told)


def _reason_for_all(asked: Sequence[NodeVerdict], is_named: bool) -> Reason:
    if any(verdict.fit is NodeFit.UNAVAILABLE for verdict in asked):
        return Reason.NODES_BUSY
    if not is_named:
        return Reason.NO_NODE_FITS
    return Reason.NAMED_NODE_TOO_SMALL if asked[0].reason is Reason.NODE_TOO_SMALL else Reason.NAMED_NODE_GONE


def _unwanted(table: NodeTable, row: int, name: NodeName, selector: Mapping[str, str], named: NodeName | None) -> NodeVerdict | None:
    """Another node is named, or the labels do not suit."""
    if named is not None and name != named:
        words = f"node {name} is not {named}, which is named"
        return NodeVerdict(node=name, fit=NodeFit.INFEASIBLE, reason=Reason.NODE_NOT_NAMED, words=words)
    lacking = mismatch(selector, table.labels[row], f"node {name}")
    return None if lacking is None else NodeVerdict(node=name, fit=NodeFit.INFEASIBLE, reason=Reason.LABEL_MISMATCH, words=lacking)


def _by_room(name: NodeName, rooms: list[tuple[str, int, int, int]]) -> NodeVerdict:
    """By what is asked of each resource, free and there in all, in units."""
    for resource, asked, _, total in rooms:
        if total < asked:
            words = f"node {name} has {format_units(resource, total)} {resource} in all, {format_units(resource, asked)} is wanted"
            return NodeVerdict(node=name, fit=NodeFit.INFEASIBLE, reason=Reason.NODE_TOO_SMALL, words=words)
    for resource, asked, free, total in rooms:
        if free < asked:
            has, of = format_units(resource, free), format_units(resource, total)
            words = f"node {name} has {has} {resource} free of {of}, {format_units(resource, asked)} is wanted"
            return NodeVerdict(node=name, fit=NodeFit.UNAVAILABLE, reason=Reason.NODE_BUSY, words=words)
    return NodeVerdict(node=name, fit=NodeFit.AVAILABLE, reason=None, words="")
