"""Programs in the documents of the local mesh, run as a reader runs them, on a cluster of two nodes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import ray
from patience import gone

from mesh.ray.cluster.cluster_token import token_environment
from mesh.ray.cluster.own_cluster import OwnCluster

pytestmark = pytest.mark.ray

REPOSITORY = Path(__file__).parents[2]
RUN_S_MAX = 240.0


def program_of_the_pages() -> str:
    """Join all Python blocks of the pages about the mesh, in the order of their README."""
    folder = REPOSITORY / "docs" / "mesh"
    readme = (folder / "README.md").read_text(encoding="utf-8")
    names = ["README", *re.findall(r"^\| \[\w+\]\((\w+)\.md\)", readme, flags=re.MULTILINE)]
    text = "\n".join((folder / f"{name}.md").read_text(encoding="utf-8") for name in names)
    return "\n".join(re.findall(r"^```python\n([\s\S]*?)^```", text, flags=re.MULTILINE))


def hurrying(program: str) -> str:
    """Let the steps of the pages pause in a first attempt alone: what follows a preemption has nobody to wait for."""
    assert program.count("time.sleep(self.pause_s)") == 1
    return program.replace("time.sleep(self.pause_s)", "time.sleep(self.pause_s if task.attempt == 1 else 0)")


def with_steps(program: str, few: int, many: int) -> str:
    """Give the preempted task more steps, so that it is still running when it is preempted on a busy machine."""
    assert program.count(f"({few},)") == 1
    return program.replace(f"({few},)", f"({many},)")


def output_of(program: str, folder: Path, cluster: OwnCluster) -> str:
    """Run the program as a file of its own by a driver of that cluster, and return its output."""
    file = folder / "program.py"
    file.write_text(program, encoding="utf-8")
    environment = {**os.environ, "RAY_ADDRESS": cluster.address, "XDG_STATE_HOME": str(folder), "PYTHONPATH": str(REPOSITORY)}
    environment |= token_environment(cluster.token_file)
    done = subprocess.run([sys.executable, str(file)], env=environment, capture_output=True, text=True, timeout=RUN_S_MAX, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def agents_left() -> list[str]:
    return [actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True)]


@pytest.mark.faults
@pytest.mark.slow
def test_the_example_of_a_preemption_leaves_nothing(two_nodes, tmp_path):
    program = with_steps((REPOSITORY / "examples" / "preempt.py").read_text(encoding="utf-8"), 300, 800)
    text = output_of(program, tmp_path, two_nodes)
    why, urgent, long = text.strip().splitlines()
    assert re.match(r"[A-Z_]+: ", why)
    assert urgent == "urgent went through steps 0 to 20 in attempt 1"
    went_on = re.fullmatch(r"long went through steps (\d+) to 800 in attempt 2", long)
    assert went_on
    assert int(went_on[1]) > 0
    gone(agents_left)


def test_the_program_of_the_pages_runs_and_leaves_nothing(two_nodes, tmp_path):
    text = output_of(hurrying(with_steps(program_of_the_pages(), 250, 800)), tmp_path, two_nodes)
    assert re.match(r"(RESERVED_LAYER|GROUP_CREATED) \[\{'CPU': 1.0\}\]\n", text)
    assert "POOL_TOO_SMALL: pool main has 3 cpu in total, 4 requested." in text
    assert re.search(r"low went on at step \d+, in attempt 2", text)
    assert "job: Succeeded" in text
    gone(agents_left)
    assert list((tmp_path / "schedulemesh" / "meshes").iterdir()) == []
