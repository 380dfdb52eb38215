"""Feasible and available nodes for a demand, and explanations for people.

A node is feasible when its totals cover the demand and its labels match. A feasible node is available or unavailable, depending on what
is free. The masks serve the scheduler's hot path with one sweep over all rows and no text. `explain` writes the text and runs only on
request.

Source:
    Ray's terms: feasible (available or unavailable) and infeasible nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from mesh.core.counting import counted
from mesh.core.ids import NodeName
from mesh.core.labels import meets, mismatch, wishes_of
from mesh.core.node_instances import is_possible
from mesh.core.nodes import NodeTable, Units
from mesh.core.reasons import Reason
from mesh.core.resources import UNITS_PER_WHOLE, ResourceSet, format_units
from mesh.core.task_spec import NO_LABELS

RowMask = NDArray[np.bool_]  #: Shape [rows], one per entry of `NodeTable.names`.


class NodeFit(str, Enum):
    """Fit of a node for a demand. Available and unavailable nodes are both feasible."""

    AVAILABLE = "AVAILABLE"
    """Feasible, with enough free now."""
    UNAVAILABLE = "UNAVAILABLE"
    """Feasible, but in use by others now."""
    INFEASIBLE = "INFEASIBLE"
    """Too small even when empty, or excluded by labels or by a named node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeVerdict:
    """Fit of one node for the demand, with the reason."""

    node: NodeName
    fit: NodeFit
    reason: Reason | None  #: None when it is available.
    words: str  #: For people; empty when it is available.


def label_rows(table: NodeTable, selector: Mapping[str, str]) -> RowMask:
    """Return a mask of the nodes whose labels match; rows without a node do not. Valid until `NodeTable.shape_version` changes.

    Raises:
        SelectorError: The selector cannot be parsed.
    """
    if not selector:
        return np.array([name is not None for name in table.names], dtype=bool)
    wishes, rows = wishes_of(selector), zip(table.names, table.labels, strict=True)
    return np.array([name is not None and meets(wishes, labels) for name, labels in rows], dtype=bool)


def feasible_rows(table: NodeTable, wanted: Units, selector: Mapping[str, str] = NO_LABELS) -> RowMask:
    """Return a mask of the nodes that could run the demand when empty.

    Raises:
        SelectorError: The selector cannot be parsed.
    """
    columns = np.flatnonzero(wanted)
    covers = np.all(table.total[: len(table.names), columns] >= wanted[columns], axis=1)
    if not all(is_possible(units) for _, units in table.instance_needs(wanted)):
        covers[:] = False
    return np.logical_and(covers, label_rows(table, selector))


def available_rows(table: NodeTable, wanted: Units, feasible: RowMask) -> RowMask:
    """Return a mask of the feasible nodes with enough capacity that is neither used nor promised."""
    columns, rows = np.flatnonzero(wanted), slice(0, len(table.names))
    free = table.total[rows, columns] - table.used[rows, columns] - table.load[rows, columns]
    available = np.logical_and(np.all(free >= wanted[columns], axis=1), feasible)
    needs = table.instance_needs(wanted)
    return np.logical_and(available, table.instances_fit(needs, rows)) if needs else available


def explain(
    table: NodeTable, wanted: ResourceSet, selector: Mapping[str, str] = NO_LABELS, *, node: NodeName | None = None
) -> tuple[NodeVerdict, ...]:
    """Return the verdict of every node, in the table's order. With `node`, only that node is wanted; it gets a verdict even when unknown.

    Raises:
        SelectorError: The selector cannot be parsed.
    """
    vector = table.vector(wanted)  # First: the call may add a column.
    columns = np.flatnonzero(vector)
    names = [table.resources[column] for column in columns]
    total, free = table.total[:, columns].tolist(), table.free(slice(None))[:, columns].tolist()
    asked = vector[columns].tolist()
    verdicts = []
    for row, name in enumerate(table.names):
        if name is not None:
            rooms = [*zip(names, asked, free[row], total[row], strict=True)]
            verdict = _unwanted(table, row, name, selector, node) or _by_room(name, rooms)
            verdicts.append(_by_instance(table, row, verdict, vector))
    if node is not None and node not in table:
        words = f"there is no node {node}, which is named"
        verdicts.append(NodeVerdict(node=node, fit=NodeFit.INFEASIBLE, reason=Reason.NAMED_NODE_GONE, words=words))
    return tuple(verdicts)


