"""Example of training from preferences, run as a reader runs it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from patience import gone

from examples.rlhf.roles import ANSWERS, PROMPTS, Judge, Trainer, softmax, untrained
from mesh.ray.cluster.cluster_token import token_environment

REPOSITORY = Path(__file__).parents[2]
RUN_S_MAX = 240.0


def started(*options: str, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-u", "-m", "examples.rlhf", *options]
    variables = {**os.environ, **environment}
    return subprocess.Popen(command, cwd=REPOSITORY, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@contextlib.contextmanager
def killed_at_last(example: subprocess.Popen[str]) -> Iterator[None]:
    """Kill a program that does not end."""
    try:
        yield
    finally:
        example.kill()


def communicate(example: subprocess.Popen[str]) -> tuple[str, str]:
    with killed_at_last(example):
        return example.communicate(timeout=RUN_S_MAX)


def lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # It ended between the two calls.
        return False


def test_a_step_along_the_gradient_makes_the_policy_worth_more():
    judge = Judge(seed=1)
    samples = np.stack([np.repeat(np.arange(PROMPTS), ANSWERS), np.tile(np.arange(ANSWERS), PROMPTS)], axis=1)
    trainer = Trainer(untrained(), samples, judge.score(samples), steps=1)
    assert judge.worth(untrained() + trainer.gradient(untrained())) > judge.worth(untrained())
    assert softmax(untrained()).sum() == pytest.approx(PROMPTS)


@pytest.mark.ray
def test_rollouts_are_preempted_for_training_and_resume(two_nodes, tmp_path):
    token = token_environment(two_nodes.token_file)
    # Rollouts so long that none ends before the trainer starts, even if the last of them starts seconds after the first.
    options = ("--address", two_nodes.address, "--rounds", "2", "--rollout-steps", "300")
    with started(*options, XDG_STATE_HOME=str(tmp_path), **token) as example:
        done, complaints = communicate(example)
    assert example.returncode == 0, complaints
    worth = [float(value) for value in re.findall(r"the policy is worth ([+-][\d.]+)", done)]
    assert len(worth) == 2
    assert worth[0] < worth[1]
    went_on = [int(step) for step in re.findall(r"was preempted, continued at step (\d+)", done)]
    assert max(went_on) > 0, done
    assert f"{len(went_on)} rollouts were preempted (label role:rollout); the audit found nothing" in done
    assert list((tmp_path / "schedulemesh" / "meshes").iterdir()) == []


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.ray
def test_ctrl_c_stops_all_of_it(tmp_path):
    with started("--rounds", "100", HOME=str(tmp_path), XDG_STATE_HOME="") as example, killed_at_last(example):
        assert "started a Ray cluster" in example.stdout.readline()
        processes = psutil.Process(example.pid).children(recursive=True)
        assert processes
        assert "round 0" in example.stdout.readline()
        example.send_signal(signal.SIGINT)
        _, complaints = communicate(example)
    assert example.returncode == 130
    assert "interrupted; everything is stopped" in complaints
    assert "Traceback" not in complaints
    gone(lambda: [process for process in processes if lives(process)])
    assert list(tmp_path.iterdir()) == [], "an example writes nothing into the home of its user"
