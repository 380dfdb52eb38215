"""Examples connect to Ray in one place: `ray.init()` alone would write a token into the user's home."""

from __future__ import annotations

from pathlib import Path

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_examples_connect_to_ray_in_one_place():
    calling = {file.relative_to(EXAMPLES).as_posix() for file in EXAMPLES.rglob("*.py") if "ray.init(" in file.read_text(encoding="utf-8")}
    assert calling == {"ray_cluster.py"}
