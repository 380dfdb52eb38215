"""Pictures of the browser page in the docs: each view in both themes, and small."""

import re

import pytest
from source_tree import ROOT

from tools.page_pictures import THEMES, VIEWS
from tools.pictures import FOLDER

#: Bytes of one picture: a page of the docs shows several.
PICTURE_BYTES_MAX = 60_000
NAMES = [f"browser_{view}_{theme}.png" for view in VIEWS for theme in THEMES]


def test_docs_show_every_view_in_both_themes():
    assert sorted(path.name for path in FOLDER.glob("browser_*.png")) == sorted(NAMES)
    assert set(re.findall(r"pictures/(browser_\w+\.png)", (ROOT / "docs" / "browser.md").read_text())) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_picture_is_small(name):
    assert (FOLDER / name).stat().st_size <= PICTURE_BYTES_MAX
