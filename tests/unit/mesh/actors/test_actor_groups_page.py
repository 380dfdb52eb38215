"""Completeness of the page about actor groups: every strategy, dispatch and collector, and no other."""

import re
from pathlib import Path

import pytest

from mesh.actors.collecting import COLLECTORS
from mesh.actors.dispatching import DISPATCHERS
from mesh.actors.selection import STRATEGIES

PAGE = (Path(__file__).parents[4] / "docs" / "actor_groups.md").read_text(encoding="utf-8")


def first_cells(heading: str) -> set[str]:
    """Return the first column of the table under this heading."""
    table = PAGE.partition(f"| {heading} |")[2].partition("\n\n")[0]
    cells = [line.split(" | ")[0] for line in table.splitlines()[2:]]
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


@pytest.mark.parametrize(
    ("heading", "known"),
    [
        pytest.param("strategy", set(STRATEGIES), id="strategies"),
        pytest.param("`dispatch_fn`", {*DISPATCHERS, "reshard"}, id="dispatch functions"),
        pytest.param("`collect_fn`", set(COLLECTORS), id="collectors"),
    ],
)
def test_every_name_stands_in_its_table(heading, known):
    assert first_cells(heading) == known
