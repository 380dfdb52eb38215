"""The three roles of reinforcement learning from human feedback, as small as they can be.

A *policy* answers each of `PROMPTS` prompts with one of `ANSWERS` answers, by chance: a table of logits, a softmax per row.
A **rollout** lets it answer, a **reward** judge likes some answers more than others, and the **trainer** moves the policy
towards what was liked (REINFORCE, with the mean reward as its baseline).

The classes are plain ones. Only `Rollout` and `Trainer` use the mesh: they save a checkpoint after each step. A preempted
task stops at its next checkpoint.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import mesh

PROMPTS, ANSWERS = 8, 16
LEARNING_RATE = 150.0  #: Large, since a gradient is a mean over all prompts and samples.
SLEEP_S = 0.02  #: Duration of a step; stands for the work of a language model.

Table = NDArray[np.float64]  #: logits[PROMPTS][ANSWERS]
Samples = NDArray[np.int64]  #: samples[n][2]: prompt and answer.


class Attempt(NamedTuple):
    """One start of a task."""

    number: int
    first_step: int  #: Earlier attempts did the steps before.


class Rolled(NamedTuple):
    """Result of a rollout."""

    samples: Samples
    attempts: tuple[Attempt, ...]


class Rollout:
    """Lets the policy answer, a batch per step."""

    def __init__(self, logits: Table, seed: int, steps: int, batch: int = 16) -> None:
        self.chances = softmax(logits)
        self.seed, self.steps, self.batch = seed, steps, batch

    def run(self) -> Rolled:
        """Do all steps, continuing from the last checkpoint."""
        task = mesh.current_task()
        samples: list[Samples]
        samples, attempts = task.last_checkpoint() or ([], ())
        attempts = (*attempts, Attempt(task.attempt, len(samples)))
        for step in range(len(samples), self.steps):
            samples.append(self.answer(step))
            task.save_checkpoint((samples, attempts), progress=(step + 1) / self.steps)
        return Rolled(np.concatenate(samples), attempts)

    def answer(self, step: int) -> Samples:
        """Return samples[batch][2]. The step's number is its random seed, so a repeated step gives the same samples."""
        time.sleep(SLEEP_S)
        random_stream = np.random.default_rng((self.seed, step))
        prompts = random_stream.integers(PROMPTS, size=self.batch)
        answers = [random_stream.choice(ANSWERS, p=self.chances[prompt]) for prompt in prompts]
        return np.stack([prompts, np.array(answers)], axis=1)


class Judge:
    """Reward model: how much people like an answer. A standing agent, called as a group."""

    def __init__(self, seed: int) -> None:
        self.liking = np.random.default_rng(seed).normal(size=(PROMPTS, ANSWERS))

    def score(self, samples: Samples) -> NDArray[np.float64]:
        """Return rewards[n] for samples[n][2]."""
        return np.asarray(self.liking[samples[:, 0], samples[:, 1]])

    def worth(self, logits: Table) -> float:
        """Return the expected reward of the policy."""
        return float((softmax(logits) * self.liking).sum(axis=1).mean())


class Trainer:
    """Moves the policy towards what was liked."""

    def __init__(self, logits: Table, samples: Samples, rewards: NDArray[np.float64], steps: int) -> None:
        self.logits, self.samples, self.rewards, self.steps = logits, samples, rewards, steps

    def run(self) -> Table:
        """Return the new policy."""
        task = mesh.current_task()
        logits, first = task.last_checkpoint() or (self.logits, 0)
        for step in range(first, self.steps):
            time.sleep(SLEEP_S)
            logits = logits + LEARNING_RATE / self.steps * self.gradient(logits)
            task.save_checkpoint((logits, step + 1), progress=(step + 1) / self.steps)
        return np.asarray(logits)

    def gradient(self, logits: Table) -> Table:
        """Estimate the gradient of the expected reward from the samples."""
        prompts, answers = self.samples.T
        gains = self.rewards - self.rewards.mean()
        gradient = np.zeros_like(logits)
        np.add.at(gradient, (prompts, answers), gains)
        np.add.at(gradient, prompts, -gains[:, None] * softmax(logits)[prompts])
        return gradient / len(gains)


def softmax(logits: Table) -> Table:
    """Return chances[PROMPTS][ANSWERS]; each row sums to 1."""
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def untrained() -> Table:
    """Return a policy that prefers no answer."""
    return np.zeros((PROMPTS, ANSWERS))