def summarise(verdicts: Sequence[NodeVerdict], *, is_named: bool = False) -> tuple[Reason, str]:
    """Return why the demand waits, in one sentence: the first node of each kind, with the number of similar ones; busy nodes first.

    Args:
        verdicts: Results of `explain`.
        is_named: `explain` was given a node; only that node's verdict counts.
    """
    asked = [verdict for verdict in verdicts if verdict.reason is not Reason.NODE_NOT_NAMED]
    if not asked:
        return Reason.NO_NODE_FITS, "the mesh has no nodes"
    if any(verdict.fit is NodeFit.AVAILABLE for verdict in asked):
        return Reason.WAITING_IN_QUEUE, "a node has room now"
    first = {verdict.reason: verdict.words for verdict in reversed(asked)}
    counts = Counter(verdict.reason for verdict in asked)
    kinds = sorted(counts, key=lambda reason: reason not in (Reason.NODE_BUSY, Reason.INSTANCES_FRAGMENTED))
    reasons = [first[reason] if counts[reason] == 1 else f"{first[reason]} (and {counts[reason] - 1} more like it)" for reason in kinds]
    return _reason_for_all(asked, is_named), "; ".join(reasons)


def _reason_for_all(asked: Sequence[NodeVerdict], is_named: bool) -> Reason:
    if any(verdict.fit is NodeFit.UNAVAILABLE for verdict in asked):
        is_split = all(verdict.reason is Reason.INSTANCES_FRAGMENTED for verdict in asked if verdict.fit is NodeFit.UNAVAILABLE)
        return Reason.INSTANCES_FRAGMENTED if is_split else Reason.NODES_BUSY
    if not is_named:
        return Reason.NO_NODE_FITS
    return Reason.NAMED_NODE_TOO_SMALL if asked[0].reason is Reason.NODE_TOO_SMALL else Reason.NAMED_NODE_GONE


def _unwanted(table: NodeTable, row: int, name: NodeName, selector: Mapping[str, str], named: NodeName | None) -> NodeVerdict | None:
    """Return a verdict if another node is named or the labels do not match, else None."""
    if named is not None and name != named:
        words = f"node {name} is not the named node {named}"
        return NodeVerdict(node=name, fit=NodeFit.INFEASIBLE, reason=Reason.NODE_NOT_NAMED, words=words)
    lacking = mismatch(selector, table.labels[row], f"node {name}")
    return None if lacking is None else NodeVerdict(node=name, fit=NodeFit.INFEASIBLE, reason=Reason.LABEL_MISMATCH, words=lacking)


def _by_instance(table: NodeTable, row: int, verdict: NodeVerdict, wanted: Units) -> NodeVerdict:
    """Return the verdict, corrected where the node has enough of a resource in sum only."""
    for need in table.instance_needs(wanted) if verdict.fit is not NodeFit.INFEASIBLE else ():
        resource, asked = table.resources[need[0]], need[1]
        if not is_possible(asked):
            return replace(verdict, fit=NodeFit.INFEASIBLE, reason=Reason.NODE_TOO_SMALL, words=impossible(resource, asked))
        if verdict.fit is NodeFit.AVAILABLE and not table.instances_fit((need,), slice(row, row + 1))[0]:
            count = table.partly_free((row,), need[0])
            words = f"node {verdict.node}: {in_parts(resource, asked, count)} not free there"
            return replace(verdict, fit=NodeFit.UNAVAILABLE, reason=Reason.INSTANCES_FRAGMENTED, words=words)
    return verdict


def in_parts(resource: str, asked: int, count: int) -> str:
    """Return that `count` instances are free in part, and what one run asks for; the caller adds where that is not free."""
    name = resource.upper() if resource == "gpu" else resource
    lacking = "a whole one is" if asked == UNITS_PER_WHOLE else f"{format_units(resource, asked)} whole ones are"
    lacking = f"{format_units(resource, asked)} of one is" if asked < UNITS_PER_WHOLE else lacking
    return f"{counted(count, f'{name} is', f'{name}s are')} partly used; {lacking}"


def impossible(resource: str, asked: int) -> str:
    """Return why no node can ever provide the amount of a unit-instance resource."""
    return f"{format_units(resource, asked)} {resource} requested; request a whole number, or less than 1 to share one"


def _by_room(name: NodeName, rooms: list[tuple[str, int, int, int]]) -> NodeVerdict:
    """Return the verdict on capacity.

    Args:
        rooms: Resource, requested, free and total amount, in units.
    """
    for resource, asked, _, total in rooms:
        if total < asked:
            words = f"node {name} has {format_units(resource, total)} {resource} in total, {format_units(resource, asked)} requested"
            return NodeVerdict(node=name, fit=NodeFit.INFEASIBLE, reason=Reason.NODE_TOO_SMALL, words=words)
    for resource, asked, free, total in rooms:
        if free < asked:
            has, of = format_units(resource, free), format_units(resource, total)
            words = f"node {name} has {has} {resource} free of {of}, {format_units(resource, asked)} requested"
            return NodeVerdict(node=name, fit=NodeFit.UNAVAILABLE, reason=Reason.NODE_BUSY, words=words)
    return NodeVerdict(node=name, fit=NodeFit.AVAILABLE, reason=None, words="")
