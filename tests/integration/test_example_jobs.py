"""Example of a job, run as its README says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mesh.ray.cluster.cluster_token import token_environment

pytestmark = pytest.mark.ray

REPOSITORY = Path(__file__).parents[2]


def test_s34_s35_the_learner_and_actors_find_the_best_machine(ray_cluster, tmp_path):
    environment = {**os.environ, "RAY_ADDRESS": ray_cluster.address, "XDG_STATE_HOME": str(tmp_path)}
    environment |= token_environment(ray_cluster.token_file)
    ran = subprocess.run(
        [sys.executable, "-m", "examples.jobs.run"],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert [line.split()[0] for line in lines[-6:-1]] == ["leader", "actors-0", "actors-1", "actors-2", "actors-3"]
    assert lines[-1].startswith("Succeeded: {'best': 6,")
    assert not list((tmp_path / "schedulemesh" / "meshes").iterdir())
