"""Run the job of `bandit.yaml` on a Ray cluster: `python -m examples.jobs.run`.

Connects to the cluster of `--address` or RAY_ADDRESS, or starts one of this machine for as long as it runs.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from examples.jobs.bandit import Actor, Learner
from examples.ray_cluster import connected
from mesh import running_mesh

SPEC = Path(__file__).with_name("bandit.yaml")
WAITS_S_MAX = 300.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Submit the job, wait for it, and print the learner's report."""
    parser = argparse.ArgumentParser(prog="python -m examples.jobs.run", description="A job that finds the best slot machine.")
    parser.add_argument("--address", help="of a Ray cluster with 4 CPUs; left out, RAY_ADDRESS, else one that is started and stopped")
    options = parser.parse_args(arguments)
    address = options.address or os.environ.get("RAY_ADDRESS")
    with connected(address, 4) as folder, running_mesh("jobs-example", state_dir=folder) as mesh:
        mesh.ensure_pool("train", capacity={"cpu": 4})
        job = mesh.submit_job(SPEC, leader=Learner, workers={"actors": Actor})
        ended = job.wait(timeout_s=WAITS_S_MAX)
        for member in ended.members:
            print(f"{member.name:10} {member.state.value:10} started {member.attempt} times, on {member.node}")
        print(f"{ended.stage.value}: {job.result()}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
