"""Agent processes whose task has ended, kept for the next task of the same owner.

A process start takes a second, a task may take a millisecond. So a process without a placement group waits for a moment after a
task that ended cleanly, and serves the next task that is like it. It keeps its Ray resources meanwhile, on room that the
scheduler counts as free: whoever needs the room ends it first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mesh.core.ids import NodeName
from mesh.core.resources import NOTHING, ResourceSet
from mesh.ray.local.store.task_payloads import Owner
from mesh.ray.local.supervisor.agent_client import AgentProcess


@dataclass(frozen=True, slots=True)
class _Idle:
    process: AgentProcess
    owner: Owner
    since_ms: int


class IdleProcesses:
    """Processes without a task and without a placement group. The caller ends those that it gets back to end.

    Args:
        idle_ms_max: Time after which a process ends; 0: processes are not kept.
    """

    def __init__(self, idle_ms_max: int, now_ms: Callable[[], int]) -> None:
        self._idle_ms_max = idle_ms_max
        self._now_ms = now_ms
        self._idle: list[_Idle] = []  #: Longest idle first.

    def put(self, process: AgentProcess, owner: Owner) -> bool:
        """Keep the process; return False if processes are not kept."""
        if self._idle_ms_max > 0:
            self._idle.append(_Idle(process, owner, self._now_ms()))
        return self._idle_ms_max > 0

    def take(self, node: NodeName, resources: ResourceSet, owner: Owner) -> AgentProcess | None:
        """Take the process that ended last among those of the owner with these resources on the node."""
        for each in reversed(self._idle):
            if each.owner == owner and each.process.node == node and each.process.holds == resources:
                self._idle.remove(each)
                return each.process
        return None

    def take_surplus(self, node: NodeName, free: ResourceSet) -> list[AgentProcess]:
        """Take the longest idle processes of the node until the rest holds no more than is free there."""
        here = [each for each in self._idle if each.process.node == node]
        held = sum((each.process.holds for each in here), start=NOTHING)
        taken = []
        for each in here:
            if held <= free:
                break
            held -= each.process.holds
            taken.append(each)
        return self._taken(taken)

    def take_expired(self) -> list[AgentProcess]:
        """Take the processes that have been idle for too long."""
        return self._taken([each for each in self._idle if self._now_ms() - each.since_ms >= self._idle_ms_max])

    def nodes(self) -> set[NodeName]:
        """Return the nodes with idle processes."""
        return {each.process.node for each in self._idle if each.process.node is not None}

    def lost(self, process: AgentProcess) -> None:
        """Forget a dead process."""
        self._idle = [each for each in self._idle if each.process is not process]

    def _taken(self, taken: list[_Idle]) -> list[AgentProcess]:
        self._idle = [each for each in self._idle if each not in taken]
        return [each.process for each in taken]
