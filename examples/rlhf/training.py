"""The training itself: three pools on one mesh, whose quotas together are more than the cluster has.

Rollouts fill the cluster. The trainer of a round is more urgent, and finds no room: the mesh asks as many rollouts to give
way as it needs, keeps what they have done, and lets them go on from there when the training is over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from examples.rlhf.roles import Attempt, Judge, Rolled, Rollout, Samples, Table, Trainer, untrained
from mesh import ScheduleMesh, SchedulerSettings, TaskHandle
from mesh.preemption.rules import PreemptionRules, parse_cross_label
from mesh.ray.local.client.actor_group import ActorGroup

SEED = 7
JUDGES = 2
#: How long a result is waited for; far more than it takes, so that a mistake ends the example with an error.
WAITS_S_MAX = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is done in a round."""

    rollouts: int = 3
    rollout_steps: int = 100
    train_steps: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What came of one round."""

    samples: int
    worth: float  #: Of the policy after it: the reward that it may expect.
    train_waited_ms: int  #: From the trainer's submission until it ran.
    preempted: dict[str, tuple[Attempt, ...]]  #: Rollouts that were started more than once, while the round before this one trained.


def settings() -> SchedulerSettings:
    """Who may take from whom: by the pools alone nobody, since each pool has its own quota."""
    below = parse_cross_label({"role": {"train": ["rollout"], "reward": ["rollout"]}})
    return SchedulerSettings(rules=PreemptionRules.of("high", cross_pool=True, cross_label=below, min_run_ms=500))


def train(mesh: ScheduleMesh, *, rounds: int, sizes: Sizes) -> Iterator[Round]:
    """Yield after each round. Rollouts of the next one run on with the policy as it is while the trainer makes a better one."""
    judges = _open(mesh)
    policy = untrained()
    rolling = _inventory(mesh, policy, 0, sizes)
    for number in range(rounds):
        rolled: dict[str, Rolled] = {handle.task: handle.result(WAITS_S_MAX) for handle in rolling}
        samples = np.concatenate([one.samples for one in rolled.values()])
        rewards = judges.shard("score", samples)
        rolling = _inventory(mesh, policy, number + 1, sizes) if number + 1 < rounds else []
        trainer = _trainer(mesh, policy, samples, rewards, number, sizes)
        policy = trainer.result(WAITS_S_MAX)
        status = trainer.status()
        yield Round(
            samples=len(samples),
            worth=judges.choose().worth(policy),
            train_waited_ms=(status.started_ms or 0) - status.submitted_ms,
            preempted={name: one.attempts for name, one in rolled.items() if len(one.attempts) > 1},
        )


def _open(mesh: ScheduleMesh) -> ActorGroup:
    """The pools, and the judges."""
    mesh.ensure_pool("rollout", capacity={"cpu": 3})
    # Judges stand for long: spread over both nodes they would leave no room for a trainer on either.
    mesh.ensure_pool("reward", capacity={"cpu": 1}, policy="binpack")
    mesh.ensure_pool("train", capacity={"cpu": 2})
    options = {"pool": "reward", "resources": {"cpu": "0.5"}, "label": "role:reward", "priority": 7, "args": (SEED,)}
    judges = [mesh.submit_task(Judge, task_id=f"judge-{number}", **options) for number in range(JUDGES)]
    for judge in judges:
        judge.wait_started(WAITS_S_MAX)
    return mesh.group(tasks=judges)


def _inventory(mesh: ScheduleMesh, policy: Table, number: int, sizes: Sizes) -> list[TaskHandle]:
    """Rollouts that run: a trainer that came before them would find an empty cluster."""
    rolling = [
        mesh.submit_task(
            Rollout,
            pool="rollout",
            task_id=f"rollout-{number}-{seat}",
            label="role:rollout",
            resources={"cpu": 1},
            priority=3,
            args=(policy, SEED + 100 * number + seat, sizes.rollout_steps),
            method="run",
        )
        for seat in range(sizes.rollouts)
    ]
    for handle in rolling:
        handle.wait_started(WAITS_S_MAX)
    return rolling


def _trainer(mesh: ScheduleMesh, policy: Table, samples: Samples, rewards: NDArray[np.float64], number: int, sizes: Sizes) -> TaskHandle:
    return mesh.submit_task(
        Trainer,
        pool="train",
        task_id=f"train-{number}",
        label="role:train",
        resources={"cpu": 2},
        priority=9,
        args=(policy, samples, rewards, sizes.train_steps),
        method="run",
    )
