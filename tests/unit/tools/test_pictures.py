"""The pictures of the documents are what the product prints today."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

from tools.pictures import FOLDER, watch_svg

ROOT = Path(__file__).parents[3]
SIZE_MAX = 60_000


def test_the_readme_shows_the_picture_with_a_description():
    line = next(line for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines() if "](docs/pictures/watch.svg)" in line)
    assert line.startswith("![")
    assert "QUOTA_EXHAUSTED" in line


def test_the_stored_picture_is_what_the_command_draws():
    assert (FOLDER / "watch.svg").read_text(encoding="utf-8") == watch_svg(), "run `python -m tools.pictures`"


def test_the_picture_is_small_and_loads_nothing():
    svg = watch_svg()
    assert len(svg.encode()) < SIZE_MAX
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", "")
    assert ET.fromstring(svg).get("viewBox")  # noqa: S314  drawn here
