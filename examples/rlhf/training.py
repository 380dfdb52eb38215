"""The training: three pools on one mesh. Their quotas together exceed the cluster.

Rollouts fill the cluster. The trainer of a round has a higher priority and finds no room. The mesh preempts as many rollouts as
necessary, keeps their checkpoints, and continues them after the training.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from examples.rlhf.roles import Attempt, Judge, Rolled, Rollout, Samples, Table, Trainer, untrained
from mesh import ActorGroup, PreemptionRules, ScheduleMesh, SchedulerSettings, TaskHandle, parse_cross_label

SEED = 7
JUDGES = 2
#: Timeout of a wait; generous, so only a mistake ends the example with an error.
WAITS_S_MAX = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Amount of work in a round."""

    rollouts: int = 3
    rollout_steps: int = 100
    train_steps: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Result of one round."""

    samples: int
    worth: float  #: Expected reward of the policy after the round.
    train_waited_ms: int  #: From the trainer's submission to its start.
    preempted: dict[str, tuple[Attempt, ...]]  #: Rollouts with more than one start, preempted by the training of the round before.


def settings() -> SchedulerSettings:
    """Return rules that let training and reward preempt rollouts of another pool; by default, pools do not preempt each other."""
    below = parse_cross_label({"role": {"train": ["rollout"], "reward": ["rollout"]}})
    return SchedulerSettings(rules=PreemptionRules.of("high", cross_pool=True, cross_label=below, min_run_ms=500))


def train(mesh: ScheduleMesh, *, rounds: int, sizes: Sizes) -> Iterator[Round]:
    """Yield after each round. The next round's rollouts run with the old policy while the trainer improves it."""
    judges = _create_pools_and_judges(mesh)
    policy = untrained()
    rolling = _start_rollouts(mesh, policy, 0, sizes)
    for number in range(rounds):
        rolled: dict[str, Rolled] = {handle.task: handle.result(WAITS_S_MAX) for handle in rolling}
        samples = np.concatenate([one.samples for one in rolled.values()])
        rewards = judges.shard("score", samples)
        rolling = _start_rollouts(mesh, policy, number + 1, sizes) if number + 1 < rounds else []
        trainer = _submit_trainer(mesh, policy, samples, rewards, number, sizes)
        policy = trainer.result(WAITS_S_MAX)
        status = trainer.status()
        yield Round(
            samples=len(samples),
            worth=judges.choose().worth(policy),
            train_waited_ms=(status.started_ms or 0) - status.submitted_ms,
            preempted={name: one.attempts for name, one in rolled.items() if len(one.attempts) > 1},
        )


def _create_pools_and_judges(mesh: ScheduleMesh) -> ActorGroup:
    mesh.ensure_pool("rollout", capacity={"cpu": 3})
    # Judges run all the time: spread over both nodes they would leave no room for a trainer on either.
    mesh.ensure_pool("reward", capacity={"cpu": 1}, policy="binpack")
    mesh.ensure_pool("train", capacity={"cpu": 2})
    options = {"pool": "reward", "resources": {"cpu": "0.5"}, "label": "role:reward", "priority": 7, "args": (SEED,)}
    judges = [mesh.submit_task(Judge, task_id=f"judge-{number}", **options) for number in range(JUDGES)]
    for judge in judges:
        judge.wait_started(WAITS_S_MAX)
    return mesh.group(tasks=judges)


def _start_rollouts(mesh: ScheduleMesh, policy: Table, number: int, sizes: Sizes) -> list[TaskHandle]:
    """Submit the rollouts and wait for their start: an earlier trainer would find an empty cluster."""
    rolling = [
        mesh.submit_task(
            Rollout,
            pool="rollout",
            task_id=f"rollout-{number}-{index}",
            label="role:rollout",
            resources={"cpu": 1},
            priority=3,
            args=(policy, SEED + 100 * number + index, sizes.rollout_steps),
            method="run",
        )
        for index in range(sizes.rollouts)
    ]
    for handle in rolling:
        handle.wait_started(WAITS_S_MAX)
    return rolling


def _submit_trainer(
    mesh: ScheduleMesh, policy: Table, samples: Samples, rewards: NDArray[np.float64], number: int, sizes: Sizes
) -> TaskHandle:
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
