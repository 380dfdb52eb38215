"""Members of a group, and matching of labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mesh.actors.dimensions import Dimensions
from mesh.core.ids import AgentId, TaskId
from mesh.core.task_spec import DEFAULT_PRIORITY

#: Queue name as in tasks (`gpu:a100`), or labels that must all match.
Label = str | Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """Agent with its rank in a group."""

    agent: AgentId
    handle: Any  #: Handle of the agent's Ray actor, with `call` and `stream`, perhaps `call_named`.
    rank: int
    labels: Mapping[str, str] = field(default_factory=dict)
    task: TaskId | None = None  #: Task that the agent hosts.
    attempt: int = 0  #: Attempt of the task; 0: unknown.
    priority: float = DEFAULT_PRIORITY  #: For strategy `priority`.


@dataclass(frozen=True, slots=True)
class RankView:
    """Group as seen by a dispatch function; ranks are 0 to n - 1."""

    dimensions: Dimensions
    agents: tuple[AgentId, ...]  #: [n]
    labels: tuple[Mapping[str, str], ...]  #: [n]

    def __len__(self) -> int:
        return len(self.agents)


def labels_of(name: str) -> dict[str, str]:
    """Return the labels of a queue name: `gpu:a100` is `{"gpu": "a100"}`, `rollout` is `{"rollout": ""}`."""
    key, _, value = name.partition(":")
    return {key: value}


def carries(labels: Mapping[str, str], label: Label) -> bool:
    """Return whether `labels` contains the whole label; a name without a value matches any value."""
    if isinstance(label, str):
        key, colon, value = label.partition(":")
        return key in labels if not colon else labels.get(key) == value
    return all(labels.get(key) == value for key, value in label.items())
