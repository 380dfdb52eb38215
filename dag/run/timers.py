"""Timers of a run: times at which a node has to be looked at again, whatever else happens.

A timer belongs to a node and has a kind; a node has one of each kind at most. It is stored with what few nodes have (`Rare.timers`), so
any coordinator continues with the timers of a run that it loads. The coordinator asks `next_ms` and runs a step when that time comes; every
step first takes the timers that are due. A timer holds no worker.

The index over the stored timers is a heap; entries that are no longer true are dropped on the way.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from dag.run.node_facts import TimerKind
from dag.run.node_table import NodeRecord, NodeTable
from dag.run.states import NODE_ENDS


class Timers:
    """Timers of the nodes of a run.

    Args:
        nodes: The table that stores them; nothing else may change the timers in it.
    """

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._heap = [(due_ms, row, kind) for row, rare in nodes.rare.items() for kind, due_ms in rare.timers.items()]
        heapq.heapify(self._heap)

    def set(self, node: NodeRecord, kind: TimerKind, due_ms: int) -> None:
        """Set the node's timer of this kind, in place of an earlier one; milliseconds since the epoch."""
        node.timers = {**node.timers, kind: due_ms}
        heapq.heappush(self._heap, (due_ms, node.row, kind))

    def drop(self, node: NodeRecord, *kinds: TimerKind) -> None:
        """Drop the node's timers of these kinds; harmless without them."""
        if not node.timers.keys().isdisjoint(kinds):
            node.timers = {kind: due_ms for kind, due_ms in node.timers.items() if kind not in kinds}

    def take_due(self, now_ms: int) -> Iterator[tuple[TimerKind, NodeRecord]]:
        """Drop and yield the timers that are due, the earliest first. A timer that is dropped meanwhile is not yielded."""
        while (due_ms := self.next_ms()) is not None and due_ms <= now_ms:
            _, row, kind = heapq.heappop(self._heap)
            node = self._nodes.at(row)
            self.drop(node, kind)
            yield kind, node

    def next_ms(self) -> int | None:
        """Return when the next timer is due; None: there is none."""
        while self._heap:
            due_ms, row, kind = self._heap[0]
            rare = self._nodes.rare.get(row)
            if rare is not None and rare.timers.get(kind) == due_ms and self._nodes.at(row).state not in NODE_ENDS:
                return due_ms
            heapq.heappop(self._heap)
        return None
