"""Logs of runs in one process: for tests, simulations, and a federation in one process."""

from collections import defaultdict
from dataclasses import dataclass, field

from federation.dispatch import Claim
from federation.run_log import LOG_LIMITS, LogEntry, LogLimits
from federation.store.memory.store import MemoryStore
from mesh.core.ids import NodeId, RunId, StageId
from mesh.core.wire import encode
from mesh.stages.messages import NodeOutput


@dataclass(slots=True)
class _Log:
    seq: int = 0
    first: dict[tuple[NodeId, int], int] = field(default_factory=dict)  #: Bytes of the first output of each attempt.
    entries: dict[int, tuple[LogEntry, int]] = field(default_factory=dict)  #: With the bytes of entries that may be dropped, else 0.
    taken: dict[tuple[StageId, int], int] = field(default_factory=dict)  #: The last batch of each claim.


class MemoryRunLog:
    """`RunLog` beside a `MemoryStore`, which knows the claims and forgets the runs."""

    def __init__(self, store: MemoryStore, limits: LogLimits = LOG_LIMITS) -> None:
        self._store = store
        self._limits = limits
        self._logs: defaultdict[RunId, _Log] = defaultdict(_Log)
        store.on_release(self._drop)

    def append(self, claim: Claim, batch: int, output: tuple[NodeOutput, ...]) -> None:
        log = self._logs[self._store.run_under(claim, output)]
        if batch <= log.taken.get((claim.stage, claim.token), 0):
            return
        log.taken[claim.stage, claim.token] = batch
        for each in output:
            log.seq += 1
            entry = LogEntry(seq=log.seq, mesh=claim.mesh, output=each)
            log.entries[log.seq] = entry, 0 if self._is_first(log, each) else len(encode(each))
        rest = sum(size for _, size in log.entries.values())
        for seq, (_, size) in tuple(log.entries.items()):
            if rest <= self._limits.last_bytes:
                return
            if size:
                del log.entries[seq]
                rest -= size

    def _is_first(self, log: _Log, output: NodeOutput) -> bool:
        node, size = (output.node, output.attempt), len(encode(output))
        is_first = (
            log.first.get(node, 0) + size <= self._limits.node_first_bytes
            and sum(log.first.values()) + size <= self._limits.first_bytes
            and (node in log.first or len(log.first) < self._limits.nodes_max)
        )
        if is_first:
            log.first[node] = log.first.get(node, 0) + size
        return is_first

    def read(self, run: RunId, after: int = 0, limit: int = 200) -> tuple[LogEntry, ...]:
        entries = self._logs[run].entries if run in self._logs else {}
        return tuple(entry for seq, (entry, _) in entries.items() if seq > after)[:limit]

    def _drop(self, run: RunId) -> None:
        self._logs.pop(run, None)
