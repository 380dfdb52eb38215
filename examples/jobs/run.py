"""Run the job of `bandit.yaml` on a Ray cluster: `python -m examples.jobs.run`.

Connects to the cluster of RAY_ADDRESS, or starts one of this machine for as long as it runs.
"""

from __future__ import annotations

from pathlib import Path

import ray

from examples.jobs.bandit import Actor, Learner
from mesh import running_mesh

SPEC = Path(__file__).with_name("bandit.yaml")
WAITS_S_MAX = 300.0


def main() -> None:
    """Submit, watch, and print what the learner found out."""
    ray.init(ignore_reinit_error=True, log_to_driver=False)
    with running_mesh("jobs-example") as mesh:
        mesh.ensure_pool("train", capacity={"cpu": 4})
        job = mesh.submit_job(SPEC, leader=Learner, workers={"actors": Actor})
        ended = job.wait(timeout_s=WAITS_S_MAX)
        for member in ended.members:
            print(f"{member.name:10} {member.state.value:10} started {member.attempt} times, on {member.node}")
        print(f"{ended.stage.value}: {job.result()}")


if __name__ == "__main__":
    main()
