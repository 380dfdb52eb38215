"""An urgent task preempts a long one, which continues from its last checkpoint: `python -m examples.preempt`."""

import os
import time

from examples.ray_cluster import connected
from mesh import current_task, running_mesh


class Training:
    def run(self, steps: int) -> str:
        task = current_task()
        first = task.last_checkpoint() or 0
        for step in range(first, steps):
            time.sleep(0.02)  # A step of yours.
            task.save_checkpoint(step + 1)
        return f"{task.task} went through steps {first} to {steps} in attempt {task.attempt}"


if __name__ == "__main__":
    with connected(os.environ.get("RAY_ADDRESS"), 2) as folder, running_mesh(state_dir=folder) as mesh:
        mesh.ensure_pool("main", capacity={"cpu": 2})
        options = {"pool": "main", "resources": {"cpu": 2}, "method": "run"}
        long = mesh.submit_task(Training, task_id="long", priority=3, method_args=(300,), **options)
        long.wait_started()
        urgent = mesh.submit_task(Training, task_id="urgent", priority=7, method_args=(20,), **options)
        print(urgent.why())
        print(urgent.result(timeout_s=60))
        print(long.result(timeout_s=60))
