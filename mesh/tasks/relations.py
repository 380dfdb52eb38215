"""Relations between tasks: dependencies, gangs, and calls on the agents of other tasks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from mesh.core.ids import AgentId, TaskId


class TaskRelations:
    """Owner of who waits for whom. It knows task ids only; `MeshState` knows the tasks."""

    def __init__(self) -> None:
        self._readers: dict[TaskId, set[TaskId]] = {}
        self._gangs: dict[str, list[TaskId]] = {}
        self._callers: dict[AgentId, list[TaskId]] = {}
        self._agents: dict[AgentId, TaskId] = {}

    @property
    def agents(self) -> Mapping[AgentId, TaskId]:
        """Running agents with their tasks."""
        return self._agents

    def members(self, gang: str) -> Sequence[TaskId]:
        """Return the members of the gang that are known so far."""
        return self._gangs.get(gang, ())

    def depend(self, task: TaskId, needs: Collection[TaskId]) -> None:
        """Record that the task reads the outputs of others."""
        for need in needs:
            self._readers.setdefault(need, set()).add(task)

    def take_readers(self, task: TaskId) -> list[TaskId]:
        """Remove and return the tasks that depend on this one, in order of id."""
        return sorted(self._readers.pop(task, ()))

    def join_gang(self, gang: str, task: TaskId) -> None:
        """Add a member. Idempotent."""
        members = self._gangs.setdefault(gang, [])
        if task not in members:
            members.append(task)

    def leave_gang(self, gang: str, task: TaskId) -> Sequence[TaskId]:
        """Remove a member. Return the others."""
        members = self._gangs.get(gang, [])
        if task in members:
            members.remove(task)
        if not members:
            self._gangs.pop(gang, None)
        return tuple(members)

    def await_agent(self, agent: AgentId, call: TaskId) -> None:
        """Record that the call waits until the agent is up."""
        self._callers.setdefault(agent, []).append(call)

    def take_calls(self, agent: AgentId) -> Sequence[TaskId]:
        """Remove and return the calls that wait for the agent, in order of arrival."""
        return self._callers.pop(agent, ())

    def add_agent(self, agent: AgentId, task: TaskId) -> None:
        """Record that the task's agent is up."""
        self._agents[agent] = task

    def remove_agent(self, agent: AgentId, task: TaskId) -> None:
        """Record that the agent is gone. No effect if it is not the task's."""
        if self._agents.get(agent) == task:
            del self._agents[agent]

    def check(self, known: Collection[TaskId]) -> Iterator[str]:
        """Yield a message per broken invariant.

        Args:
            known: Tasks that are not over.
        """
        for gang, members in self._gangs.items():
            if not members or len(set(members)) != len(members) or not set(members) <= set(known):
                yield f"gang {gang} has the members {members}, expected distinct tasks that are not over"
        for agent, task in self._agents.items():
            if task not in known:
                yield f"agent {agent} belongs to {task}, which is over"
