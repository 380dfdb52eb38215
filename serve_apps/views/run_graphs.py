"""Graphs of runs that were read last: a client asks for all pages of one graph, one after another."""

from __future__ import annotations

from functools import lru_cache

from dag.progress.groups import NodeNames
from dag.run.runs import RunRecord
from dag.spec.growth import Growth, grown
from dag.spec.plans import plans_of
from dag.spec.spec import DagSpec, load
from mesh.stages.calls import Calls

#: Graphs that are kept.
GRAPHS_KEPT = 4


def graph_of(record: RunRecord) -> DagSpec:
    """Return the graph of a run."""
    return _graph(record.spec, record.growths)


def names_of(record: RunRecord) -> NodeNames:
    """Return the nodes of a run by their common names."""
    return _names(record.spec, record.growths)


def calls_of(record: RunRecord) -> Calls:
    """Return the nodes of a run's plans as columns, in topological order, with the parts of arrays."""
    return _calls(record.spec, record.growths)


@lru_cache(maxsize=GRAPHS_KEPT)
def _graph(kept: bytes, growths: tuple[Growth, ...]) -> DagSpec:
    return grown(load(kept), growths)


@lru_cache(maxsize=GRAPHS_KEPT)
def _names(kept: bytes, growths: tuple[Growth, ...]) -> NodeNames:
    return NodeNames.of(_graph(kept, growths).calls.ids)


@lru_cache(maxsize=GRAPHS_KEPT)
def _calls(kept: bytes, growths: tuple[Growth, ...]) -> Calls:
    return plans_of(_graph(kept, growths)).calls
