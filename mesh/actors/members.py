"""Members of a group, and how a label finds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mesh.actors.dimensions import Dimensions
from mesh.ids import AgentId, TaskId
from mesh.scheduling.tasks import DEFAULT_PRIORITY

#: A queue's name as tasks have it (`gpu:a100`), or labels that must all be there.
Label = str | Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """An agent with its place in a group."""

    agent: AgentId
    handle: Any  #: Of the agent's Ray actor, with `call` and `stream`, perhaps `call_named`.
    rank: int
    labels: Mapping[str, str] = field(default_factory=dict)
    task: TaskId | None = None  #: What the agent hosts.
    attempt: int = 0  #: Of the task; 0: unknown.
    priority: float = DEFAULT_PRIORITY  #: For the strategy `priority`.


@dataclass(frozen=True, slots=True)
class RankView:
    """What a dispatch function knows of the group it deals to; ranks are 0 to n - 1."""

    dimensions: Dimensions
    agents: tuple[AgentId, ...]  #: [n]
    labels: tuple[Mapping[str, str], ...]  #: [n]

    def __len__(self) -> int:
        return len(self.agents)


def labels_of(name: str) -> dict[str, str]:
    """The labels that a queue's name stands for: `gpu:a100` is `{"gpu": "a100"}`, a bare `rollout` is `{"rollout": ""}`."""
    key, _, value = name.partition(":")
    return {key: value}


def carries(labels: Mapping[str, str], label: Label) -> bool:
    """True when all of the label is among `labels`; a bare word asks only that the key be there."""
    if isinstance(label, str):
        key, colon, value = label.partition(":")
        return key in labels if not colon else labels.get(key) == value
    return all(labels.get(key) == value for key, value in label.items())
