"""Ends of many tasks in one message, as a message each: most tests look for the end of one task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mesh.core.ids import NodeId
from mesh.stages.messages import NodesSucceeded, StageMessage


def single(messages: Iterable[StageMessage], nodes: Sequence[NodeId]) -> Iterator[StageMessage]:
    """Yield the messages; `nodes`: the node of each task of their stage."""
    for message in messages:
        if isinstance(message, NodesSucceeded):
            yield from message.single(nodes)
        else:
            yield message
